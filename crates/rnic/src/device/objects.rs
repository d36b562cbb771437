//! Verbs on regions, windows, completion queues and shared receive queues.

use super::Device;
use crate::completion::Completion;
use crate::cq::{Arm, CompletionQueue, Moderation};
use crate::error::Error;
use crate::handle::{Cq, Lkey, Pd, Srq, Window, Xrcd};
use crate::receive::{ReceiveQueue, SharedReceiveQueue};
use crate::region::{RegionChange, RegionInit, RegionKeys, WindowKind};
use crate::work::ReceiveRequest;
use wire::{Qpn, Rkey};

/// Regions and windows.
impl Device {
    /// Registers memory.
    pub fn register(&mut self, pd: Pd, init: RegionInit) -> Result<RegionKeys, Error> {
        self.check_pd(pd)?;
        self.resources.regions.register(pd, init, &mut self.random)
    }

    /// Registers a region of all addresses with nothing behind it: what is stored there is gone, what is read
    /// is zeros. Peers have no key for it.
    pub fn register_null(&mut self, pd: Pd) -> Result<Lkey, Error> {
        self.check_pd(pd)?;
        self.resources.regions.register_null(pd, &mut self.random)
    }

    /// Changes a region; unless only rights change, its old keys stop working. On an error the region is as
    /// it was.
    pub fn reregister(&mut self, lkey: Lkey, change: RegionChange) -> Result<RegionKeys, Error> {
        if let Some(pd) = change.pd {
            self.check_pd(pd)?;
        }
        self.resources.regions.reregister(lkey, change, &mut self.random)
    }

    /// Deregisters memory: when this returns, nothing touches it any more. Fails while windows are bound to
    /// it.
    pub fn deregister(&mut self, lkey: Lkey) -> Result<(), Error> {
        self.resources.regions.deregister(lkey)
    }

    /// Makes a memory window, and its first key.
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowKind) -> Result<(Window, Rkey), Error> {
        self.check_pd(pd)?;
        self.resources.regions.alloc_window(pd, kind, &mut self.random)
    }

    /// Removes a memory window, bound or not.
    pub fn dealloc_window(&mut self, window: Window) -> Result<(), Error> {
        self.resources.regions.dealloc_window(window)
    }

    /// The key that a type 1 window gets with its next binding (`ibv_bind_mw`).
    pub fn next_window_key(&mut self, window: Window) -> Result<Rkey, Error> {
        self.resources.regions.next_window_key(window)
    }
}

/// Completion queues.
impl Device {
    /// Makes a completion queue.
    pub fn create_cq(&mut self, entries: u32) -> Result<Cq, Error> {
        self.check_cqe(entries)?;
        if self.resources.cqs.len() >= self.resources.config.max_cq as usize {
            return Err(Error::Exhausted("completion queues"));
        }
        Ok(Cq(self.resources.cqs.insert(CompletionQueue::new(entries)) as u32))
    }

    /// Changes the size. It cannot fall below what waits in the queue.
    pub fn resize_cq(&mut self, cq: Cq, entries: u32) -> Result<(), Error> {
        self.check_cqe(entries)?;
        let queue = self.cq(cq)?;
        if queue.len() > entries {
            return Err(Error::Invalid("more completions wait in the queue than it would hold"));
        }
        queue.resize(entries);
        Ok(())
    }

    /// Says how long an armed queue waits with its event for further completions.
    pub fn moderate_cq(&mut self, cq: Cq, moderation: Moderation) -> Result<(), Error> {
        self.cq(cq)?.moderate(moderation);
        Ok(())
    }

    /// Removes a completion queue that no queue pair or SRQ uses.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        if self.cq(cq)?.users > 0 {
            return Err(Error::Busy);
        }
        self.resources.cqs.remove(cq.0 as usize);
        Ok(())
    }

    /// Asks for one [`crate::Event::Completion`], for a completion that comes later.
    pub fn arm_cq(&mut self, cq: Cq, arm: Arm) -> Result<(), Error> {
        self.cq(cq)?.arm(arm);
        Ok(())
    }

    /// Hands up to `most` completions to `take`, oldest first; returns how many.
    pub fn poll_cq(&mut self, cq: Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        let Ok(queue) = self.cq(cq) else { return 0 };
        let mut taken = 0;
        while taken < most {
            let Some(completion) = queue.pop() else { break };
            take(&completion);
            taken += 1;
        }
        taken
    }

    /// How many completions [`Self::poll_cq`] would find.
    pub fn completions(&self, cq: Cq) -> usize {
        self.resources.cqs.get(cq.0 as usize).map_or(0, |queue| queue.len() as usize)
    }

    /// Whether [`Self::poll_cq`] would find something.
    pub fn has_completions(&self, cq: Cq) -> bool {
        self.completions(cq) > 0
    }

    fn cq(&mut self, cq: Cq) -> Result<&mut CompletionQueue, Error> {
        self.resources.cqs.get_mut(cq.0 as usize).ok_or(Error::NoSuchObject)
    }

    fn check_cqe(&self, entries: u32) -> Result<(), Error> {
        if entries == 0 || entries > self.resources.config.max_cqe {
            return Err(Error::Invalid("a completion queue has 1 to max_cqe entries"));
        }
        Ok(())
    }
}

