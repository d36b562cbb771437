//! What a connection sends: RDMA transfers of the data of commands, and behind them the responses.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use buffer::Buffer;
use wire::nvme::Completion;

use super::super::receives::other;
use super::sgl::{Data, Remote};
use super::{Driver, token};
use crate::pool::Pool;
use crate::store::Lent;

/// An RDMA transfer that waits for a free entry of the send queue.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The command whose data an RDMA READ fetches; `None` for an RDMA WRITE.
    pub(super) read_for: Option<usize>,
    pub(super) source: Source,
    pub(super) remote: Remote,
}

/// The local memory of a transfer.
#[derive(Debug)]
pub(super) enum Source {
    Own(Buffer, usize),
    /// Lent memory, and its share of the charge.
    Lent(Arc<Buffer>, Range<usize>, usize),
}

/// A response to send, and the key of the host to invalidate with it (SEND with invalidate).
pub(super) type Response = (Completion, Option<u32>);

impl Driver<'_> {
    /// Queues RDMA WRITEs from lent memory to the memory of the host.
    pub(super) fn lend(
        &mut self,
        lent: Lent,
        Data {
            mut remote, length, ..
        }: Data,
    ) {
        let mut surcharge = Pool::lent_charge(length) - length;
        for (buffer, range) in lent.into_pieces() {
            let length = range.len();
            let source = Source::Lent(buffer, range, length + std::mem::take(&mut surcharge));
            self.transfers.push_back(Transfer {
                read_for: None,
                source,
                remote,
            });
            remote.address = remote.address.wrapping_add(length as u64);
        }
    }

    /// Queues the RDMA WRITE of the data of a command, and its response.
    pub(super) fn reply(
        &mut self,
        Data {
            remote,
            length,
            in_place,
        }: Data,
        completion: Completion,
        buffer: Option<Buffer>,
        gives: bool,
        now_ns: u64,
    ) {
        match buffer {
            Some(capsule) if in_place => self.taken.push(capsule),
            Some(buffer) if gives && completion.status().is_success() => {
                let source = Source::Own(buffer, length);
                self.transfers.push_back(Transfer {
                    read_for: None,
                    source,
                    remote,
                });
            }
            Some(buffer) => self.give(buffer, now_ns),
            None => {}
        }
        self.respond(completion, remote);
    }

    fn respond(&mut self, completion: Completion, remote: Remote) {
        self.responses
            .push_back((completion, remote.invalidate.then_some(remote.key)));
    }

    pub(super) fn refuse(&mut self, completion: Completion, remote: Remote) {
        self.respond(completion, remote);
        self.extra();
    }

    pub(super) fn extra(&mut self) {
        while let Some(completion) = self.queue.poll() {
            self.respond(completion, Remote::default());
        }
    }

    pub(super) fn give(&mut self, buffer: Buffer, now_ns: u64) {
        self.pool.give(buffer);
        self.resume(now_ns);
    }

    /// Posts queued work requests while the send queue has room: all data transfers first, then responses. On
    /// the same machine a WRITE without an earlier SEND in the queue is executed by the sender alone, without
    /// the receiving process.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.connection.room() > 0
            && let Some(Transfer {
                read_for,
                source,
                remote,
            }) = self.transfers.pop_front()
        {
            let place = rdma::RemoteMemory {
                address: remote.address,
                key: remote.key,
            };
            let (buffer, length) = match source {
                Source::Own(buffer, length) => (buffer, length),
                Source::Lent(buffer, range, charge) => {
                    let length = range.len();
                    let token = token::LENT | charge as u64;
                    if self
                        .connection
                        .write_shared(&buffer, range.clone(), place, token)
                        .map_err(other)?
                    {
                        continue;
                    }
                    // The memory is registered with another device: it is copied.
                    self.pool.lent_back(charge);
                    let mut copy = self.pool.take_beyond(length);
                    copy[..length].copy_from_slice(&buffer[range]);
                    (copy, length)
                }
            };
            let posted = match read_for {
                Some(index) => {
                    self.connection
                        .read(buffer, length, place, token::READ | index as u64)
                }
                None => self.connection.write(buffer, length, place, token::WRITE),
            };
            posted.map_err(|(error, _)| other(error))?;
        }
        while self.transfers.is_empty()
            && self.connection.room() > 0
            && let Some((completion, invalidate)) = self.responses.pop_front()
        {
            self.connection
                .send_short(&completion.to_bytes(), invalidate)
                .map_err(other)?;
        }
        Ok(())
    }
}
