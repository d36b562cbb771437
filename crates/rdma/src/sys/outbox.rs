//! Requests on their way to a send queue: posted in lists, since each call takes the device's lock, and told
//! of when done only now and then, since each completion costs both the device and the program.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use abi::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge,
    ibv_wr_rdma,
};

use super::buffer::Buffer;

/// Requests that one call posts.
const LIST_MAX: usize = 64;
/// Requests without a completion of their own, in a row.
const UNTOLD_MAX: usize = 16;
/// Bytes of their buffers, which come back with the completion of a later one.
const UNTOLD_BYTES_MAX: usize = 256 << 10;
/// Bytes that a request can carry itself: a command, or a completion.
pub(super) const INLINE: usize = 64;

/// A request that the queue has, or is about to.
struct Sent {
    token: u64,
    buffer: Option<Buffer>,
    _lent: Option<Arc<Buffer>>,
}

/// What a request works on.
pub(super) enum Work {
    /// So many bytes of a buffer, where they lie for the device.
    Buffer(Buffer, ibv_sge),
    /// The same of one that others have as well, to be read.
    Lent(Arc<Buffer>, ibv_sge),
    /// Bytes of its own.
    Inline([u8; INLINE], usize),
}

/// The peer's side of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Remote {
    pub(super) opcode: u32,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) invalidate: u32,
}

/// The requests of one send queue, which completes them in their order.
#[derive(Default)]
pub(super) struct Outbox {
    sent: VecDeque<Sent>,
    /// The number of the oldest.
    first: u64,
    untold: usize,
    untold_bytes: usize,
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
    inline: Vec<[u8; INLINE]>,
}

impl Outbox {
    /// Requests that the queue has, or is about to.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether the list has to be posted before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= LIST_MAX
    }

    /// Adds a request to the list. Its number, marked with `mark`, is what its completion says.
    pub(super) fn push(&mut self, mark: u64, remote: Remote, work: Work, token: u64) {
        let (mut buffer, mut lent, mut inline, mut flag) = (None, None, [0; INLINE], 0);
        let element = match work {
            Work::Buffer(owned, element) => {
                buffer = Some(owned);
                element
            }
            Work::Lent(others, element) => {
                lent = Some(others);
                element
            }
            Work::Inline(bytes, length) => {
                (inline, flag) = (bytes, IBV_SEND_INLINE);
                ibv_sge { addr: 0, length: length as u32, lkey: 0 }
            }
        };
        self.untold += 1;
        self.untold_bytes += element.length as usize;
        let tells = remote.opcode == IBV_WR_RDMA_READ
            || self.untold >= UNTOLD_MAX
            || self.untold_bytes >= UNTOLD_BYTES_MAX;
        if tells {
            (self.untold, self.untold_bytes) = (0, 0);
        }
        // SAFETY: a request of zeros is a request: numbers, null pointers, a union of numbers.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = mark | (self.first + self.sent.len() as u64);
        request.num_sge = 1;
        request.opcode = remote.opcode;
        request.send_flags = flag | if tells { IBV_SEND_SIGNALED } else { 0 };
        request.imm_data = remote.invalidate;
        request.wr.rdma = ibv_wr_rdma { remote_addr: remote.address, rkey: remote.key };
        self.sent.push_back(Sent { token, buffer, _lent: lent });
        self.requests.push(request);
        self.elements.push(element);
        self.inline.push(inline);
    }

    /// Posts the list.
    ///
    /// # Errors
    /// The error number, when the queue pair takes no more: it is broken then.
    ///
    /// # Safety
    /// The queue pair is there, and is destroyed before this is dropped.
    pub(super) unsafe fn post(&mut self, qp: *mut ibv_qp) -> Result<(), c_int> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let mut next = ptr::null_mut();
        let parts = self.requests.iter_mut().zip(&mut self.elements).zip(&mut self.inline);
        for ((request, element), inline) in parts.rev() {
            if request.send_flags & IBV_SEND_INLINE != 0 {
                element.addr = inline.as_ptr() as u64;
            }
            (request.sg_list, request.next) = (element, next);
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: as the caller says; a list whose parts live until the call returns, and whose buffers are
        // kept until they are done with. A peer's key and address are checked by the peer.
        let code = unsafe { (*(*qp).context).ops.post_send.map_or(-1, |post| post(qp, next, &mut bad)) };
        self.requests.clear();
        self.elements.clear();
        self.inline.clear();
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// The request of this number is done, and with it all before: hands out their tokens and buffers, and
    /// which of them is the one.
    pub(super) fn retire(&mut self, number: u64, mut out: impl FnMut(u64, Option<Buffer>, bool)) {
        while self.first <= number
            && let Some(Sent { token, buffer, .. }) = self.sent.pop_front()
        {
            out(token, buffer, self.first == number);
            self.first += 1;
        }
    }
}

/// Receives on their way to their queue, in lists as well.
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
        self.requests.push(ibv_recv_wr { wr_id, next, sg_list, num_sge: 1 });
        self.elements.push(element);
    }

    /// Posts the list.
    ///
    /// # Errors
    /// As [`Outbox::post`].
    ///
    /// # Safety
    /// As [`Outbox::post`]; the buffers are kept until their receives have completed.
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
        let code = unsafe { (*(*qp).context).ops.post_recv.map_or(-1, |post| post(qp, next, &mut bad)) };
        self.requests.clear();
        self.elements.clear();
        if code == 0 { Ok(()) } else { Err(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_stands_for_all_before_it() {
        let mut outbox = Outbox::default();
        for token in 0..UNTOLD_MAX as u64 + 1 {
            outbox.push(1 << 62, Remote::default(), Work::Inline([0; INLINE], 16), token);
        }
        let told = |it: &ibv_send_wr| it.send_flags & IBV_SEND_SIGNALED != 0;
        let told: Vec<_> = outbox.requests.iter().filter(|it| told(it)).map(|it| it.wr_id).collect();
        assert_eq!(told, [1 << 62 | (UNTOLD_MAX as u64 - 1)]);
        let mut retired = Vec::new();
        outbox.retire(UNTOLD_MAX as u64 - 1, |token, _, is_it| retired.push((token, is_it)));
        assert_eq!(retired.len(), UNTOLD_MAX);
        assert_eq!(retired.iter().filter(|(_, is_it)| *is_it).count(), 1);
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn buffers_are_not_kept_from_their_owner() {
        let mut outbox = Outbox::default();
        let length = UNTOLD_BYTES_MAX as u32;
        let element = ibv_sge { addr: 0, length, lkey: 0 };
        let work = Work::Buffer(Buffer::zeroed(UNTOLD_BYTES_MAX), element);
        outbox.push(0, Remote::default(), work, 0);
        assert_ne!(outbox.requests[0].send_flags & IBV_SEND_SIGNALED, 0);
    }
}
