//! io_uring behind an interface that owns the memory that the kernel uses: a submitted buffer is returned
//! with its completion, and dropping a ring waits for the kernel.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;

use super::file::{Clear, mode};
use buffer::Buffer;

/// Pause before the kernel is asked again after it was short of memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

/// An operation for the kernel.
#[derive(Debug)]
pub enum Operation {
    /// Read into the first `length` bytes of the buffer.
    Read {
        /// The buffer to read into.
        buffer: Buffer,
        /// How many bytes.
        length: usize,
    },
    /// Write the first `length` bytes of the buffer.
    Write {
        /// The buffer with the data.
        buffer: Buffer,
        /// How many bytes.
        length: usize,
        /// Whether the data have to be on the medium before the operation completes.
        durable: bool,
    },
    /// Flush: all completed writes are on the medium.
    Flush,
    /// Clear a range.
    Clear {
        /// How to clear it.
        how: Clear,
        /// The length of the range in bytes.
        length: u64,
    },
}

/// A completed operation.
#[derive(Debug)]
pub struct Completion {
    /// The token that the caller passed with the operation.
    pub token: u64,
    /// The number of bytes that were transferred, or the error.
    pub result: io::Result<usize>,
    /// The buffer of the operation.
    pub buffer: Option<Buffer>,
}

struct InFlight {
    token: u64,
    buffer: Option<Buffer>,
    // The file stays open until the operation completes.
    _file: Arc<File>,
}

/// A ring, and the operations that the kernel executes.
pub struct Ring {
    ring: IoUring,
    in_flight: Slab<InFlight>,
    entries: usize,
    unsubmitted: usize,
}

impl Ring {
    /// A ring for `entries` operations at once.
    ///
    /// # Errors
    /// When the kernel has no io_uring, or refuses it to this process.
    pub fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().build(entries)?;
        let entries = ring.params().sq_entries() as usize;
        Ok(Self {
            ring,
            in_flight: Slab::with_capacity(entries),
            entries,
            unsubmitted: 0,
        })
    }

    /// Whether another operation fits.
    pub fn has_room(&self) -> bool {
        self.in_flight.len() < self.entries
    }

    /// The number of operations that have not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of operations that are queued for the next [`Ring::submit`].
    pub fn unsubmitted(&self) -> usize {
        self.unsubmitted
    }

    /// Queues an operation for the next [`Ring::submit`]. The offset is in bytes.
    ///
    /// # Errors
    /// The operation, when the ring is full.
    pub fn push(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        operation: Operation,
        token: u64,
    ) -> Result<(), Operation> {
        if !self.has_room() {
            return Err(operation);
        }
        let slot = self.in_flight.vacant_entry();
        let fd = types::Fd(file.as_raw_fd());
        let (entry, buffer) = entry(fd, offset, operation);
        let entry = entry.user_data(slot.key() as u64);
        // SAFETY: descriptor and buffer live in the slot until the kernel has completed the entry, and the
        // buffer's memory does not move with it. There is room: no more are in flight than there are entries.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "as many entries as operations in flight");
        slot.insert(InFlight {
            token,
            buffer,
            _file: Arc::clone(file),
        });
        self.unsubmitted += 1;
        Ok(())
    }

    /// Submits the queued operations to the kernel.
    ///
    /// # Errors
    /// The error of `io_uring_enter`.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.unsubmitted > 0 {
            match self.ring.submit() {
                Ok(submitted) => {
                    self.unsubmitted = self.unsubmitted.saturating_sub(submitted.max(1))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next completed operation.
    pub fn completed(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let InFlight { token, buffer, .. } =
            self.in_flight.try_remove(entry.user_data() as usize)?;
        let result = match usize::try_from(entry.result()) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        };
        Some(Completion {
            token,
            result,
            buffer,
        })
    }

    /// Waits until an operation completes, or the kernel is short of memory; the caller repeats it while
    /// there are operations.
    ///
    /// # Errors
    /// The error of `io_uring_enter`.
    pub fn wait(&mut self) -> io::Result<()> {
        match self.submit().and_then(|()| self.ring.submit_and_wait(1)) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    std::thread::sleep(SHORTAGE_PAUSE);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }
}

fn entry(fd: types::Fd, offset: u64, operation: Operation) -> (squeue::Entry, Option<Buffer>) {
    match operation {
        Operation::Read { mut buffer, length } => {
            let length = length.min(buffer.len());
            let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), length as u32)
                .offset(offset)
                .build();
            (entry, Some(buffer))
        }
        Operation::Write {
            buffer,
            length,
            durable,
        } => {
            let length = length.min(buffer.len());
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            let entry = opcode::Write::new(fd, buffer.as_ptr(), length as u32).offset(offset);
            (entry.rw_flags(flags).build(), Some(buffer))
        }
        Operation::Flush => (
            opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            None,
        ),
        Operation::Clear { how, length } => (
            opcode::Fallocate::new(fd, length)
                .offset(offset)
                .mode(mode(how))
                .build(),
            None,
        ),
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.in_flight.is_empty() {
            if self.wait().is_err() {
                // The kernel may still write to the buffers: leaking them is the only safe choice.
                std::mem::forget(std::mem::take(&mut self.in_flight));
                return;
            }
            while self.completed().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_are_read() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut ring = Ring::new(4).unwrap();
        let mut buffer = Buffer::zeroed(4096);
        buffer.fill(7);
        let run = |ring: &mut Ring, operation| {
            ring.push(&file, 8192, operation, 5).unwrap();
            ring.wait().unwrap();
            ring.completed().unwrap()
        };
        let written = run(
            &mut ring,
            Operation::Write {
                buffer,
                length: 4096,
                durable: true,
            },
        );
        assert_eq!((written.token, written.result.unwrap()), (5, 4096));
        run(&mut ring, Operation::Flush).result.unwrap();
        let buffer = Buffer::zeroed(4096);
        let read = run(
            &mut ring,
            Operation::Read {
                buffer,
                length: 4096,
            },
        );
        assert_eq!(read.buffer.unwrap()[..], [7; 4096]);
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn a_full_ring_returns_the_operation() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut ring = Ring::new(2).unwrap();
        let mut pushed = 0;
        while ring.push(&file, 0, Operation::Flush, 0).is_ok() {
            pushed += 1;
        }
        assert_eq!((pushed, ring.has_room()), (ring.entries, false));
    }
}
