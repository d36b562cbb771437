//! Application memory: real addresses, which the device has checked against a region before each call.
//!
//! A region's owner promises with its registration that the range stays mapped until it is deregistered
//! (`ibv_reg_mr` says the same); [`pin`] checks that it is at that moment. On-demand regions promise nothing:
//! their bytes go through the kernel, which answers with an error where there is no page.
//!
//! Some programs unmap memory before they deregister it: UCX's registration cache deregisters what was
//! unmapped when it is used next. Others protect it, or truncate the file that is mapped there. An adapter
//! goes on to access the pages, which it has pinned. Here all copies are made with a [`Guard`], also those of
//! the program's own threads, which serve requests of peers when they poll: the request fails, and the
//! program goes on.

use super::guarded::Guard;
use super::shared_files;
use crate::faults;
use os::page::page_size;
use rnic::{Backing, Fault, Memory, Payload, Piece};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

/// The guard of copies to and from the program's memory, which may be unmapped meanwhile. None where the
/// system refuses the signal handlers, or the processor has no such code: an access to what is not there ends
/// the process then.
#[inline]
fn guard() -> Option<Guard> {
    static GUARD: OnceLock<Option<Guard>> = OnceLock::new();
    *GUARD.get_or_init(|| Guard::new().ok())
}

/// Has the process guarded before its first copy, which a program measures.
pub(crate) fn guard_this_process() {
    guard();
}

/// The memory of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMemory;

impl Memory for ProcessMemory {
    #[inline]
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault> {
        let (bytes, length) = match payload {
            Payload::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Payload::Foreign { address, length } => (address as *const u8, length as usize),
            Payload::Phantom(_) => return Err(Fault::Unmapped),
        };
        let length = length.min(piece.length as usize);
        if length == 0 {
            return Ok(());
        }
        match piece.backing {
            Backing::Pinned => {}
            Backing::OnDemand => {
                return through_kernel(
                    piece.address,
                    bytes.cast_mut(),
                    length,
                    Direction::ToMemory,
                );
            }
            Backing::Null => return Ok(()),
        }
        let target = piece.address as *mut u8;
        if let Some(guard) = guard() {
            // SAFETY: the target is of a region that is registered, mapped or no longer mapped, which the
            // guard finds; the bytes are in a receive buffer of ours or in a record that is not released yet.
            return if unsafe { guard.copy(target, bytes, length) } {
                Ok(())
            } else {
                Err(Fault::Unmapped)
            };
        }
        // SAFETY: the device checked the range against a region whose owner keeps it mapped and writable; the
        // bytes are in a receive buffer of ours, or in a record of a shared-memory channel that is not
        // released yet, so they do not overlap. The program may read at the same time, as it may with a real
        // device: it looks at the last byte, which is stored with release order after the others.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes, target, length - 1);
            (*target.add(length - 1).cast::<AtomicU8>())
                .store(*bytes.add(length - 1), Ordering::Release);
        }
        Ok(())
    }

    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault> {
        let cell = cell(piece)?;
        match guard() {
            // SAFETY: an aligned address in a registered region; the guard finds out if it is unmapped.
            Some(guard) => unsafe { guard.fetch_add(cell.cast(), add) }.ok_or(Fault::Unmapped),
            // SAFETY: aligned, and in a registered region, whose owner keeps it mapped and writable.
            None => Ok(unsafe { (*cell).fetch_add(add, Ordering::AcqRel) }),
        }
    }

    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault> {
        let cell = cell(piece)?;
        if let Some(guard) = guard() {
            // SAFETY: an aligned address in a registered region; the guard finds out if it is unmapped.
            return unsafe { guard.compare_swap(cell.cast(), compare, swap) }
                .ok_or(Fault::Unmapped);
        }
        // SAFETY: aligned, and in a registered region, whose owner keeps it mapped and writable.
        let result =
            unsafe { (*cell).compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) };
        Ok(result.unwrap_or_else(|was| was))
    }

    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault> {
        let cell = cell(piece)?;
        if let Some(guard) = guard() {
            // SAFETY: an aligned address in a registered region; the guard finds out if it is unmapped. The
            // bytes are ours.
            return if unsafe { guard.copy(cell.cast(), bytes.as_ptr(), 8) } {
                Ok(())
            } else {
                Err(Fault::Unmapped)
            };
        }
        // SAFETY: aligned, and in a registered region, whose owner keeps it mapped and writable.
        unsafe { (*cell).store(u64::from_ne_bytes(bytes), Ordering::Release) };
        Ok(())
    }

    fn keep(&mut self, payload: Payload<'_>) -> Box<[u8]> {
        match payload {
            Payload::Bytes(bytes) => bytes.into(),
            Payload::Phantom(length) => vec![0; length as usize].into_boxed_slice(),
            Payload::Foreign { address, length } => {
                let mut kept = vec![0; length as usize].into_boxed_slice();
                // SAFETY: a record of a shared-memory channel that is not released yet, of that length; the
                // other side may write there meanwhile, and then harms its own message.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        address as *const u8,
                        kept.as_mut_ptr(),
                        kept.len(),
                    )
                };
                kept
            }
        }
    }
}

