//! The memory of another process, through `/proc/PID/mem` or by process number.
//!
//! The descriptor of `/proc/PID/mem` refers to the address space and not to the process number: once the
//! address space is gone, by exit or by `execve`, calls fail, also if another process has the number by then.
//! The kernel checks access when the file is opened, by the rules of `ptrace(2)`, Yama's among them. It moves
//! each page by two copies, with a page of its own between them.
//!
//! `process_vm_writev(2)` and `process_vm_readv(2)` copy once, and move 1.5 times as many bytes per second
//! from 64 KiB on, but name the process by its number. Their first element therefore is the process's token,
//! at an address that was chosen at random: the kernel finds the address space once per call, moves the
//! elements in their order, and stops at the first one that is not mapped. In another address space nothing
//! is mapped there, so nothing is written; a READ also compares the token.

use rnic::{Backing, Gather, Piece, RUN_MAX};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Scatter/gather elements that one call moves. Requests with more of them go through the rings.
const PIECES_MAX: usize = 8;
/// Requests longer than this, in bytes, are moved by process number where the kernel permits it. Up to this
/// length the second copy takes no longer than finding the token.
const MEM_MAX: usize = 8192;
const TOKEN_BYTES: usize = 8;
/// Whether other threads see what one call moves in the order in which the kernel moves it. On x86-64 they
/// do, because its stores and loads are in program order. On 64-bit ARM only separate calls are in order:
/// each takes and drops a reference to the address space, by atomic instructions that are barriers.
const CALLS_KEEP_ORDER: bool = cfg!(target_arch = "x86_64");

/// A WRITE or READ of one piece of memory at each end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Copy {
    /// Address in our memory.
    pub(crate) ours: u64,
    /// Address in the other process's memory.
    pub(crate) theirs: u64,
    /// Bytes; not 0.
    pub(crate) length: u32,
}

impl Copy {
    /// Our memory, as one piece of a request.
    fn piece(self) -> Piece {
        Piece {
            address: self.ours,
            length: self.length,
            backing: Backing::Pinned,
        }
    }
}

/// The memory of another process.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    /// `/proc/PID/mem`; all channels to one process share it.
    mem: Arc<OwnedFd>,
    process: libc::pid_t,
    /// Address of the token in the process, and its value.
    token: (u64, u64),
    /// The kernel allows access by process number.
    by_number: bool,
}

