//! Fused operations (Base 3.4.2): two commands of a queue that are executed as one. The second has to be the
//! command right behind the first, whatever becomes of their data on the way. Compare and Write is the only
//! fused operation. A queue may have many pairs whose data are still to come.

use wire::nvme::{Command, Fuse, Io, Status};

use super::io::Work;
use super::{Outcome, Queue};
use crate::controller::barrier::Counted;
use crate::engine::{Action, Task};
use buffer::Buffer;

/// The pairs of a queue of which a half waits for something.
#[derive(Debug, Default)]
pub(in crate::controller) struct Pairs {
    pairs: Vec<Pair>,
    /// The first command whose second one is the next command.
    open: Option<First>,
}

/// A first command, right behind its acceptance or refusal.
#[derive(Clone, Copy, Debug)]
enum First {
    Accepted(u16),
    Refused,
}

#[derive(Debug)]
struct Pair {
    /// Start, length and namespace of both commands.
    range: Range,
    first: Half,
    second: Half,
    /// The statuses of the two commands, if they are not executed.
    failed: Option<[Status; 2]>,
}

type Range = (u64, u32, u32);

/// A command of a pair.
#[derive(Debug)]
struct Half {
    cid: u16,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// The second command has not come.
    Missing,
    /// The transport has the command, until its data have come.
    InTransport,
    /// The data have come, and those of the other half have not.
    Ready(Box<Work>, Option<Buffer>),
    /// The command is completed, or the engine has it.
    Over,
}

impl Half {
    fn is(&self, cid: u16) -> bool {
        self.cid == cid && matches!(self.progress, Progress::InTransport)
    }

    fn is_over(&self) -> bool {
        matches!(self.progress, Progress::Over)
    }

    fn take(&mut self) -> Option<(Box<Work>, Option<Buffer>)> {
        match std::mem::replace(&mut self.progress, Progress::Over) {
            Progress::Ready(work, data) => Some((work, data)),
            other => {
                self.progress = other;
                None
            }
        }
    }
}

impl Pairs {
    fn of(&mut self, fuse: Fuse, cid: u16) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| match fuse {
            Fuse::First => pair.first.is(cid),
            _ => pair.second.is(cid),
        })
    }

    /// The place of the newest pair, if the last command was its first one.
    fn newest(&self, first_cid: u16) -> Option<usize> {
        self.pairs
            .iter()
            .rposition(|pair| pair.first.cid == first_cid)
    }
}

fn range(command: &Command) -> Range {
    let blocks = command.blocks();
    (blocks.start, blocks.count, command.nsid)
}

const FAILED: [Status; 2] = [Status::ABORTED_FUSED_FAILED; 2];
const MISSING: [Status; 2] = [Status::ABORTED_FUSED_MISSING; 2];
const INVALID: Status = Status::INVALID_FIELD.permanent();

impl Queue {
    /// Matches a command of an I/O queue with the command before it. `planned` is the result of all other
    /// checks; the result of this one goes before it.
    pub(super) fn match_fused<T>(
        &mut self,
        command: &Command,
        planned: Result<T, Status>,
    ) -> Result<T, Status> {
        let before = self.pairs.open.take();
        let place = match before {
            Some(First::Accepted(cid)) => self.pairs.newest(cid),
            Some(First::Refused) | None => None,
        };
        if command.fuse() != Fuse::Second {
            self.end_pair(place, MISSING);
        }
        match command.fuse() {
            Fuse::No => planned,
            Fuse::Reserved => planned.and(Err(INVALID)),
            Fuse::First => {
                let planned = planned.and_then(|planned| match Io::parse(command.opcode) {
                    Some(Io::Compare) => Ok(planned),
                    _ => Err(INVALID),
                });
                self.pairs.open = Some(match planned {
                    Ok(_) => self.begin_pair(command),
                    Err(_) => First::Refused,
                });
                planned
            }
            Fuse::Second => {
                let Some(place) = place else {
                    let [_, status] = if before.is_some() { FAILED } else { MISSING };
                    return Err(status);
                };
                self.second_came(place, command, planned)
            }
        }
    }

    fn begin_pair(&mut self, command: &Command) -> First {
        let first = Half {
            cid: command.cid,
            progress: Progress::InTransport,
        };
        let second = Half {
            cid: 0,
            progress: Progress::Missing,
        };
        self.pairs.pairs.push(Pair {
            range: range(command),
            first,
            second,
            failed: None,
        });
        First::Accepted(command.cid)
    }