/// The eight bytes of an atomic. The device refuses addresses that are not multiples of eight; one that
/// arrives is a fault. An on-demand page is requested first.
fn cell(piece: Piece) -> Result<*mut AtomicU64, Fault> {
    let is_there = piece.address != 0 && piece.backing != Backing::Null;
    if piece.length < 8 || !piece.address.is_multiple_of(8) || !is_there {
        return Err(Fault::Unmapped);
    }
    if piece.backing == Backing::OnDemand {
        let mut there = [0u8; 8];
        through_kernel(
            piece.address,
            there.as_mut_ptr(),
            there.len(),
            Direction::FromMemory,
        )?;
    }
    Ok(piece.address as *mut AtomicU64)
}

/// Reads a piece into `out`, which has the same length.
pub(crate) fn read(piece: &Piece, out: &mut [u8]) -> Result<(), Fault> {
    let length = out.len().min(piece.length as usize);
    match piece.backing {
        Backing::Pinned => {}
        Backing::OnDemand => {
            return through_kernel(
                piece.address,
                out.as_mut_ptr(),
                length,
                Direction::FromMemory,
            );
        }
        Backing::Null => {
            out[..length].fill(0);
            return Ok(());
        }
    }
    if let Some(guard) = guard() {
        // SAFETY: the source is of a region that is registered, mapped or no longer mapped, which the guard
        // finds; `out` is a staging buffer of ours.
        let copied = unsafe { guard.copy(out.as_mut_ptr(), piece.address as *const u8, length) };
        return if copied { Ok(()) } else { Err(Fault::Unmapped) };
    }
    // SAFETY: the device checked the range against a region whose owner keeps it mapped; `out` is a staging
    // buffer of ours. The program may write at the same time: then what is sent is what it had at some
    // moment, as with a real device.
    unsafe { std::ptr::copy_nonoverlapping(piece.address as *const u8, out.as_mut_ptr(), length) };
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToMemory,
    FromMemory,
}

fn through_kernel(
    address: u64,
    ours: *mut u8,
    length: usize,
    direction: Direction,
) -> Result<(), Fault> {
    if faults::are_lost(address, length as u64) {
        return Err(Fault::Unmapped);
    }
    let local = libc::iovec {
        iov_base: ours.cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: length,
    };
    // SAFETY: `ours` is `length` bytes of ours (only read when writing to memory); the kernel checks the
    // other side.
    let moved = unsafe {
        let pid = libc::getpid();
        match direction {
            Direction::ToMemory => libc::process_vm_writev(pid, &local, 1, &remote, 1, 0),
            Direction::FromMemory => libc::process_vm_readv(pid, &local, 1, &remote, 1, 0),
        }
    };
    if moved == length as isize {
        Ok(())
    } else {
        Err(Fault::Unmapped)
    }
}

/// Reasons why memory cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// EFAULT: not all of it is mapped, or not writable where that is requested.
    #[error("the memory is not mapped, or not writable although local write access is asked for")]
    Fault,
    /// The kernel refused for another reason, such as no memory.
    #[error("the kernel cannot provide the pages of the memory: {0}")]
    Kernel(#[source] io::Error),
}

/// Bytes of a large page.
const LARGE_PAGE: u64 = 2 << 20;
/// Limit of large pages that one registration makes of small ones, which takes 0.3 to 0.8 ms for each.
const LARGE_PAGES_MAX: u64 = 16;

/// Faults in the pages of a range, as pinning would, and checks that they are mapped. Nothing is locked:
/// limits on locked memory do not apply to a software device.
///
/// # Errors
/// [`PinError::Fault`] when the range is not all mapped with the requested rights.
pub fn pin(address: u64, length: u64, writable: bool) -> Result<(), PinError> {
    if length == 0 {
        return Ok(());
    }
    let start = address & !(page_size() - 1);
    let end = address
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(page_size()));
    let end = end.ok_or(PinError::Fault)?;
    let populate = |advice| advise(start, end, advice);
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    let Err(error) = populate(advice) else {
        use_large_pages(address, address + length);
        return Ok(());
    };
    match error.raw_os_error() {
        // Mapped without write access: it can be populated for reading. Device memory cannot be populated at
        // all, and kernels before 5.14 do not know the advice: both are taken as they are.
        Some(libc::EINVAL) if !writable || populate(libc::MADV_POPULATE_READ).is_err() => Ok(()),
        Some(libc::EFAULT | libc::ENOMEM | libc::EINVAL | libc::EPERM | libc::EACCES) => {
            Err(PinError::Fault)
        }
        _ => Err(PinError::Kernel(error)),
    }
}

