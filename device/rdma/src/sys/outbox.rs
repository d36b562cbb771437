//! Requests of a send queue. They are posted in lists, because each call takes the device's lock, and only
//! some are signaled, because each completion costs time in the device and in the program.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use abi::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_wr_bind_mw, ibv_wr_rdma,
};
use buffer::Buffer;

use super::landing::Landing;

/// Requests posted by one call at most.
const LIST_MAX: usize = 64;
/// Unsignaled requests in a row at most.
const UNSIGNALED_MAX: usize = 16;
/// Bytes of unsignaled requests at most: their buffers return with the next signaled completion.
const UNSIGNALED_BYTES_MAX: usize = 256 << 10;
/// What a request counts for whose buffer is shared, however short: its owner waits for it.
const SHARED_BYTES: usize = 64 << 10;
/// Bytes of inline data: a command, or a completion.
pub(super) const INLINE: usize = 64;

/// A request that is posted, or in the list.
struct Sent {
    token: u64,
    kept: Kept,
}

/// What a request keeps until it has completed.
enum Kept {
    Nothing,
    Buffer(Buffer),
    Shared(
        #[expect(dead_code, reason = "it is dropped when the request has completed")] Arc<Buffer>,
    ),
    Landing(
        #[expect(dead_code, reason = "it is dropped when the request has completed")] Arc<Landing>,
    ),
}

/// The local side of a request.
pub(super) enum LocalData {
    /// Bytes of a buffer that the request owns.
    Buffer(Buffer, ibv_sge),
    /// Bytes of a shared buffer, which the request reads.
    Shared(Arc<Buffer>, ibv_sge),
    /// A range of a buffer that several READs fill.
    Landing(Arc<Landing>, ibv_sge),
    /// Inline data, and its length in bytes.
    Inline([u8; INLINE], usize),
    /// None: the binding of a memory window.
    Binding(ibv_wr_bind_mw),
}

/// Memory of the peer, as the target of RDMA WRITEs and READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// Address of the memory at the peer.
    pub address: u64,
    /// The remote key.
    pub key: u32,
}

impl RemoteMemory {
    /// The remote side of a request with this opcode.
    pub(super) fn accessed_by(self, opcode: u32) -> Remote {
        Remote {
            opcode,
            address: self.address,
            key: self.key,
            invalidate: 0,
        }
    }
}

/// The remote side of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Remote {
    pub(super) opcode: u32,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) invalidate: u32,
}

/// The requests of one send queue, which complete in order.
#[derive(Default)]
pub(super) struct Outbox {
    sent: VecDeque<Sent>,
    /// Number of the oldest request.
    first: u64,
    unsignaled: usize,
    unsignaled_bytes: usize,
    /// Each request is signaled.
    pub(super) reports_each: bool,
    /// Unsignaled requests in a row at most, if fewer than [`UNSIGNALED_MAX`].
    pub(super) unsignaled_max: Option<usize>,
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
    /// Inline data of those requests that have some, in their order.
    inline: Vec<[u8; INLINE]>,
}

impl Outbox {
    /// Requests that are posted or in the list.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether the list has to be posted before a request is added.
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= LIST_MAX
    }

    /// Adds a request to the list. Its work request ID is its number, marked with `mark`.
    pub(super) fn push(&mut self, mark: u64, remote: Remote, work: LocalData, token: u64) {
        let (mut flag, mut binding, mut least) = (0, None, 0);
        let (kept, element) = match work {
            LocalData::Buffer(owned, element) => (Kept::Buffer(owned), element),
            LocalData::Shared(others, element) => {
                least = SHARED_BYTES;
                (Kept::Shared(others), element)
            }
            LocalData::Landing(others, element) => (Kept::Landing(others), element),
            LocalData::Inline(bytes, length) => {
                flag = IBV_SEND_INLINE;
                self.inline.push(bytes);
                (
                    Kept::Nothing,
                    ibv_sge {
                        addr: 0,
                        length: length as u32,
                        lkey: 0,
                    },
                )
            }
            LocalData::Binding(bind) => {
                binding = Some(bind);
                (
                    Kept::Nothing,
                    ibv_sge {
                        addr: 0,
                        length: 0,
                        lkey: 0,
                    },
                )
            }
        };
        self.unsignaled += 1;
        self.unsignaled_bytes += (element.length as usize).max(least);
        let is_signaled = self.reports_each
            || remote.opcode == IBV_WR_RDMA_READ
            || self.unsignaled >= self.unsignaled_max.unwrap_or(UNSIGNALED_MAX)
            || self.unsignaled_bytes >= UNSIGNALED_BYTES_MAX;
        if is_signaled {
            (self.unsignaled, self.unsignaled_bytes) = (0, 0);
        }
        // SAFETY: a request of zeros is a request: numbers, null pointers, a union of numbers.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = mark | (self.first + self.sent.len() as u64);
        request.num_sge = c_int::from(binding.is_none());
        request.opcode = remote.opcode;
        request.send_flags = flag | if is_signaled { IBV_SEND_SIGNALED } else { 0 };
        request.imm_data = remote.invalidate;
        request.wr.rdma = ibv_wr_rdma {
            remote_addr: remote.address,
            rkey: remote.key,
        };
        if let Some(binding) = binding {
            request.bind_mw = binding;
        }
        self.sent.push_back(Sent { token, kept });
        self.requests.push(request);
        self.elements.push(element);
    }

    /// Posts the list.
    ///
    /// # Errors
    /// The error number, when the queue pair rejects the requests: the connection is then broken.
    ///
    /// # Safety
    /// The queue pair is live, and is destroyed before this is dropped.
    pub(super) unsafe fn post(&mut self, qp: *mut ibv_qp) -> Result<(), c_int> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let mut next = ptr::null_mut();
        let mut inline = self.inline.iter().rev();
        for (request, element) in self.requests.iter_mut().zip(&mut self.elements).rev() {
            if request.send_flags & IBV_SEND_INLINE != 0 {
                element.addr = inline.next().map_or(ptr::null(), |bytes| bytes.as_ptr()) as u64;
            }
            (request.sg_list, request.next) = (element, next);
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: as the caller says; a list whose parts live until the call returns, and whose buffers are
        // kept until they are done with. A peer's key and address are checked by the peer.
        let code = unsafe {
            (*(*qp).context)
                .ops
                .post_send
                .map_or(-1, |post| post(qp, next, &mut bad))
        };
        self.requests.clear();
        self.elements.clear();
        self.inline.clear();
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Posted requests that a signaled completion will report: those after the last signaled one complete
    /// with a later one.
    pub(super) fn in_flight(&self) -> usize {
        self.sent.len().saturating_sub(self.unsignaled)
    }

    /// Handles the completion of a request, which implies those before it: passes on their tokens and
    /// buffers, and whether each is the signaled one.
    pub(super) fn retire(&mut self, number: u64, mut out: impl FnMut(u64, Option<Buffer>, bool)) {
        while self.first <= number
            && let Some(Sent { token, kept }) = self.sent.pop_front()
        {
            let buffer = if let Kept::Buffer(buffer) = kept {
                Some(buffer)
            } else {
                None
            };
            out(token, buffer, self.first == number);
            self.first += 1;
        }
    }
}

