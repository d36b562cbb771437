//! The memory of another process, through `/proc/PID/mem`.
//!
//! The descriptor stands for the address space and not for the process's number: once that is gone, by death
//! or by `execve`, nothing is reached any more, whoever has the number then (`process_vm_writev` would write
//! to him). The kernel asks when it is opened whether we may, by the rules of `ptrace`, Yama's among them.

use rnic::{Backing, Gather, Piece};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Pieces that one call moves; more go the usual way.
const PIECES_MAX: usize = 8;

/// Another process's memory.
#[derive(Debug)]
pub(crate) struct Foreign(OwnedFd);

impl Foreign {
    /// Opens it. `address` is a place in it at which there has to be `token`.
    pub(crate) fn open(process: u32, address: u64, token: u64) -> io::Result<Self> {
        let path = format!("/proc/{process}/mem");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let foreign = Self(file.into());
        let mut found = [0; 8];
        let piece = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
        // SAFETY: one piece of eight writable bytes.
        let read = unsafe { libc::preadv(foreign.0.as_raw_fd(), &piece, 1, address as i64) };
        if read == found.len() as isize && u64::from_ne_bytes(found) == token {
            Ok(foreign)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    /// Writes to it; whether all of it arrived. Ascending, and the last byte last.
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

    /// Reads from it; whether all of it came.
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
            // Where there is no memory, the kernel cannot move any.
            if list.iter().any(|piece| piece.backing == Backing::Null) {
                return None;
            }
            let places = pieces.get_mut(..list.len()).filter(|places| places.len() <= PIECES_MAX)?;
            places.iter_mut().zip(list).for_each(|(place, piece)| *place = of(piece));
            Some((list.len(), places.iter().map(|piece| piece.iov_len).sum()))
        }
    }
}

/// Makes the last byte a piece of its own.
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

    fn own(token: &u64) -> Foreign {
        Foreign::open(std::process::id(), std::ptr::from_ref(token) as u64, *token).unwrap()
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece { address: bytes.as_ptr() as u64, length: bytes.len() as u32, backing: Backing::Pinned }
    }

    #[test]
    fn bytes_go_both_ways() {
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
        assert!(!memory.read(address, Gather::Pieces(&[null])), "nowhere to put it");
    }

    #[test]
    fn another_process_than_was_named_is_refused() {
        let token = 5u64;
        let address = std::ptr::from_ref(&token) as u64;
        assert!(Foreign::open(std::process::id(), address, 6).is_err());
        assert!(Foreign::open(1 << 30, address, 5).is_err());
    }
}
