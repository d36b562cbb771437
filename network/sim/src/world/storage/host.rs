//! The host's side of storage: its messages go through the device, and come from it.

use super::session::{Step, Word, Work};
use crate::world::host::{BUFFER_ADDRESS, Context, Host};
use fabric::Time;
use rnic::{
    Completion, CompletionKind, Data, Extra, Instant, Operation, SendFlags, SendRequest, Sge,
    Status,
};
use wire::Tail;

impl Host {
    /// A job begins.
    pub(in super::super) fn begin_storage(&mut self, now: Time, poster: usize) {
        let Some(store) = &mut self.store else { return };
        let mine = |session: &super::Session| session.poster == Some(poster as u32);
        if let Some(session) = store.sessions.iter().position(mine) {
            store.ask(now, session as u32);
        }
    }

    /// Carries out the steps that are due.
    pub(in super::super) fn handle_store(&mut self, now: Time, context: &mut Context<'_>) {
        while let Some(store) = &mut self.store {
            match store.due(now) {
                None => return,
                Some(Step::Post { session, work }) => {
                    self.post_storage(now, session, work, context);
                }
                Some(Step::Expire { session }) => {
                    let ended = store.expire(now, session);
                    self.end_in_error(&ended, context);
                }
                Some(Step::Reconnect { session }) => store.reconnected(now, session),
                Some(Step::Interrupt { core }) => store.interrupt(now, core),
                Some(Step::Served { session, number }) => store.served(now, session, number),
                Some(Step::Hear {
                    session,
                    word,
                    number,
                }) => {
                    if store.hear(now, session, word, number) {
                        self.finish_io(now, session, number, context);
                    }
                }
            }
        }
    }

    /// The session of the queue pair of a completion.
    pub(in crate::world) fn session_of(&self, completion: &Completion) -> Option<u32> {
        let store = self.store.as_ref()?;
        store.by_qpn.get(&completion.qpn.value()).copied()
    }

    pub(in crate::world) fn completed_storage(
        &mut self,
        now: Time,
        session: u32,
        completion: &Completion,
        context: &mut Context<'_>,
    ) {
        if completion.status != Status::Success {
            return self.fail_storage(session, context);
        }
        match (completion.kind, completion.extra) {
            (CompletionKind::Receive, Extra::Immediate(bytes)) => {
                self.post_receive(now, completion.qpn);
                let (word, number) = Word::parse(bytes);
                if let Some(store) = &mut self.store {
                    store.arrived(
                        now,
                        session,
                        word,
                        number,
                        completion.length + super::NUMBER_BYTES,
                    );
                }
            }
            (CompletionKind::Read, _) => {
                if let Some(store) = &mut self.store {
                    store.arrived(now, session, Word::Fetched, completion.id, 0);
                }
            }
            _ => {}
        }
    }

    fn post_storage(&mut self, now: Time, session: u32, work: Work, context: &mut Context<'_>) {
        let Some(store) = &self.store else { return };
        let this = &store.sessions[session as usize];
        let (address, rkey) = (BUFFER_ADDRESS, this.peer.rkey);
        let (id, operation, length) = match work {
            Work::Say {
                word,
                number,
                bytes,
            } => (
                0,
                Operation::Send(Tail::Immediate(word.immediate(number))),
                bytes,
            ),
            Work::Place { bytes } => (
                0,
                Operation::Write {
                    address,
                    rkey,
                    immediate: None,
                },
                bytes,
            ),
            Work::Fetch { number, bytes } => (number, Operation::Read { address, rkey }, bytes),
        };
        let sges = [Sge {
            address,
            length,
            lkey: self.keys.lkey,
        }];
        let request = SendRequest {
            id,
            operation,
            flags: SendFlags::SIGNALED,
            data: Data::Sges(&sges),
            destination: None,
            xrc_srq: None,
        };
        let posted = self.device.post_send(this.qpn, &request, Instant(now.ns()));
        if posted.is_err() {
            self.fail_storage(session, context);
        }
    }

    /// I/Os of these sessions end with an error; the job goes on.
    fn end_in_error(&mut self, ended: &[(u32, u64)], context: &mut Context<'_>) {
        let Some(store) = &self.store else { return };
        for (session, errors) in ended.iter().filter(|(_, errors)| *errors > 0) {
            let Some(poster) = store.sessions[*session as usize].poster else {
                continue;
            };
            let poster = &mut self.posters[poster as usize];
            poster.errors += errors;
            if poster.completed + poster.errors == poster.flow.messages {
                *context.unfinished -= 1;
            }
        }
    }

    fn finish_io(&mut self, now: Time, session: u32, number: u64, context: &mut Context<'_>) {
        let Some(store) = &mut self.store else { return };
        let this = &mut store.sessions[session as usize];
        let (Some(io), Some(poster)) = (this.open.remove(&number), this.poster) else {
            return;
        };
        let poster = &mut self.posters[poster as usize];
        if poster.completed == 0 {
            poster.first_completion = now;
        }
        poster.completed += 1;
        poster.last_completion = now;
        poster.latency.add((now - io.begun).0 / 1000);
        if poster.completed + poster.errors == poster.flow.messages {
            *context.unfinished -= 1;
        }
        store.ask(now, session);
    }

    /// The queue pair has failed, and its job with it.
    fn fail_storage(&mut self, session: u32, context: &mut Context<'_>) {
        let Some(store) = &mut self.store else { return };
        let Some(poster) = store.sessions[session as usize].poster else {
            return;
        };
        let poster = &mut self.posters[poster as usize];
        if !std::mem::replace(&mut poster.failed, true) {
            *context.unfinished -= 1;
        }
    }
}