/// Open descriptors, by process number.
static OPEN: Mutex<Vec<(u32, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

impl OtherProcess {
    /// Opens the memory of a process, which has to have `token` at `address`.
    pub(crate) fn open(process: u32, address: u64, token: u64) -> io::Result<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, memory)| memory.strong_count() > 0);
        let known = open.iter().filter(|(known, _)| *known == process);
        // The number may have been given to another process since, whose memory does not contain the token.
        let shared = { known }.filter_map(|(_, memory)| memory.upgrade());
        let mem = match { shared }.find(|mem| has(mem, address, token)) {
            Some(mem) => mem,
            None => {
                let path = format!("/proc/{process}/mem");
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)?;
                let mem = Arc::new(file.into());
                if !has(&mem, address, token) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                open.push((process, Arc::downgrade(&mem)));
                mem
            }
        };
        let mut opened = Self {
            mem,
            process: process as i32,
            token: (address, token),
            by_number: false,
        };
        opened.by_number = opened.read_by_number(address, &[], 0);
        Ok(opened)
    }

    /// Writes all of `from` in ascending order, the last byte last. False where not all of it was written.
    pub(crate) fn write(&self, address: u64, from: Gather<'_>) -> bool {
        let mut pieces = [EMPTY; PIECES_MAX + 1];
        let Some((mut count, length)) = list(from, &mut pieces) else {
            return false;
        };
        if self.by_number && length > MEM_MAX {
            count = split_last(&mut pieces, count);
            if CALLS_KEEP_ORDER {
                return self.write_by_number(address, &pieces[..count], length);
            }
            let (last, before) = (&pieces[count - 1], length - 1);
            return self.write_by_number(address, &pieces[..count - 1], before)
                && self.write_pieces(address + before as u64, std::slice::from_ref(last)) == 1;
        }
        // A copy of up to eight aligned bytes is one store. In a longer one the kernel may store the end
        // first.
        if length > 8 || !address.is_multiple_of(8) {
            count = split_last(&mut pieces, count);
        }
        self.write_pieces(address, &pieces[..count]) == length as isize
    }

    /// Writes pieces one after the other, each as if by a call of its own. Returns the bytes written, or -1.
    fn write_pieces(&self, address: u64, pieces: &[libc::iovec]) -> isize {
        let (fd, address) = (self.mem.as_raw_fd(), address as i64);
        // SAFETY: the pieces are memory that the device checked against regions of ours, or its own; the
        // kernel checks both sides.
        unsafe {
            match pieces {
                [one] => libc::pwrite(fd, one.iov_base, one.iov_len, address),
                _ => libc::pwritev(fd, pieces.as_ptr(), pieces.len() as i32, address),
            }
        }
    }

    /// Reads all of `into`. False where not all of it was read.
    pub(crate) fn read(&self, address: u64, into: Gather<'_>) -> bool {
        let mut pieces = [EMPTY; PIECES_MAX + 1];
        let Some((count, length)) = list(into, &mut pieces) else {
            return false;
        };
        if self.by_number && length > MEM_MAX {
            return self.read_by_number(address, &pieces[..count], length);
        }
        let (fd, address) = (self.mem.as_raw_fd(), address as i64);
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

    /// Writes the token over itself, then the pieces, and their last byte last.
    fn write_by_number(&self, address: u64, pieces: &[libc::iovec], length: usize) -> bool {
        let token = self.token.1.to_ne_bytes();
        let local = behind(element(token.as_ptr() as u64, token.len()), pieces);
        let remote = [element(self.token.0, token.len()), element(address, length)];
        self.write_elements(&local[..=pieces.len()], &remote) == Some(length)
    }

    /// Executes WRITEs one after the other, by one system call where that keeps their order, the last byte of
    /// each last. Returns how many were executed, from the first on; part of the next one may be written.
    pub(crate) fn write_all(&self, copies: &[Copy]) -> usize {
        if !CALLS_KEEP_ORDER {
            let is_written =
                |copy: &&Copy| self.write(copy.theirs, Gather::Pieces(&[copy.piece()]));
            return copies.iter().take_while(is_written).count();
        }
        let token = self.token.1.to_ne_bytes();
        let mut local = [EMPTY; 2 * RUN_MAX + 1];
        let mut remote = [EMPTY; RUN_MAX + 1];
        local[0] = element(token.as_ptr() as u64, token.len());
        remote[0] = element(self.token.0, token.len());
        let places = local[1..]
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(&mut remote[1..]);
        for (
            Copy {
                ours,
                theirs,
                length,
            },
            (local, remote),
        ) in copies.iter().zip(places)
        {
            let head = u64::from(*length) - 1;
            *local = [element(*ours, head as usize), element(*ours + head, 1)];
            *remote = element(*theirs, *length as usize);
        }
        let count = copies.len().min(RUN_MAX);
        if !self.by_number {
            return 0;
        }
        let moved = self.write_elements(&local[..=2 * count], &remote[..=count]);
        moved.map_or(0, |moved| whole(copies, moved))
    }

    /// Executes READs one after the other, by one system call where that keeps their order. Returns how many
    /// were executed, from the first on; part of the next one may be read.
    pub(crate) fn read_all(&self, copies: &[Copy]) -> usize {
        if CALLS_KEEP_ORDER {
            return self.fetch_all(copies);
        }
        let is_read = |copy: &&Copy| self.read(copy.theirs, Gather::Pieces(&[copy.piece()]));
        copies.iter().take_while(is_read).count()
    }

    /// Reads payloads, in any order, by one system call. Returns how many were read, from the first on; part
    /// of the next one may be read.
    pub(crate) fn fetch_all(&self, copies: &[Copy]) -> usize {
        let mut found = [0_u8; 8];
        let mut local = [EMPTY; RUN_MAX + 1];
        let mut remote = [EMPTY; RUN_MAX + 1];
        local[0] = element(found.as_mut_ptr() as u64, found.len());
        remote[0] = element(self.token.0, found.len());
        for (
            Copy {
                ours,
                theirs,
                length,
            },
            place,
        ) in copies.iter().zip(1..=RUN_MAX)
        {
            local[place] = element(*ours, *length as usize);
            remote[place] = element(*theirs, *length as usize);
        }
        let count = copies.len().min(RUN_MAX);
        if !self.by_number {
            return 0;
        }
        let moved = self.read_elements(&local[..=count], &remote[..=count]);
        if u64::from_ne_bytes(found) != self.token.1 {
            return 0;
        }
        moved.map_or(0, |moved| whole(copies, moved))
    }

    /// Writes elements of which the first is the token. Returns the bytes that were written behind it. The
    /// kernel copies element by element of ours, in ascending order, so a last byte that is one of them is
    /// stored last; as an element of the other process it would cost as much as a page.
    fn write_elements(&self, local: &[libc::iovec], remote: &[libc::iovec]) -> Option<usize> {
        let (count, parts) = (local.len() as u64, remote.len() as u64);
        // SAFETY: the elements are memory that the device checked against regions of ours, or its own; the
        // kernel checks both sides.
        let moved = unsafe {
            libc::process_vm_writev(
                self.process,
                local.as_ptr(),
                count,
                remote.as_ptr(),
                parts,
                0,
            )
        };
        usize::try_from(moved).ok()?.checked_sub(TOKEN_BYTES)
    }

    /// Reads elements of which the first is the token. Returns the bytes that were read behind it.
    fn read_elements(&self, local: &[libc::iovec], remote: &[libc::iovec]) -> Option<usize> {
        let (count, parts) = (local.len() as u64, remote.len() as u64);
        // SAFETY: the elements are memory that the device checked against regions of ours, and that may be
        // written; the kernel checks both sides.
        let moved = unsafe {
            libc::process_vm_readv(
                self.process,
                local.as_ptr(),
                count,
                remote.as_ptr(),
                parts,
                0,
            )
        };
        usize::try_from(moved).ok()?.checked_sub(TOKEN_BYTES)
    }

    /// Reads the token, then the pieces. False also where the memory is another process's.
    fn read_by_number(&self, address: u64, pieces: &[libc::iovec], length: usize) -> bool {
        let mut found = [0_u8; 8];
        let local = behind(element(found.as_mut_ptr() as u64, found.len()), pieces);
        let remote = [element(self.token.0, found.len()), element(address, length)];
        let moved = self.read_elements(&local[..=pieces.len()], &remote);
        moved == Some(length) && u64::from_ne_bytes(found) == self.token.1
    }
}

