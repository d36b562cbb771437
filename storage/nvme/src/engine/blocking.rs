//! Tasks that the thread of the connection executes, by calls that block for a disk.

use std::io;

use buffer::Buffer;
use wire::nvme::Status;

use crate::controller::Namespace;
use crate::latency::Observer;
use crate::store::{Clear, Store};

use super::executed::{Executed, status_of_read, status_of_write};
use super::task::{Action, Finished, Task};

/// Bytes that Verify and Compare read at a time.
const PIECE: usize = 256 << 10;

/// Executes a task by blocking calls.
pub(super) fn run(task: Task, namespace: &Namespace, observer: &mut Observer) -> Finished {
    let range = StoreRange {
        store: namespace.store(),
        offset: task.offset,
        length: task.length,
    };
    let class = task.action.class();
    let mut finished = Finished::without_data(task.cid, task.tag, Status::SUCCESS, task.underway);
    finished.status = range.execute(task.action, &mut finished);
    let executed = Executed {
        class,
        bytes: range.bytes(),
        status: finished.status,
        began_ns: observer.now_ns(),
    };
    executed.count(namespace, observer);
    finished
}

/// The bytes of a store that a task is about.
struct StoreRange<'a> {
    store: &'a Store,
    offset: u64,
    length: u64,
}

impl StoreRange<'_> {
    /// Executes an action. Its data and its buffer become those of the result.
    fn execute(&self, action: Action, finished: &mut Finished) -> Status {
        match action {
            Action::Read(buffer) => self.read(buffer, finished),
            Action::Lend => self.lend(finished),
            Action::Write {
                data,
                from,
                durable,
            } => {
                let place = from..from + self.bytes();
                let (result, back) = self.store.write_buffer(self.offset, data, place, durable);
                finished.buffer = Some(back);
                status_of_write(&result)
            }
            Action::Compare(expected) => {
                let status = self.compare(&expected[..self.bytes()]);
                finished.buffer = Some(expected);
                status
            }
            Action::CompareAndWrite {
                first_cid,
                expected,
                data,
                durable,
            } => {
                let (expected, new) = (&expected[..self.bytes()], &data[..self.bytes()]);
                let (first, second) = self.compare_and_write(expected, new, durable);
                finished.first_of_pair = Some((first_cid, first));
                finished.buffer = Some(data);
                second
            }
            Action::Nothing(buffer) => {
                finished.buffer = buffer;
                Status::SUCCESS
            }
            Action::Flush | Action::FlushAll(_) => status_of_write(&self.store.flush()),
            Action::Verify => self.verify(),
            Action::Zero {
                deallocate,
                durable,
            } => {
                let how = if deallocate {
                    Clear::Deallocate
                } else {
                    Clear::Zero
                };
                status_of_write(&self.zero(how, durable))
            }
            Action::Discard(ranges) => self.discard(ranges),
            Action::Copy { sources, durable } => self.copy(&sources, durable),
        }
    }

    fn bytes(&self) -> usize {
        self.length as usize
    }

    fn read(&self, mut buffer: Buffer, finished: &mut Finished) -> Status {
        let result = self.store.read(self.offset, &mut buffer[..self.bytes()]);
        (finished.buffer, finished.length) = (Some(buffer), self.bytes());
        status_of_read(&result)
    }

    fn lend(&self, finished: &mut Finished) -> Status {
        let lent = self.store.lend(self.offset, self.bytes());
        let status = if lent.is_some() {
            Status::SUCCESS
        } else {
            Status::INTERNAL_ERROR
        };
        (finished.lent, finished.length) = (Some(lent.unwrap_or_default()), self.bytes());
        status
    }

    /// Makes the range read as zeros: writes zeros where the file system cannot punch a hole.
    fn zero(&self, how: Clear, durable: bool) -> io::Result<()> {
        let Self {
            store,
            offset,
            length,
        } = *self;
        let can_hole = matches!(store, Store::File(file) if file.can_clear());
        let how = if can_hole { how } else { Clear::Zero };
        store.clear(how, offset, length)?;
        if how == Clear::Deallocate && matches!(store, Store::File(file) if !file.can_clear()) {
            store.clear(Clear::Zero, offset, length)?;
        }
        if durable { store.flush() } else { Ok(()) }
    }

    /// Deallocates ranges of the store: first byte and length of each.
    fn discard(&self, ranges: Vec<(u64, u64)>) -> Status {
        let clear = |(offset, length)| self.store.clear(Clear::Deallocate, offset, length);
        status_of_write(&ranges.into_iter().try_for_each(clear))
    }

    fn compare(&self, expected: &[u8]) -> Status {
        let mut found = Buffer::zeroed(expected.len().min(PIECE));
        for (index, piece) in expected.chunks(PIECE).enumerate() {
            let place = &mut found[..piece.len()];
            let at = self.offset + (index * PIECE) as u64;
            if let Err(error) = self.store.read(at, place) {
                return status_of_read(&Err(error));
            }
            if *place != *piece {
                return Status::COMPARE_FAILURE.permanent();
            }
        }
        Status::SUCCESS
    }

    /// Statuses of the Compare command and of the Write command of a fused pair.
    fn compare_and_write(&self, expected: &[u8], data: &[u8], durable: bool) -> (Status, Status) {
        let first = self.compare(expected);
        if !first.is_success() {
            return (first, Status::ABORTED_FUSED_FAILED.permanent());
        }
        let result = self.store.write(self.offset, data, durable);
        (first, status_of_write(&result))
    }

    fn verify(&self) -> Status {
        let mut found = Buffer::zeroed(PIECE.min(self.bytes()));
        let mut done = 0;
        while done < self.length {
            let take = (self.length - done).min(found.len() as u64);
            let place = &mut found[..take as usize];
            if let Err(error) = self.store.read(self.offset + done, place) {
                return status_of_read(&Err(error));
            }
            done += take;
        }
        Status::SUCCESS
    }

    /// Copies ranges of the store to the beginning of this one.
    fn copy(&self, sources: &[(u64, u64)], durable: bool) -> Status {
        // All sources are read before the destination is written, because the ranges may overlap.
        let mut data = Buffer::zeroed(self.bytes());
        let mut done = 0;
        for (from, bytes) in sources {
            let place = &mut data[done..done + *bytes as usize];
            if let Err(error) = self.store.read(*from, place) {
                return status_of_read(&Err(error));
            }
            done += *bytes as usize;
        }
        status_of_write(&self.store.write(self.offset, &data[..done], durable))
    }
}