    fn second_came<T>(
        &mut self,
        place: usize,
        command: &Command,
        planned: Result<T, Status>,
    ) -> Result<T, Status> {
        let pair = &mut self.pairs.pairs[place];
        let is_other = pair.range != range(command);
        let refusal = match (pair.failed, planned) {
            (Some([_, status]), _) => Err(status),
            (None, _) if is_other => Err(INVALID),
            (None, Ok(_)) if Io::parse(command.opcode) != Some(Io::Write) => Err(INVALID),
            (None, planned) => planned,
        };
        let progress = if refusal.is_ok() {
            Progress::InTransport
        } else {
            Progress::Over
        };
        pair.second = Half {
            cid: command.cid,
            progress,
        };
        if refusal.is_err() {
            // Both commands are at fault where their ranges differ.
            let first = if is_other {
                INVALID
            } else {
                Status::ABORTED_FUSED_FAILED
            };
            self.end_pair(Some(place), [first; 2]);
        }
        refusal
    }

    /// Notes that half of a pair will not be executed, and is completed by the transport: the other half
    /// fails too.
    pub(super) fn abandon_half(&mut self, cid: u16, fuse: Fuse) {
        let found = self.pairs.pairs.iter_mut().position(|pair| {
            let half = if fuse == Fuse::First {
                &mut pair.first
            } else {
                &mut pair.second
            };
            let is_it = half.is(cid);
            if is_it {
                half.progress = Progress::Over;
            }
            is_it
        });
        self.end_pair(found, FAILED);
    }

    /// Fails a pair: the halves whose data have come at once, the others when their data come.
    fn end_pair(&mut self, place: Option<usize>, statuses: [Status; 2]) {
        let Some(pair) = place.and_then(|place| self.pairs.pairs.get_mut(place)) else {
            return;
        };
        let statuses = *pair.failed.get_or_insert(statuses);
        let is_expected =
            matches!(self.pairs.open, Some(First::Accepted(cid)) if cid == pair.first.cid);
        if matches!(pair.second.progress, Progress::Missing) && !is_expected {
            pair.second.progress = Progress::Over;
        }
        let halves = [&mut pair.first, &mut pair.second];
        let ready = halves.map(|half| half.take().map(|_| half.cid));
        for (cid, status) in ready.into_iter().zip(statuses) {
            let completion = cid.map(|cid| self.completion(cid, status, 0));
            self.extra.extend(completion);
        }
        self.forget_pairs();
    }

    fn forget_pairs(&mut self) {
        self.pairs
            .pairs
            .retain(|pair| !(pair.first.is_over() && pair.second.is_over()));
    }

    /// Notes that the data of half of a pair have come; executes the pair if those of the other half have.
    pub(super) fn half_is_there(&mut self, work: Work, buffer: Option<Buffer>) -> Outcome {
        let (cid, fuse) = (work.command.cid, work.fuse);
        let Some(pair) = self.pairs.of(fuse, cid) else {
            return self.reply(cid, Status::ABORTED_FUSED_MISSING, 0, buffer);
        };
        let failed = pair.failed;
        let half = if fuse == Fuse::First {
            &mut pair.first
        } else {
            &mut pair.second
        };
        if let Some([first, second]) = failed {
            half.progress = Progress::Over;
            self.forget_pairs();
            let status = if fuse == Fuse::First { first } else { second };
            return self.reply(cid, status, 0, buffer);
        }
        half.progress = Progress::Ready(Box::new(work), buffer);
        let is_complete = [&pair.first, &pair.second]
            .iter()
            .all(|it| matches!(it.progress, Progress::Ready(..)));
        let both = if is_complete {
            pair.first.take().zip(pair.second.take())
        } else {
            None
        };
        let Some(((first, expected), (second, data))) = both else {
            return Outcome::Waits;
        };
        self.forget_pairs();
        // Preempt and Abort aborts both commands if it came behind the first.
        let mut second = *second;
        second.mark = second.mark.min(first.mark);
        self.compare_and_write(first.command.cid, expected, second, data)
    }

    fn compare_and_write(
        &mut self,
        first_cid: u16,
        expected: Option<Buffer>,
        second: Work,
        data: Option<Buffer>,
    ) -> Outcome {
        let cid = second.command.cid;
        let both = expected.zip(data).ok_or(Status::INTERNAL_ERROR);
        // A host that may write may read: what the second command may do, the first one may too.
        let begun = self
            .begin(&second)
            .and_then(|underway| Ok((underway, both?)));
        let (underway, (expected, data)) = match begun {
            Ok(begun) => begun,
            Err(status) => {
                let first = self.completion(first_cid, Status::ABORTED_FUSED_FAILED, 0);
                self.extra.push(first);
                return self.reply(cid, status, 0, None);
            }
        };
        let durable = self.is_durable(&second.command);
        let action = Action::CompareAndWrite {
            first_cid,
            expected,
            data,
            durable,
        };
        let task = Task::new(cid, action, second.namespace, second.offset, second.length);
        Outcome::Task(task.counted(Counted::One(underway)))
    }
}