/// How many copies were done, if so many bytes were moved.
fn whole(copies: &[Copy], mut moved: usize) -> usize {
    let is_whole = |copy: &&Copy| match moved.checked_sub(copy.length as usize) {
        Some(rest) => {
            moved = rest;
            true
        }
        None => false,
    };
    copies.iter().take_while(is_whole).count()
}

const EMPTY: libc::iovec = element(0, 0);

const fn element(address: u64, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    }
}

/// Whether `token` is at `address`.
fn has(mem: &OwnedFd, address: u64, token: u64) -> bool {
    let mut found = [0; 8];
    let piece = libc::iovec {
        iov_base: found.as_mut_ptr().cast(),
        iov_len: found.len(),
    };
    // SAFETY: one piece of eight writable bytes.
    let read = unsafe { libc::preadv(mem.as_raw_fd(), &piece, 1, address as i64) };
    read == found.len() as isize && u64::from_ne_bytes(found) == token
}

/// The pieces, after a first element.
fn behind(first: libc::iovec, pieces: &[libc::iovec]) -> [libc::iovec; PIECES_MAX + 2] {
    let mut all = [EMPTY; PIECES_MAX + 2];
    all[0] = first;
    all[1..=pieces.len()].copy_from_slice(pieces);
    all
}

fn list(gather: Gather<'_>, pieces: &mut [libc::iovec; PIECES_MAX + 1]) -> Option<(usize, usize)> {
    let one = |bytes: &[u8]| element(bytes.as_ptr() as u64, bytes.len());
    let of = |piece: &Piece| element(piece.address, piece.length as usize);
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
            let places = pieces
                .get_mut(..list.len())
                .filter(|places| places.len() <= PIECES_MAX)?;
            places
                .iter_mut()
                .zip(list)
                .for_each(|(place, piece)| *place = of(piece));
            Some((list.len(), places.iter().map(|piece| piece.iov_len).sum()))
        }
    }
}

