//! io_uring behind an interface that owns what the kernel works on: a buffer that was submitted comes back
//! with its completion, and a ring that is dropped waits for the kernel first.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;

use super::file::{Clear, mode};
use rdma::Buffer;

/// What the kernel is asked to do.
#[derive(Debug)]
pub enum Operation {
    /// Read into the first `length` bytes of the buffer.
    Read {
        /// Where to.
        buffer: Buffer,
        /// Bytes.
        length: usize,
    },
    /// Write the first `length` bytes of the buffer.
    Write {
        /// Where from.
        buffer: Buffer,
        /// Bytes.
        length: usize,
        /// Whether they are on the medium before it completes.
        durable: bool,
    },
    /// All writes that completed before are on the medium.
    Flush,
    /// Clear a range.
    Clear {
        /// What becomes of it.
        how: Clear,
        /// Bytes.
        length: u64,
    },
}

/// What the kernel did.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name for the operation.
    pub token: u64,
    /// Bytes that were read or written, or why not.
    pub result: io::Result<usize>,
    /// The operation's buffer.
    pub buffer: Option<Buffer>,
}

struct InFlight {
    token: u64,
    buffer: Option<Buffer>,
    // Open until the kernel has finished.
    _file: Arc<File>,
}

/// A ring, and everything the kernel has of it.
pub struct Ring {
    ring: IoUring,
    in_flight: Slab<InFlight>,
    entries: usize,
    unsubmitted: usize,
}

impl Ring {
    /// A ring for so many operations at once.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or does not let this process use it.
    pub fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().build(entries)?;
        let entries = ring.params().sq_entries() as usize;
        Ok(Self { ring, in_flight: Slab::with_capacity(entries), entries, unsubmitted: 0 })
    }

    /// Whether another operation has room.
    pub fn has_room(&self) -> bool {
        self.in_flight.len() < self.entries
    }

    /// How many operations have not come back.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Queues an operation; [`Ring::submit`] hands it over. The offset is in bytes.
    ///
    /// # Errors
    /// The operation, when there is no room for it.
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
        slot.insert(InFlight { token, buffer, _file: Arc::clone(file) });
        self.unsubmitted += 1;
        Ok(())
    }

    /// Hands what was queued to the kernel.
    ///
    /// # Errors
    /// As `io_uring_enter`.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.unsubmitted > 0 {
            match self.ring.submit() {
                Ok(submitted) => self.unsubmitted = self.unsubmitted.saturating_sub(submitted.max(1)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next operation that the kernel has finished.
    pub fn completed(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let InFlight { token, buffer, .. } = self.in_flight.try_remove(entry.user_data() as usize)?;
        let result = match usize::try_from(entry.result()) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        };
        Some(Completion { token, result, buffer })
    }

    /// Waits until an operation has finished.
    ///
    /// # Errors
    /// As `io_uring_enter`.
    pub fn wait(&mut self) -> io::Result<()> {
        self.submit()?;
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn entry(fd: types::Fd, offset: u64, operation: Operation) -> (squeue::Entry, Option<Buffer>) {
    match operation {
        Operation::Read { mut buffer, length } => {
            let length = length.min(buffer.len());
            let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), length as u32).offset(offset).build();
            (entry, Some(buffer))
        }
        Operation::Write { buffer, length, durable } => {
            let length = length.min(buffer.len());
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            let entry = opcode::Write::new(fd, buffer.as_ptr(), length as u32).offset(offset);
            (entry.rw_flags(flags).build(), Some(buffer))
        }
        Operation::Flush => (opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(), None),
        Operation::Clear { how, length } => {
            (opcode::Fallocate::new(fd, length).offset(offset).mode(mode(how)).build(), None)
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight.len()).finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.in_flight.is_empty() {
            if self.wait().is_err() {
                // The kernel may still write to the buffers: memory that is lost does no harm.
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
    fn what_was_written_is_read() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut ring = Ring::new(4).unwrap();
        let mut buffer = Buffer::zeroed(4096);
        buffer.fill(7);
        let run = |ring: &mut Ring, operation| {
            ring.push(&file, 8192, operation, 5).unwrap();
            ring.wait().unwrap();
            ring.completed().unwrap()
        };
        let written = run(&mut ring, Operation::Write { buffer, length: 4096, durable: true });
        assert_eq!((written.token, written.result.unwrap()), (5, 4096));
        run(&mut ring, Operation::Flush).result.unwrap();
        let buffer = Buffer::zeroed(4096);
        let read = run(&mut ring, Operation::Read { buffer, length: 4096 });
        assert_eq!(read.buffer.unwrap()[..], [7; 4096]);
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn a_ring_that_is_full_gives_the_operation_back() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut ring = Ring::new(2).unwrap();
        let mut pushed = 0;
        while ring.push(&file, 0, Operation::Flush, 0).is_ok() {
            pushed += 1;
        }
        assert_eq!((pushed, ring.has_room()), (ring.entries, false));
    }
}
