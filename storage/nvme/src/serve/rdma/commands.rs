//! The life of a command over RDMA: from its capsule, over the data that it waits for, to its execution.

use std::io;
use std::ops::Range;

use buffer::Buffer;
use wire::nvme::{Command, Direction, Status};

use super::Driver;
use super::sgl::{Data, Remote, describe};
use super::transfers::{Source, Transfer};
use crate::controller::{Outcome, Plan, Request};
use crate::engine::Finished;
use crate::pool::Pool;

/// A received capsule: a command, and behind it room for data.
struct Capsule {
    command: Command,
    /// Where the bytes behind the command are in the buffer.
    behind: Range<usize>,
    buffer: Buffer,
}

/// Data in a capsule, from this byte of its buffer on.
struct InCapsule {
    buffer: Buffer,
    from: usize,
}

/// A command whose data are written from its capsule.
pub(super) struct InPlace {
    request: Request,
    pub(super) capsule: Buffer,
    data: Data,
}

/// A command that is not finished at once. It leaves the table when its completion is known; its RDMA WRITEs
/// and its response are then in the queues of transfers and responses.
#[derive(Debug)]
pub(super) struct RdmaCommand {
    state: CommandState,
    data: Data,
}

/// The state of a command.
#[derive(Debug)]
enum CommandState {
    /// The command waits in `awaiting_buffer` until the pool has a data buffer for it.
    AwaitingBuffer(Request),
    /// An RDMA READ fetches the data from the memory of the host; the command is executed when it completes.
    ReadingData(Request),
    /// The engine executes the command, for a disk that blocks.
    Executing,
}