/// Splits the last byte off as a separate element.
fn split_last(pieces: &mut [libc::iovec; PIECES_MAX + 1], count: usize) -> usize {
    match count.checked_sub(1).map(|last| pieces[last]) {
        Some(last) if last.iov_len > 1 => {
            let head = last.iov_len - 1;
            pieces[count - 1].iov_len = head;
            // SAFETY: within the piece.
            let iov_base = unsafe { last.iov_base.byte_add(head) };
            pieces[count] = libc::iovec {
                iov_base,
                iov_len: 1,
            };
            count + 1
        }
        _ => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(token: &u64) -> OtherProcess {
        let memory =
            OtherProcess::open(std::process::id(), std::ptr::from_ref(token) as u64, *token)
                .unwrap();
        assert!(memory.by_number);
        memory
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece {
            address: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            backing: Backing::Pinned,
        }
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
        assert!(
            !memory.write(4096, Gather::Inline(&[1])),
            "nothing is mapped there"
        );
        let null = Piece {
            backing: Backing::Null,
            ..piece(&back)
        };
        assert!(
            !memory.read(address, Gather::Pieces(&[null])),
            "a null region has no memory"
        );
    }

    #[test]
    fn long_requests_are_moved_as_short_ones() {
        let (token, mut target) = (0x1234_5678_9abc_u64, vec![0_u8; 5 * MEM_MAX]);
        let source: Vec<u8> = (0..3 * MEM_MAX).map(|byte| (byte % 251) as u8).collect();
        let address = target.as_mut_ptr() as u64;
        for by_number in [true, false] {
            let memory = OtherProcess {
                by_number,
                ..own(&token)
            };
            let pieces = [
                piece(&source[..7]),
                piece(&source[7..MEM_MAX]),
                piece(&source[MEM_MAX..]),
            ];
            assert!(memory.write(address + 5, Gather::Pieces(&pieces)));
            let target = std::hint::black_box(&mut target);
            assert_eq!(
                (&target[5..5 + source.len()], target[5 + source.len()]),
                (&source[..], 0)
            );
            let back = vec![0_u8; source.len()];
            assert!(memory.read(
                address + 5,
                Gather::Pieces(&[piece(&back[..9000]), piece(&back[9000..])])
            ));
            assert_eq!(std::hint::black_box(&back), &source);
            target.fill(0);
        }
    }

    #[test]
    fn requests_are_moved_together() {
        const LENGTH: usize = 10_000;
        let (token, mut target) = (0x1234_5678_9abc_u64, vec![0_u8; 3 * LENGTH]);
        let source: Vec<u8> = (0..3 * LENGTH).map(|byte| (byte % 251) as u8).collect();
        let memory = own(&token);
        let copies = |ours: &[u8], theirs: u64| {
            let at = |part: usize| (part * LENGTH) as u64;
            let ours = ours.as_ptr() as u64;
            [0, 1, 2].map(|part| Copy {
                ours: ours + at(part),
                theirs: theirs + at(part),
                length: LENGTH as u32,
            })
        };
        let theirs = target.as_mut_ptr() as u64;
        assert_eq!(memory.write_all(&copies(&source, theirs)), 3);
        assert_eq!(std::hint::black_box(&target), &source);
        let back = vec![0_u8; 3 * LENGTH];
        let mut reads = copies(&back, theirs);
        assert_eq!(memory.read_all(&reads), 3);
        assert_eq!(std::hint::black_box(&back), &source);
        // The entries before one that cannot be executed are executed.
        reads[1].theirs = 4096;
        assert_eq!(memory.read_all(&reads), 1);
        let zeros = vec![0_u8; 3 * LENGTH];
        let mut writes = copies(&zeros, theirs);
        writes[2].theirs = 4096;
        assert_eq!(memory.write_all(&writes), 2);
        assert_eq!(
            std::hint::black_box(&target)[..2 * LENGTH],
            zeros[..2 * LENGTH]
        );
        assert_eq!(target[2 * LENGTH..], source[2 * LENGTH..]);
        assert_eq!(
            OtherProcess {
                by_number: false,
                ..own(&token)
            }
            .write_all(&writes),
            0
        );
        let other = OtherProcess {
            token: (4096, token),
            ..own(&token)
        };
        assert_eq!(
            (other.write_all(&writes), other.read_all(&reads)),
            (0, 0),
            "it has no token there"
        );
    }

    /// The process with a number may be another one than when the memory was opened.
    #[test]
    fn a_process_that_has_no_token_there_is_not_written() {
        let (token, target) = (7_u64, [1_u8; 2 * MEM_MAX]);
        let address = std::hint::black_box(&target).as_ptr() as u64;
        let zeros = [0_u8; 2 * MEM_MAX];
        let other = OtherProcess {
            token: (4096, token),
            ..own(&token)
        };
        assert!(!other.write(address, Gather::Pieces(&[piece(&zeros)])));
        assert_eq!(std::hint::black_box(&target), &[1; 2 * MEM_MAX]);
        let changed = OtherProcess {
            token: (std::ptr::from_ref(&token) as u64, 8),
            ..own(&token)
        };
        assert!(
            !changed.read(address, Gather::Pieces(&[piece(&zeros)])),
            "another token is there"
        );
    }

    #[test]
    fn a_process_without_the_token_is_refused() {
        let token = 5u64;
        let address = std::ptr::from_ref(&token) as u64;
        assert!(OtherProcess::open(std::process::id(), address, 6).is_err());
        assert!(OtherProcess::open(1 << 30, address, 5).is_err());
    }
}
