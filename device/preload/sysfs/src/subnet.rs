//! The InfiniBand device of a host in a lab: its files in `/sys`, which change while a program runs, and
//! `/dev/infiniband/umad0` and `issm0`, which are sockets to the lab.

use core::ffi::{CStr, c_int};
use link::management;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const UMAD: &[u8] = b"/dev/infiniband/umad0";
const ISSM: &[u8] = b"/dev/infiniband/issm0";

/// Descriptors that are looked up in [`OPENED`].
const DESCRIPTORS: usize = 1024;
/// Bits of descriptors that this process opened as files of the umad device, and may have closed since.
static OPENED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// Whether there was ever one. Most programs have none, and their reads only load this.
static ANY: AtomicBool = AtomicBool::new(false);

/// Writes the present values of files below a path of the device into the folder of the view.
pub(crate) fn refresh(path: &CStr, folder: &[u8]) {
    let Some(inside) = path.to_bytes().strip_prefix(folder) else {
        return;
    };
    let is_below = |folder: &&str| {
        let rest = inside.strip_prefix(b"/");
        let rest = rest.and_then(|rest| rest.strip_prefix(folder.as_bytes()));
        matches!(rest, Some([] | [b'/', ..]))
    };
    let [device, _, interface] = management::FOLDERS;
    if !is_below(&device) && !is_below(&interface) {
        return;
    }
    let Ok(files) = management::describe() else {
        return;
    };
    let view = Path::new(OsStr::from_bytes(folder));
    for (file, value) in files {
        let there = view.join(&file);
        if there.starts_with(Path::new(OsStr::from_bytes(path.to_bytes()))) {
            crate::counters::write_aside(&there, view, &value);
        }
    }
}

/// Opens a device file of the subnet; `None` for another path.
pub(crate) fn open(path: &CStr, flags: c_int, folder: &[u8]) -> Option<io::Result<RawFd>> {
    let inside = path.to_bytes().strip_prefix(folder)?;
    if inside == ISSM {
        return Some(management::open_manager().map(IntoRawFd::into_raw_fd));
    }
    if inside != UMAD {
        return None;
    }
    let opened = management::open().map(IntoRawFd::into_raw_fd);
    if let Ok(file) = opened {
        if flags & libc::O_NONBLOCK != 0 {
            let _ = link::unix::set_nonblocking(file);
        }
        if let Some((word, bit)) = place(file) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        ANY.store(true, Ordering::Release);
    }
    Some(opened)
}

fn place(file: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let file = usize::try_from(file).ok()?;
    Some((OPENED.get(file / 64)?, 1 << (file % 64)))
}

/// Whether a descriptor is an open umad file. The answer for descriptors that never were is one load.
pub(crate) fn is_umad(file: RawFd) -> bool {
    ANY.load(Ordering::Acquire) && is_open_umad(file)
}

#[inline(never)]
fn is_open_umad(file: RawFd) -> bool {
    let Some((word, bit)) = place(file) else {
        return management::is_file(file);
    };
    if word.load(Ordering::Relaxed) & bit == 0 {
        return false;
    }
    let is_file = management::is_file(file);
    if !is_file {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    is_file
}

/// Whether a descriptor is a umad file of any process.
#[inline(never)]
pub(crate) fn is_file(file: RawFd) -> bool {
    management::is_file(file)
}

/// The group of the calls of umad files, in the number of a call.
const CALLS: u64 = 0x1b;
/// Bytes of the header of records, with the index of a partition key and without.
const HEADER_BYTES: usize = 64;
/// Bytes of a record that a program writes at least: the shorter header, and that of a message.
pub(crate) const RECORD_BYTES_MIN: usize = 56 + 36;
/// Bytes of a datagram.
const MAD_BYTES: usize = 256;

/// Whether the number of a call can be one of umad files.
pub(crate) fn may_be_call(command: u64) -> bool {
    command >> 8 & 0xff == CALLS
}

/// The size of a call's argument, which its number has.
pub(crate) fn argument_bytes(command: u64) -> usize {
    (command >> 16 & 0x3fff) as usize
}

/// What a program that reads a record with so much room gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    /// The record, which leaves the queue.
    All,
    /// Its first bytes, so many, and `ENOSPC`: the program reads again with more room.
    Beginning(usize),
    /// Nothing and `EINVAL`: the room has no datagram.
    Nothing,
}

/// Decides about a record of `length` bytes that is read with `room`, as Linux does.
pub(crate) fn reads(length: usize, room: usize) -> Reads {
    if length <= room {
        return Reads::All;
    }
    if length > HEADER_BYTES + MAD_BYTES && room >= HEADER_BYTES + MAD_BYTES {
        return Reads::Beginning(HEADER_BYTES + MAD_BYTES);
    }
    Reads::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_record_stays_until_there_is_room() {
        assert_eq!(reads(320, 320), Reads::All);
        assert_eq!(reads(320, 319), Reads::Nothing);
        assert_eq!(reads(5_000, 320), Reads::Beginning(320));
        assert_eq!(reads(5_000, 5_000), Reads::All);
        assert_eq!(reads(5_000, 100), Reads::Nothing);
    }

    #[test]
    fn calls_have_their_size_in_their_number() {
        assert!(may_be_call(0xc01c_1b01) && !may_be_call(0x5401));
        assert_eq!(argument_bytes(0xc01c_1b01), 28);
        assert_eq!(argument_bytes(0xc028_1b04), 40);
        assert_eq!(argument_bytes(0x1b03), 0);
    }

    #[test]
    fn other_paths_are_not_device_files() {
        assert!(open(c"/v/dev/infiniband/uverbs0", 0, b"/v").is_none());
        assert!(open(c"/dev/infiniband/umad0", 0, b"/v").is_none());
        assert!(!is_umad(0));
    }
}
