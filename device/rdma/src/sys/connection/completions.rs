//! Completed requests, and the return of their buffers.

use std::ffi::c_int;

use abi::{IBV_WC_WITH_INV, ibv_wc};
use buffer::Buffer;

use super::{Connection, SENT, SMALL};
use crate::Error;
use crate::sys::library::failed;

/// Completions taken by one call of [`Connection::poll`].
pub const BATCH: usize = 32;

/// Kind of a completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// A message has arrived, with this number of bytes.
    Receive(usize),
    /// A SEND, WRITE or READ has completed.
    Sent,
}

/// A completed request, and its buffer.
#[derive(Debug)]
pub struct Completion {
    /// The token with which the caller posted it.
    pub token: u64,
    /// Its kind. `Err` has the status (`enum ibv_wc_status`): the connection is then broken.
    pub done: Result<Done, u32>,
    /// Buffer of the request, returned to the caller.
    pub buffer: Option<Buffer>,
    /// The key of this side that the message has ended (SEND with Invalidate).
    pub invalidated: Option<u32>,
}

impl Connection {
    /// Posts the lists, and appends completed requests to `out`: one signaled completion completes all
    /// requests before it. Returns the number of completions.
    ///
    /// # Errors
    /// When polling the completion queue fails.
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Result<usize, Error> {
        self.poll_most(BATCH, out)
    }

    /// As [`Connection::poll`], but takes at most `most` completions, and at most [`BATCH`].
    ///
    /// # Errors
    /// As [`Connection::poll`].
    pub fn poll_most(&mut self, most: usize, out: &mut Vec<Completion>) -> Result<usize, Error> {
        self.flush()?;
        let most = most.min(BATCH);
        let cq = self.queues.completions.as_ptr();
        // SAFETY: the queue's own table of functions, and room for so many completions.
        let count = unsafe {
            let poll = (*(*cq).context).ops.poll_cq;
            poll.map_or(-1, |poll| poll(cq, most as c_int, self.found.as_mut_ptr()))
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(failed("ibv_poll_cq"));
        };
        for index in 0..count.min(BATCH) {
            let wc = self.found[index];
            if let Some(shared) = &self.shared
                && let Some((token, buffer)) = shared.take(wc.wr_id)
            {
                out.push(match wc.status {
                    0 => {
                        let done = Ok(Done::Receive(wc.byte_len as usize));
                        Completion {
                            token,
                            done,
                            buffer: Some(buffer),
                            invalidated: invalidated(&wc),
                        }
                    }
                    status => {
                        // Posted again for other connections. That fails only when the device was removed.
                        _ = shared.receive(buffer, token);
                        Completion {
                            token,
                            done: Err(status),
                            buffer: None,
                            invalidated: None,
                        }
                    }
                });
                continue;
            }
            if wc.wr_id & SENT != 0 {
                self.retire(wc.wr_id & !SENT, wc.status, out);
                continue;
            }
            let Some((token, buffer)) = self.receives.try_remove(wc.wr_id as usize) else {
                continue;
            };
            let done = if wc.status == 0 {
                Ok(Done::Receive(wc.byte_len as usize))
            } else {
                Err(wc.status)
            };
            out.push(Completion {
                token,
                done,
                buffer: Some(buffer),
                invalidated: invalidated(&wc),
            });
        }
        Ok(count)
    }

    fn retire(&mut self, number: u64, status: u32, out: &mut Vec<Completion>) {
        self.outbox.retire(number, |token, buffer, is_it| {
            if is_it && status != 0 {
                out.push(Completion {
                    token,
                    done: Err(status),
                    buffer,
                    invalidated: None,
                });
            } else if token == SMALL {
                if let Some((small, buffer)) = self.small.as_mut().zip(buffer) {
                    small.push(buffer);
                }
            } else {
                out.push(Completion {
                    token,
                    done: Ok(Done::Sent),
                    buffer,
                    invalidated: None,
                });
            }
        });
    }

    /// Returns the shared receives that this connection's unread messages are in.
    pub(super) fn repost_unread(&mut self) {
        let mut left = Vec::new();
        while self.poll(&mut left).is_ok_and(|count| count > 0) {
            let Some(shared) = &self.shared else { return };
            for Completion {
                token,
                done,
                buffer,
                ..
            } in left.drain(..)
            {
                if let (Some(buffer), Ok(Done::Receive(_))) = (buffer, done) {
                    _ = shared.receive(buffer, token);
                }
            }
        }
    }
}

/// The key that a message has ended.
fn invalidated(wc: &ibv_wc) -> Option<u32> {
    (wc.status == 0 && wc.wc_flags & IBV_WC_WITH_INV != 0).then_some(wc.imm_data)
}
