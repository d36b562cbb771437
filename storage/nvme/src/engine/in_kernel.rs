//! Tasks that the kernel executes: one operation of io_uring each.

use crate::controller::{Admitted, Counted};
use crate::latency::{Class, Observer};
use crate::store::Store;
use crate::sys::ring::{Completion, Operation};

use super::executed::{Executed, status_of_read, status_of_write};
use super::task::{Action, Finished, Task};

/// A task that the kernel executes.
#[derive(Debug)]
pub(super) struct InKernel {
    cid: u16,
    tag: u32,
    /// Given back when the kernel has finished, also if the connection ended meanwhile.
    namespace: Admitted,
    is_read: bool,
    length: usize,
    offset: u64,
    durable: bool,
    began_ns: u64,
    underway: Option<Counted>,
}

impl InKernel {
    /// What is kept of a task while the kernel executes it, and the operation to submit.
    ///
    /// # Errors
    /// The task, when it takes more than one operation.
    #[expect(
        clippy::result_large_err,
        reason = "the task is not an error, and boxing it would allocate"
    )]
    pub(super) fn of(
        task: Task,
        namespace: Admitted,
        began_ns: u64,
    ) -> Result<(Self, Operation), (Task, Admitted)> {
        let bytes = task.length as usize;
        let (operation, is_read, length, durable) = match task.action {
            Action::Read(buffer) => {
                let length = bytes;
                (Operation::Read { buffer, length }, true, bytes, false)
            }
            Action::Write {
                data,
                from: 0,
                durable,
            } => {
                let write = Operation::Write {
                    buffer: data,
                    length: bytes,
                    durable,
                };
                (write, false, bytes, durable)
            }
            Action::Flush => (Operation::Flush, false, 0, false),
            action => return Err((Task { action, ..task }, namespace)),
        };
        let waiting = Self {
            cid: task.cid,
            tag: task.tag,
            namespace,
            is_read,
            length,
            offset: task.offset,
            durable,
            began_ns,
            underway: task.underway,
        };
        Ok((waiting, operation))
    }

    /// The result of the task. Transfers what the kernel did not, and notes flushes in the store.
    pub(super) fn conclude(self, completion: Completion, observer: &mut Observer) -> Finished {
        let Self {
            is_read,
            length,
            durable,
            ..
        } = self;
        let namespace = &self.namespace;
        let Completion {
            result, mut buffer, ..
        } = completion;
        // The kernel may transfer fewer bytes than requested, for example at the end of a file: the rest is
        // transferred here.
        let result = result.and_then(|done| match buffer.as_deref_mut() {
            Some(bytes) if done < length => {
                let rest = bytes.get_mut(done..length).unwrap_or_default();
                let at = self.offset + done as u64;
                match is_read {
                    true => namespace.store().read(at, rest),
                    false => namespace.store().write(at, rest, durable),
                }
            }
            _ => Ok(()),
        });
        if let Store::File(file) = namespace.store()
            && !is_read
            && (length == 0 || durable && !file.is_direct())
        {
            // A failed direct write concerns its own bytes; a failed flush concerns all bytes that were
            // written before.
            file.flushed(&result);
        }
        let status = if is_read {
            status_of_read(&result)
        } else {
            status_of_write(&result)
        };
        let executed = Executed {
            class: self.class(),
            bytes: length,
            status,
            began_ns: self.began_ns,
        };
        executed.count(namespace, observer);
        Finished {
            buffer,
            length: if is_read { length } else { 0 },
            ..Finished::without_data(self.cid, self.tag, status, self.underway)
        }
    }

    fn class(&self) -> Class {
        match (self.length, self.is_read) {
            (0, _) => Class::Other,
            (_, true) => Class::Read,
            (_, false) => Class::Write,
        }
    }
}
