//! The commands of one queue, whatever carries them.

use rdma::Buffer;
use slab::Slab;
use wire::nvme::Completion;

use super::HostError;

/// Data of a command.
#[derive(Debug)]
pub enum Payload {
    /// None.
    None,
    /// The first so many bytes of a buffer go to the target.
    Out(Buffer, usize),
    /// So many bytes come from the target.
    In(Buffer, usize),
}

/// A command that is finished.
#[derive(Debug)]
pub struct Done {
    /// The caller's name for it.
    pub token: u64,
    /// What the target says.
    pub completion: Completion,
    /// The command's buffer.
    pub buffer: Option<Buffer>,
}

/// A command that the target has.
#[derive(Debug)]
pub(super) struct Slot {
    token: u64,
    pub(super) buffer: Option<Buffer>,
    pub(super) length: usize,
    pub(super) is_out: bool,
    /// Bytes that came, where they come piece by piece.
    pub(super) received: usize,
    /// Pieces of its buffer that are still to be sent: it is not finished before.
    unsent: usize,
    completion: Option<Completion>,
}

/// The commands that the target has, and those that are finished.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Slab<Slot>,
    depth: usize,
    done: Vec<Done>,
}

impl Commands {
    /// For so many at once.
    pub(super) fn new(depth: u16) -> Self {
        Self { slots: Slab::with_capacity(depth.into()), depth: depth.into(), done: Vec::new() }
    }

    /// How many the target has.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes a command in; returns its identifier.
    pub(super) fn begin(&mut self, payload: Payload, token: u64) -> Result<u16, HostError> {
        if self.slots.len() >= self.depth {
            return Err(HostError::Full);
        }
        let (buffer, length, is_out) = match payload {
            Payload::None => (None, 0, false),
            Payload::Out(buffer, length) => (Some(buffer), length, true),
            Payload::In(buffer, length) => (Some(buffer), length, false),
        };
        let slot = Slot { token, buffer, length, is_out, received: 0, unsent: 0, completion: None };
        Ok(self.slots.insert(slot) as u16)
    }

    pub(super) fn slot(&self, cid: u16) -> Option<&Slot> {
        self.slots.get(cid.into())
    }

    pub(super) fn slot_mut(&mut self, cid: u16) -> Option<&mut Slot> {
        self.slots.get_mut(cid.into())
    }

    /// A piece of its buffer is going to be sent.
    pub(super) fn keep(&mut self, cid: u16) {
        if let Some(slot) = self.slot_mut(cid) {
            slot.unsent += 1;
        }
    }

    /// A piece of its buffer is sent.
    pub(super) fn release(&mut self, cid: u16) {
        let Some(slot) = self.slot_mut(cid) else { return };
        slot.unsent = slot.unsent.saturating_sub(1);
        if slot.unsent == 0
            && let Some(completion) = slot.completion.take()
        {
            self.conclude(completion);
        }
    }

    /// The target says that a command is finished. It is, once nothing of its buffer is on its way.
    pub(super) fn finish(&mut self, completion: Completion) -> Result<(), HostError> {
        let slot = self.slot_mut(completion.cid).filter(|slot| slot.completion.is_none());
        let slot = slot.ok_or(HostError::Protocol("a response to no command"))?;
        if slot.unsent > 0 {
            slot.completion = Some(completion);
        } else {
            self.conclude(completion);
        }
        Ok(())
    }

    fn conclude(&mut self, completion: Completion) {
        if let Some(slot) = self.slots.try_remove(completion.cid.into()) {
            self.done.push(Done { token: slot.token, completion, buffer: slot.buffer });
        }
    }

    /// Appends what is finished; returns how many.
    pub(super) fn take(&mut self, out: &mut Vec<Done>) -> usize {
        let count = self.done.len();
        out.append(&mut self.done);
        count
    }

    /// Whether something is finished and was not taken.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }
}
