//! The memory of another process, through `/proc/PID/mem`.
//!
//! The descriptor refers to the address space and not to the process number: once the address space is gone,
//! by exit or by `execve`, calls fail, also if another process has the number by then (`process_vm_writev`
//! would write to that process). The kernel checks access when the file is opened, by the rules of
//! `ptrace(2)`, Yama's among them.

use rnic::{Backing, Gather, Piece};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Scatter/gather elements that one call moves. Requests with more of them go through the rings.
const PIECES_MAX: usize = 8;

/// The memory of another process. All channels to one process share a descriptor.
#[derive(Debug)]
pub(crate) struct OtherProcess(Arc<OwnedFd>);

/// Open descriptors, by process number.
static OPEN: Mutex<Vec<(u32, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

impl OtherProcess {
    /// Opens the memory of a process, which has to have `token` at `address`.
    pub(crate) fn open(process: u32, address: u64, token: u64) -> io::Result<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, memory)| memory.strong_count() > 0);
        let known = open.iter().filter(|(known, _)| *known == process);
        // The number may have been given to another process since, whose memory has no such token.
        let shared = { known }.filter_map(|(_, memory)| Some(Self(memory.upgrade()?)));
        if let Some(shared) = { shared }.find(|memory| memory.has(address, token)) {
            return Ok(shared);
        }
        let path = format!("/proc/{process}/mem");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let memory = Self(Arc::new(file.into()));
        if !memory.has(address, token) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        open.push((process, Arc::downgrade(&memory.0)));
        Ok(memory)
    }

    /// Whether `token` is at `address`.
    fn has(&self, address: u64, token: u64) -> bool {
        let mut found = [0; 8];
        let piece = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
        // SAFETY: one piece of eight writable bytes.
        let read = unsafe { libc::preadv(self.0.as_raw_fd(), &piece, 1, address as i64) };
        read == found.len() as isize && u64::from_ne_bytes(found) == token
    }

    /// Writes all of `from` in ascending order, the last byte last. False where not all of it was written.
    pub(crate) fn write(&self, address: u64, from: Gather<'_>) -> bool {
        let mut pieces = [EMPTY; PIECES_MAX + 1];
        let Some((mut count, length)) = list(from, &mut pieces) else { return false };
        // A copy of up to eight aligned bytes is one store. In a longer one the kernel may store the end
        // first.
        if length > 8 || !address.is_multiple_of(8) {
            count = split_last(&mut pieces, count);
        }
        let (fd, address) = (self.0.as_raw_fd(), address as i64);
        // SAFETY: the pieces are memory that the device checked against regions of ours, or its own; the
        // kernel checks both sides.
        let moved = unsafe {
            match pieces[..count] {
                [one] => libc::pwrite(fd, one.iov_base, one.iov_len, address),
                _ => libc::pwritev(fd, pieces.as_ptr(), count as i32, address),
            }
        };
        moved == length as isize
    }

    /// Reads all of `into`. False where not all of it was read.
    pub(crate) fn read(&self, address: u64, into: Gather<'_>) -> bool {
        let mut pieces = [EMPTY; PIECES_MAX + 1];
        let Some((count, length)) = list(into, &mut pieces) else { return false };
        let (fd, address) = (self.0.as_raw_fd(), address as i64);
        // SAFETY: the pieces are memory that the device checked against regions of ours, and that may be
        // written; the kernel checks both sides.
        let moved = unsafe {
            match pieces[..count] {
                [one] => libc::pread(fd, one.iov_base, one.iov_len, address),
                _ => libc::preadv(fd, pieces.as_ptr(), count as i32, address),
            }
        };
        moved == length as isize
    }
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn list(gather: Gather<'_>, pieces: &mut [libc::iovec; PIECES_MAX + 1]) -> Option<(usize, usize)> {
    let iovec = |address: u64, length: usize| libc::iovec { iov_base: address as *mut _, iov_len: length };
    let one = |bytes: &[u8]| iovec(bytes.as_ptr() as u64, bytes.len());
    let of = |piece: &Piece| iovec(piece.address, piece.length as usize);
    match gather {
        Gather::Inline(bytes) => {
            pieces[0] = one(bytes);
            Some((1, bytes.len()))
        }
        Gather::Pieces(list) => {
            // A null memory region has no memory that the kernel could access.
            if list.iter().any(|piece| piece.backing == Backing::Null) {
                return None;
            }
            let places = pieces.get_mut(..list.len()).filter(|places| places.len() <= PIECES_MAX)?;
            places.iter_mut().zip(list).for_each(|(place, piece)| *place = of(piece));
            Some((list.len(), places.iter().map(|piece| piece.iov_len).sum()))
        }
    }
}

/// Splits the last byte off as an element of its own.
fn split_last(pieces: &mut [libc::iovec; PIECES_MAX + 1], count: usize) -> usize {
    match count.checked_sub(1).map(|last| pieces[last]) {
        Some(last) if last.iov_len > 1 => {
            let head = last.iov_len - 1;
            pieces[count - 1].iov_len = head;
            // SAFETY: within the piece.
            pieces[count] = libc::iovec { iov_base: unsafe { last.iov_base.byte_add(head) }, iov_len: 1 };
            count + 1
        }
        _ => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(token: &u64) -> OtherProcess {
        OtherProcess::open(std::process::id(), std::ptr::from_ref(token) as u64, *token).unwrap()
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece { address: bytes.as_ptr() as u64, length: bytes.len() as u32, backing: Backing::Pinned }
    }

    #[test]
    fn bytes_are_written_and_read_back() {
        let (token, target) = (5u64, [0u8; 300]);
        let source: Vec<u8> = (0..=255).collect();
        let memory = own(&token);
        let address = std::hint::black_box(&target).as_ptr() as u64;
        let halves = [piece(&source[..100]), piece(&source[100..])];
        assert!(memory.write(address + 3, Gather::Pieces(&halves)));
        assert_eq!(std::hint::black_box(&target)[3..259], source[..]);
        let back = [0u8; 256];
        assert!(memory.read(address + 3, Gather::Pieces(&[piece(&back)])));
        assert_eq!(std::hint::black_box(&back)[..], source[..]);
        assert!(!memory.write(4096, Gather::Inline(&[1])), "nothing is mapped there");
        let null = Piece { backing: Backing::Null, ..piece(&back) };
        assert!(!memory.read(address, Gather::Pieces(&[null])), "a null region has no memory");
    }

    #[test]
    fn a_process_without_the_token_is_refused() {
        let token = 5u64;
        let address = std::ptr::from_ref(&token) as u64;
        assert!(OtherProcess::open(std::process::id(), address, 6).is_err());
        assert!(OtherProcess::open(1 << 30, address, 5).is_err());
    }
}