/// Receives, posted in lists as well.
#[derive(Default)]
pub(super) struct Inbox {
    requests: Vec<ibv_recv_wr>,
    elements: Vec<ibv_sge>,
}

impl Inbox {
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= LIST_MAX
    }

    pub(super) fn push(&mut self, wr_id: u64, element: ibv_sge) {
        let (next, sg_list) = (ptr::null_mut(), ptr::null_mut());
        self.requests.push(ibv_recv_wr {
            wr_id,
            next,
            sg_list,
            num_sge: 1,
        });
        self.elements.push(element);
    }

    /// Posts the list.
    ///
    /// # Errors
    /// As [`Outbox::post`].
    ///
    /// # Safety
    /// As for [`Outbox::post`]; the buffers are kept until their receives have completed.
    pub(super) unsafe fn post(&mut self, qp: *mut ibv_qp) -> Result<(), c_int> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let mut next = ptr::null_mut();
        for (request, element) in self.requests.iter_mut().zip(&mut self.elements).rev() {
            (request.sg_list, request.next) = (element, next);
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: as the caller says; a list whose parts live until the call returns.
        let code = unsafe {
            (*(*qp).context)
                .ops
                .post_recv
                .map_or(-1, |post| post(qp, next, &mut bad))
        };
        self.requests.clear();
        self.elements.clear();
        if code == 0 { Ok(()) } else { Err(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_retires_all_earlier_requests() {
        let mut outbox = Outbox::default();
        for token in 0..UNSIGNALED_MAX as u64 + 1 {
            outbox.push(
                1 << 62,
                Remote::default(),
                LocalData::Inline([0; INLINE], 16),
                token,
            );
        }
        let signaled = |it: &ibv_send_wr| it.send_flags & IBV_SEND_SIGNALED != 0;
        let signaled: Vec<_> = outbox
            .requests
            .iter()
            .filter(|it| signaled(it))
            .map(|it| it.wr_id)
            .collect();
        assert_eq!(signaled, [1 << 62 | (UNSIGNALED_MAX as u64 - 1)]);
        let mut retired = Vec::new();
        outbox.retire(UNSIGNALED_MAX as u64 - 1, |token, _, is_it| {
            retired.push((token, is_it))
        });
        assert_eq!(retired.len(), UNSIGNALED_MAX);
        assert_eq!(retired.iter().filter(|(_, is_it)| *is_it).count(), 1);
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn an_owner_of_few_buffers_gets_them_back_before_it_has_none() {
        let mut outbox = Outbox {
            unsignaled_max: Some(4),
            ..Outbox::default()
        };
        for token in 0..8 {
            outbox.push(
                0,
                Remote::default(),
                LocalData::Inline([0; INLINE], 16),
                token,
            );
        }
        let flags = outbox
            .requests
            .iter()
            .map(|it| it.send_flags & IBV_SEND_SIGNALED != 0);
        assert_eq!(
            flags.collect::<Vec<_>>(),
            [false, false, false, true, false, false, false, true]
        );
    }

    #[test]
    fn shared_buffers_are_given_back_soon() {
        let mut outbox = Outbox::default();
        let shared = Arc::new(Buffer::zeroed(4096));
        for token in 0..8 {
            let element = ibv_sge {
                addr: 0,
                length: 4096,
                lkey: 0,
            };
            outbox.push(
                0,
                Remote::default(),
                LocalData::Shared(Arc::clone(&shared), element),
                token,
            );
        }
        let flags = outbox
            .requests
            .iter()
            .map(|it| it.send_flags & IBV_SEND_SIGNALED != 0);
        assert_eq!(flags.filter(|is_signaled| *is_signaled).count(), 2);
    }

    #[test]
    fn buffers_return_to_their_owner() {
        let mut outbox = Outbox::default();
        let length = UNSIGNALED_BYTES_MAX as u32;
        let element = ibv_sge {
            addr: 0,
            length,
            lkey: 0,
        };
        let work = LocalData::Buffer(Buffer::zeroed(UNSIGNALED_BYTES_MAX), element);
        outbox.push(0, Remote::default(), work, 0);
        assert_ne!(outbox.requests[0].send_flags & IBV_SEND_SIGNALED, 0);
    }
}
