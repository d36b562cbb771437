//! Requests that the `ibv_wr_…` functions build.

use crate::limits::{INLINE, SGES};
use abi::{ibv_send_wr, ibv_sge};
use core::ops::Range;
use ffi::Errno;

/// Requests under construction. The buffers stay allocated between batches.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<(ibv_send_wr, Local)>,
    pub(crate) sges: Vec<ibv_sge>,
    pub(crate) inline: Vec<u8>,
    /// The inline data of each request that has some, as one element.
    inline_sges: Vec<ibv_sge>,
    pub(crate) failure: Option<Errno>,
}

/// The local side of a request: ranges of the batch's buffers.
#[derive(Default)]
pub(crate) struct Local {
    pub(crate) sges: Range<usize>,
    pub(crate) inline: Option<Range<usize>>,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.failure = None;
    }

    /// The request that setters fill. A setter before any request is a mistake of the program.
    pub(crate) fn current(&mut self) -> Option<&mut (ibv_send_wr, Local)> {
        if self.requests.is_empty() {
            self.failure = Some(Errno::INVALID);
        }
        self.requests.last_mut()
    }

    pub(crate) fn set_sges(&mut self, sges: impl IntoIterator<Item = ibv_sge>) {
        let start = self.sges.len();
        self.sges.extend(sges.into_iter().take(SGES + 1));
        let range = start..self.sges.len();
        if range.len() > SGES {
            self.failure = Some(Errno::INVALID);
        }
        if let Some((_, local)) = self.current() {
            local.sges = range;
        }
    }

    /// Records that the request's inline data begins at `end` and ends at the buffer's end.
    pub(crate) fn set_inline(&mut self, start: usize) {
        let range = start..self.inline.len();
        if range.len() > INLINE {
            self.failure = Some(Errno::INVALID);
        }
        if let Some((wr, local)) = self.current() {
            wr.send_flags |= abi::IBV_SEND_INLINE;
            local.inline = Some(range);
        }
    }

    /// Sets the list of elements of each request. The buffers must not change until the requests are posted.
    pub(crate) fn point_to_data(&mut self) {
        let Self {
            requests,
            sges,
            inline,
            inline_sges,
            ..
        } = self;
        inline_sges.clear();
        inline_sges.extend(requests.iter().filter_map(|(_, local)| {
            let bytes = &inline[local.inline.clone()?];
            Some(ibv_sge {
                addr: bytes.as_ptr() as u64,
                length: bytes.len() as u32,
                lkey: 0,
            })
        }));
        let mut inline_sges = inline_sges.chunks_mut(1);
        for (wr, local) in requests {
            let list = match local.inline {
                Some(_) => inline_sges.next().unwrap_or_default(),
                None => &mut sges[local.sges.clone()],
            };
            (wr.sg_list, wr.num_sge) = (list.as_mut_ptr(), list.len() as i32);
        }
    }
}