/// Shared receive queues.
impl Device {
    /// Makes a shared receive queue; `xrc` makes it one for XRC, with its domain and completion queue.
    pub fn create_srq(
        &mut self,
        pd: Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(Xrcd, Cq)>,
    ) -> Result<Srq, Error> {
        self.check_pd(pd)?;
        let config = &self.resources.config;
        if max_wr == 0 || max_wr > config.max_srq_wr || max_sge > config.max_sge {
            return Err(Error::Invalid("a shared receive queue is larger than the device allows"));
        }
        if self.resources.srqs.len() >= config.max_srq as usize {
            return Err(Error::Exhausted("shared receive queues"));
        }
        if let Some((xrcd, cq)) = xrc {
            self.cq(cq)?;
            if self.resources.srqs.vacant_key() >= self.resources.srq_numbers.1 as usize {
                return Err(Error::Exhausted("numbers of XRC shared receive queues"));
            }
            self.xrcds.get_mut(xrcd.0 as usize).ok_or(Error::NoSuchObject)?.users += 1;
            self.cq(cq)?.users += 1;
        }
        let queue = ReceiveQueue::new(max_wr, max_sge);
        let srq = SharedReceiveQueue { pd, queue, limit: 0, xrc, users: 0 };
        Ok(Srq(self.resources.srqs.insert(srq) as u32))
    }

    /// Changes the size, and arms the limit: [`crate::Event::SrqLimitReached`] comes when fewer requests are
    /// left.
    pub fn modify_srq(&mut self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let most = self.resources.config.max_srq_wr;
        let srq = self.srq(srq)?;
        let (current, _) = srq.queue.limits();
        let new = max_wr.unwrap_or(current);
        if new == 0 || new > most || new < srq.queue.len() {
            return Err(Error::Invalid("the shared receive queue cannot have this size"));
        }
        if limit.is_some_and(|limit| limit > new) {
            return Err(Error::Invalid("the limit is larger than the shared receive queue"));
        }
        srq.queue.resize(new);
        srq.limit = limit.unwrap_or(srq.limit);
        Ok(())
    }

    /// Size, elements per request, and limit (0 when it is not armed).
    pub fn query_srq(&self, srq: Srq) -> Result<(u32, u32, u32), Error> {
        let srq = self.resources.srqs.get(srq.0 as usize).ok_or(Error::NoSuchObject)?;
        let (max_wr, max_sge) = srq.queue.limits();
        Ok((max_wr, max_sge, srq.limit))
    }

    /// Removes a shared receive queue that no queue pair uses.
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), Error> {
        let entry = self.srq(srq)?;
        if entry.users > 0 {
            return Err(Error::Busy);
        }
        if let Some((xrcd, cq)) = entry.xrc {
            self.cq(cq)?.users -= 1;
            self.xrcds.get_mut(xrcd.0 as usize).ok_or(Error::NoSuchObject)?.users -= 1;
        }
        self.resources.srqs.remove(srq.0 as usize);
        self.resources.not_ready.retain(|&(waits_for, _)| waits_for != srq);
        Ok(())
    }

    /// Posts a receive that any of its queue pairs may take.
    pub fn post_srq_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.srq(srq)?.queue.post(request)?;
        while let Some(qpn) = self.resources.take_not_ready(srq) {
            // One that is gone, or has no need of it any more, leaves the receive to the next.
            if self.tell_ready(qpn) {
                break;
            }
        }
        Ok(())
    }

    /// Numbers of XRC shared receive queues: a host grants each of its devices others, so that a number tells
    /// whose queue it is. Without this they begin with 0.
    pub fn set_srq_numbers(&mut self, first: Qpn, count: u32) {
        self.resources.srq_numbers = (first.value(), count);
    }

    /// The number by which peers name an XRC shared receive queue.
    pub fn srq_number(&self, srq: Srq) -> Qpn {
        Qpn::new(self.resources.srq_numbers.0 + srq.0)
    }

    fn srq(&mut self, srq: Srq) -> Result<&mut SharedReceiveQueue, Error> {
        self.resources.srqs.get_mut(srq.0 as usize).ok_or(Error::NoSuchObject)
    }
}