impl Driver<'_> {
    /// Processes a capsule: a command with in-capsule data.
    pub(super) fn capsule(&mut self, buffer: Buffer, bytes: usize, now_ns: u64) -> io::Result<()> {
        let message = buffer.get(..bytes).unwrap_or_default();
        let Some((command, behind)) = Command::split(message) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if self.commands.len() + self.in_place.len() + self.responses.len()
            >= usize::from(self.queue.depth())
        {
            // The host has more commands outstanding than entries (Base 3.3.1.2).
            return Err(io::ErrorKind::InvalidData.into());
        }
        let capsule = Capsule {
            command,
            behind: bytes - behind.len()..bytes,
            buffer,
        };
        if let Some(buffer) = self.begin(capsule, now_ns) {
            self.taken.push(buffer);
        }
        Ok(())
    }

    /// Begins the command of a capsule. Returns the buffer of the capsule unless the command is executed with
    /// the data in it.
    fn begin(&mut self, capsule: Capsule, now_ns: u64) -> Option<Buffer> {
        let Capsule {
            command,
            behind,
            buffer,
        } = capsule;
        let (length, in_capsule, remote) = match describe(&command, &buffer[behind.clone()]) {
            Ok(it) => (Ok(it.length), it.in_capsule, it.remote),
            Err(status) => (Err(status), None, Remote::default()),
        };
        let request = match self.queue.accept_described(&command, length, now_ns) {
            Plan::Take(request) => request,
            Plan::Refuse(status) => {
                let completion = self.queue.completion(command.cid, status, 0);
                self.refuse(completion, remote);
                return Some(buffer);
            }
        };
        let data = Data {
            remote,
            length: request.length,
            in_place: false,
        };
        match (in_capsule, request.direction) {
            (Some(place), Direction::FromHost) => {
                let from = behind.start + place.start;
                return self.take_data(request, InCapsule { buffer, from }, data, now_ns);
            }
            (Some(place), _) if !place.is_empty() => {
                let completion = self
                    .queue
                    .abandon(request, Status::SGL_TYPE_INVALID.permanent());
                self.refuse(completion, remote);
            }
            (_, Direction::None) => self.execute(request, None, data, now_ns),
            _ => self.provide(request, data, now_ns),
        }
        Some(buffer)
    }

    /// Begins a command whose data are in its capsule: they are written from there if possible, and copied
    /// otherwise. Returns the buffer of the capsule if they are copied.
    fn take_data(
        &mut self,
        mut request: Request,
        in_capsule: InCapsule,
        data: Data,
        now_ns: u64,
    ) -> Option<Buffer> {
        let InCapsule {
            buffer: capsule,
            from,
        } = in_capsule;
        if request.is_written_in_place() {
            request.data_at = from;
            request.prefetch();
            self.in_place.push(InPlace {
                request,
                capsule,
                data: Data {
                    in_place: true,
                    ..data
                },
            });
            return None;
        }
        let mut copy = self.pool.take_beyond(data.length);
        copy[..data.length].copy_from_slice(&capsule[from..from + data.length]);
        self.execute(request, Some(copy), data, now_ns);
        Some(capsule)
    }

    /// Executes the commands whose data are in the capsules of this round.
    pub(super) fn write_in_place(&mut self, now_ns: u64) {
        let mut all = std::mem::take(&mut self.in_place);
        for InPlace {
            request,
            capsule,
            data,
        } in all.drain(..)
        {
            self.execute(request, Some(capsule), data, now_ns);
        }
        self.in_place = all;
    }

    /// Gives a command its buffer, and continues it; it waits if other commands wait already, or the pool has
    /// no buffer.
    fn provide(&mut self, request: Request, data: Data, now_ns: u64) {
        let provided = if self.awaiting_buffer.is_empty() {
            self.pool.provide(&request)
        } else {
            None
        };
        match provided {
            Some(provided) => self.go_on(request, provided, data, now_ns),
            None => {
                let state = CommandState::AwaitingBuffer(request);
                self.awaiting_buffer
                    .push_back(self.commands.insert(RdmaCommand { state, data }));
            }
        }
    }

    /// Continues a command that has a buffer, or gets lent memory: fetches its data, or executes it.
    fn go_on(&mut self, request: Request, provided: Option<Buffer>, data: Data, now_ns: u64) {
        match provided {
            Some(buffer) if request.direction == Direction::FromHost => {
                let state = CommandState::ReadingData(request);
                let read_for = Some(self.commands.insert(RdmaCommand { state, data }));
                let (source, remote) = (Source::Own(buffer, data.length), data.remote);
                self.transfers.push_back(Transfer {
                    read_for,
                    source,
                    remote,
                });
            }
            provided => self.execute(request, provided, data, now_ns),
        }
    }

    /// Continues commands that wait for a buffer.
    pub(super) fn resume(&mut self, now_ns: u64) {
        while let Some(index) = self.awaiting_buffer.front().copied() {
            let provided = match self.commands.get(index).map(|command| &command.state) {
                Some(CommandState::AwaitingBuffer(request)) => self.pool.provide(request),
                _ => {
                    self.awaiting_buffer.pop_front();
                    continue;
                }
            };
            let Some(provided) = provided else { return };
            self.awaiting_buffer.pop_front();
            if let Some(RdmaCommand {
                state: CommandState::AwaitingBuffer(request),
                data,
            }) = self.commands.try_remove(index)
            {
                self.go_on(request, provided, data, now_ns);
            }
        }
    }

    /// Executes a command whose data an RDMA READ has fetched.
    pub(super) fn fetched(&mut self, index: usize, buffer: Buffer, now_ns: u64) {
        if let Some(RdmaCommand {
            state: CommandState::ReadingData(request),
            data,
        }) = self.commands.try_remove(index)
        {
            self.execute(request, Some(buffer), data, now_ns);
        }
    }

    fn execute(&mut self, request: Request, buffer: Option<Buffer>, data: Data, now_ns: u64) {
        let gives = request.direction == Direction::ToHost;
        let lent = if gives && buffer.is_none() {
            Pool::lent_charge(request.length)
        } else {
            0
        };
        match self.queue.execute(request, buffer, now_ns) {
            Outcome::Task(task) => match self.engine.run_in_memory(task) {
                Ok(finished) => {
                    self.has_executed = true;
                    self.conclude(finished, data, now_ns);
                }
                Err(mut task) => {
                    let state = CommandState::Executing;
                    task.tag = self.commands.insert(RdmaCommand { state, data }) as u32;
                    self.engine.begin(task);
                }
            },
            Outcome::Reply(completion, buffer) => {
                self.pool.lent_back(lent);
                self.reply(data, completion, buffer, gives, now_ns);
            }
            Outcome::Waits => {}
        }
        self.extra();
    }

    /// Answers a command that the engine has executed.
    pub(super) fn finish(&mut self, finished: Finished, now_ns: u64) {
        if let Some(command) = self.commands.try_remove(finished.tag as usize) {
            self.conclude(finished, command.data, now_ns);
            self.extra();
        }
    }

    fn conclude(&mut self, finished: Finished, data: Data, now_ns: u64) {
        let completion = self.queue.finish(&finished);
        match finished.lent {
            Some(lent) if finished.status.is_success() => self.lend(lent, data),
            Some(_) => self.pool.lent_back(Pool::lent_charge(finished.length)),
            None => {}
        }
        self.reply(
            data,
            completion,
            finished.buffer,
            finished.length > 0,
            now_ns,
        );
    }
}
