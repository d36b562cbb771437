//! The commands of the admin queue.

use wire::nvme::{Admin, Command, Direction, Status, log};

use super::State;
use super::events::Event;
use super::features::{Answer, feature_data};
use super::queue::{Outcome, Queue, Request, Work, structure};
use super::session::Controller;
use crate::engine::{Action, Task};
use buffer::Buffer;
use wire::nvme::identify::IDENTIFY_SIZE;

impl Queue {
    pub(super) fn plan_admin(&mut self, command: &Command, length: u32) -> Result<Request, Status> {
        let invalid = Status::INVALID_OPCODE.permanent();
        let kind = Admin::parse(command.opcode).ok_or(invalid)?;
        let is_discovery = self.session().is_some_and(|session| session.is_discovery);
        if is_discovery && kind == Admin::Abort {
            return Err(invalid);
        }
        let mut direction = Direction::of(command.opcode);
        let expected = match kind {
            Admin::Identify => IDENTIFY_SIZE as u32,
            Admin::GetLogPage => {
                u32::try_from(log::Request::parse(command).length).unwrap_or(u32::MAX)
            }
            Admin::GetFeatures | Admin::SetFeatures => feature_data(kind, command, is_discovery),
            Admin::Abort | Admin::AsyncEventRequest | Admin::KeepAlive => 0,
        };
        if expected == 0 {
            direction = Direction::None;
        }
        let length = structure(direction, expected, length)?;
        Ok(Request {
            cid: command.cid,
            direction,
            length,
            data_at: 0,
            work: Work::Admin(*command),
        })
    }

    pub(super) fn admin(
        &mut self,
        command: &Command,
        length: usize,
        buffer: Option<Buffer>,
        now_ns: u64,
    ) -> Outcome {
        let Some(id) = self.session().map(|session| session.id) else {
            return self.reply(command.cid, Status::COMMAND_SEQUENCE.permanent(), 0, None);
        };
        let target = std::sync::Arc::clone(&self.target);
        let mut state = target.lock();
        if Admin::parse(command.opcode) == Some(Admin::AsyncEventRequest) {
            let kept = state
                .controllers
                .get_mut(&id)
                .is_some_and(|it| it.events.request(command.cid));
            drop(state);
            return match kept {
                true => Outcome::Waits,
                false => self.reply(command.cid, Status::AER_LIMIT_EXCEEDED.permanent(), 0, None),
            };
        }
        let sent = buffer
            .as_deref()
            .and_then(|bytes| bytes.get(..length))
            .unwrap_or_default();
        let answer = self.answer(&mut state, id, command, sent, now_ns);
        let to_flush = answer
            .as_ref()
            .ok()
            .and_then(|_| state.flushed_by(id, command));
        drop(state);
        if let Some(namespaces) = to_flush {
            let barrier = self.barrier(&namespaces);
            return Outcome::Task(Task::behind(
                barrier,
                command.cid,
                Action::FlushAll(namespaces),
            ));
        }
        match answer {
            Err(status) => {
                self.note_failure(command, status);
                self.reply(command.cid, status, 0, buffer)
            }
            Ok((result, data)) => {
                let buffer = buffer.map(|mut buffer| {
                    fill(&mut buffer, length, &data);
                    buffer
                });
                self.reply(command.cid, Status::SUCCESS, result, buffer)
            }
        }
    }

    fn answer(
        &mut self,
        state: &mut State,
        id: u16,
        command: &Command,
        sent: &[u8],
        now_ns: u64,
    ) -> Answer {
        let kind = Admin::parse(command.opcode).ok_or(Status::INVALID_OPCODE.permanent())?;
        match kind {
            Admin::Identify => state.identify(id, command),
            Admin::GetLogPage => {
                let request = log::Request::parse(command);
                let page = state.log_page(id, command, &request, &self.origin)?;
                let start = usize::try_from(request.offset)
                    .ok()
                    .filter(|at| *at <= page.len());
                let start = start.ok_or(Status::INVALID_FIELD.permanent())?;
                if !request.retain
                    && let Some(event) = Event::of_page(request.page)
                {
                    state.controller(id)?.events.clear_event(event);
                    state.controller(id)?.wake_admin();
                }
                let end = page.len().min(start + request.length as usize);
                Ok((0, page[start..end].to_vec()))
            }
            Admin::Abort => {
                // Only event requests can be aborted: a command that the engine executes is finished.
                let cid = (command.cdw10 >> 16) as u16;
                let controller = state.controller(id)?;
                let aborted = command.cdw10 as u16 == 0 && controller.events.withdraw(cid);
                if aborted {
                    let completion = self.completion(cid, Status::ABORT_REQUESTED, 0);
                    self.extra.push(completion);
                }
                Ok((u64::from(!aborted), Vec::new()))
            }
            Admin::GetFeatures => state.feature(id, command, now_ns),
            Admin::SetFeatures => state.set_feature(id, command, sent, now_ns),
            Admin::KeepAlive => match state.controller(id)?.keep_alive_ms {
                0 => Err(Status::INVALID_FIELD.permanent()),
                _ => Ok((0, Vec::new())),
            },
            Admin::AsyncEventRequest => Err(Status::INTERNAL_ERROR),
        }
    }
}

impl State {
    pub(super) fn controller(&mut self, id: u16) -> Result<&mut Controller, Status> {
        self.controllers.get_mut(&id).ok_or(Status::INTERNAL_ERROR)
    }
}

/// Copies the data into the buffer, and fills it with zeros up to `length`.
fn fill(buffer: &mut Buffer, length: usize, data: &[u8]) {
    let Some(place) = buffer.get_mut(..length) else {
        return;
    };
    let (front, rest) = place.split_at_mut(data.len().min(length));
    front.copy_from_slice(&data[..front.len()]);
    rest.fill(0);
}