/// Has the kernel put the first part of a range in large pages: its copies between processes look up each
/// page, and move twice as many bytes per second out of large ones. Memory of which the program, or the
/// system, has said that it should have small pages keeps them, and so do shared mappings of files.
fn use_large_pages(start: u64, end: u64) {
    static ARE_USED: LazyLock<bool> = LazyLock::new(|| {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        setting.is_ok_and(|setting| !setting.contains("[never]"))
    });
    let first = start.next_multiple_of(LARGE_PAGE);
    let last = (end & !(LARGE_PAGE - 1)).min(first + LARGE_PAGES_MAX * LARGE_PAGE);
    if first < last && *ARE_USED && !shared_files::is_shared(first) {
        // Where the kernel has no large page, or does not know the advice (before 6.1), small ones stay.
        let _ = advise(first, last, libc::MADV_COLLAPSE);
    }
}

/// Advice about pages, which changes no contents.
fn advise(start: u64, end: u64, advice: i32) -> io::Result<()> {
    // SAFETY: the advices used here change no contents; the kernel checks the range.
    match unsafe { libc::madvise(start as *mut libc::c_void, (end - start) as usize, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(address: u64, length: u32, backing: Backing) -> Piece {
        Piece {
            address,
            length,
            backing,
        }
    }

    #[test]
    fn large_pages_change_no_contents() {
        let length = 3 * LARGE_PAGE as usize;
        let bytes: Vec<u32> = (0..length as u32 / 4).collect();
        pin(bytes.as_ptr() as u64, length as u64, true).unwrap();
        assert!(
            std::hint::black_box(&bytes)
                .iter()
                .enumerate()
                .all(|(index, word)| *word == index as u32)
        );
        // Part of a large page can be given back.
        let middle = (bytes.as_ptr() as u64 + LARGE_PAGE).next_multiple_of(page_size());
        advise(middle, middle + page_size(), libc::MADV_DONTNEED).unwrap();
        let first = (middle - bytes.as_ptr() as u64) as usize / 4;
        assert_eq!(
            std::hint::black_box(&bytes)[first - 1..=first],
            [first as u32 - 1, 0]
        );
    }

    #[test]
    fn bytes_go_both_ways() {
        for backing in [Backing::Pinned, Backing::OnDemand] {
            let target = [0u8; 100];
            let bytes: Vec<u8> = (0..100).collect();
            let place = piece(target.as_ptr() as u64, 100, backing);
            ProcessMemory.write(place, Payload::Bytes(&bytes)).unwrap();
            let mut back = [0u8; 100];
            read(&place, &mut back).unwrap();
            assert_eq!(back[..], bytes[..]);
        }
    }

    #[test]
    fn a_missing_page_behind_on_demand_memory_is_a_fault() {
        let place = piece(4096, 8, Backing::OnDemand);
        assert_eq!(
            ProcessMemory.write(place, Payload::Bytes(&[0; 8])),
            Err(Fault::Unmapped)
        );
        assert_eq!(read(&place, &mut [0; 8]), Err(Fault::Unmapped));
        assert_eq!(ProcessMemory.fetch_add(place, 1), Err(Fault::Unmapped));
    }

    #[test]
    fn a_null_region_takes_everything_and_gives_zeros() {
        let place = piece(4096, 8, Backing::Null);
        ProcessMemory.write(place, Payload::Bytes(&[5; 8])).unwrap();
        let mut back = [7; 8];
        read(&place, &mut back).unwrap();
        assert_eq!(back, [0; 8]);
        assert_eq!(ProcessMemory.store(place, [1; 8]), Err(Fault::Unmapped));
    }

    #[test]
    fn atomics_return_what_was_there() {
        let value = AtomicU64::new(5);
        let place = piece(value.as_ptr() as u64, 8, Backing::Pinned);
        assert_eq!(ProcessMemory.fetch_add(place, 3), Ok(5));
        assert_eq!(ProcessMemory.compare_swap(place, 8, 1), Ok(8));
        assert_eq!(ProcessMemory.compare_swap(place, 8, 2), Ok(1));
        assert_eq!(value.load(Ordering::Relaxed), 1);
        assert_eq!(
            ProcessMemory.fetch_add(piece(place.address + 4, 8, Backing::Pinned), 1),
            Err(Fault::Unmapped)
        );
    }

    #[test]
    fn only_mapped_memory_can_be_pinned() {
        let buffer = vec![0u8; 10_000];
        assert!(pin(buffer.as_ptr() as u64, 10_000, true).is_ok());
        assert!(matches!(pin(4096, 4096, false), Err(PinError::Fault)));
        assert!(matches!(
            pin(pin as *const () as u64, 1, true),
            Err(PinError::Fault)
        ));
        assert!(pin(pin as *const () as u64, 1, false).is_ok());
        assert!(matches!(
            pin(u64::MAX - 5, 100, false),
            Err(PinError::Fault)
        ));
    }
}
