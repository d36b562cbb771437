//! Verbs on shared receive queues.

use super::Device;
use crate::error::Error;
use crate::handle::{Cq, Pd, Srq, Xrcd};
use crate::receive::{ReceiveQueue, SharedReceiveQueue};
use crate::work::ReceiveRequest;
use wire::Qpn;

impl Device {
    /// Operations on shared receive queues.
    #[inline]
    pub fn srqs(&mut self) -> Srqs<'_> {
        Srqs(self)
    }
}

/// The shared receive queues of a device ([`Device::srqs`]).
#[derive(Debug)]
pub struct Srqs<'d>(&'d mut Device);

impl Srqs<'_> {
    /// Creates a shared receive queue; `xrc` makes it one for XRC, with its domain and completion queue.
    pub fn create(
        &mut self,
        pd: Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(Xrcd, Cq)>,
    ) -> Result<Srq, Error> {
        let Device {
            domains, resources, ..
        } = &mut *self.0;
        domains.check_pd(pd)?;
        let config = &resources.config;
        if max_wr == 0 || max_wr > config.max_srq_wr || max_sge > config.max_sge {
            return Err(Error::Invalid(
                "a shared receive queue is larger than the device allows",
            ));
        }
        if resources.srqs.len() >= config.max_srq as usize {
            return Err(Error::Exhausted("shared receive queues"));
        }
        if let Some((xrcd, cq)) = xrc {
            let cq = resources.cqs.get_mut(cq)?;
            if !resources.srqs.has_number() {
                return Err(Error::Exhausted("numbers of XRC shared receive queues"));
            }
            *domains.users(xrcd)? += 1;
            cq.users += 1;
        }
        let queue = ReceiveQueue::new(max_wr, max_sge);
        Ok(resources.srqs.insert(SharedReceiveQueue {
            pd,
            queue,
            limit: 0,
            xrc,
            users: 0,
        }))
    }

    /// Changes the size, and arms the limit: [`crate::Event::SrqLimitReached`] is raised when fewer requests
    /// are left.
    pub fn modify(
        &mut self,
        srq: Srq,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), Error> {
        let resources = &mut self.0.resources;
        let srq = resources.srqs.get_mut(srq)?;
        let (current, _) = srq.queue.limits();
        let new = max_wr.unwrap_or(current);
        if new == 0 || new > resources.config.max_srq_wr || new < srq.queue.len() {
            return Err(Error::Invalid(
                "the shared receive queue cannot have this size",
            ));
        }
        if limit.is_some_and(|limit| limit > new) {
            return Err(Error::Invalid(
                "the limit is larger than the shared receive queue",
            ));
        }
        srq.queue.resize(new);
        srq.limit = limit.unwrap_or(srq.limit);
        Ok(())
    }

    /// Size, elements per request, and limit (0 when it is not armed).
    pub fn query(&self, srq: Srq) -> Result<(u32, u32, u32), Error> {
        let srq = self.0.resources.srqs.get(srq).ok_or(Error::NoSuchObject)?;
        let (max_wr, max_sge) = srq.queue.limits();
        Ok((max_wr, max_sge, srq.limit))
    }

    /// Removes a shared receive queue that no queue pair uses.
    pub fn destroy(&mut self, srq: Srq) -> Result<(), Error> {
        let Device {
            domains, resources, ..
        } = &mut *self.0;
        let entry = resources.srqs.get_mut(srq)?;
        if entry.users > 0 {
            return Err(Error::Busy);
        }
        if let Some((xrcd, cq)) = entry.xrc {
            resources.cqs.get_mut(cq)?.users -= 1;
            *domains.users(xrcd)? -= 1;
        }
        resources.srqs.remove(srq);
        Ok(())
    }

    /// Posts a receive for any of its queue pairs.
    pub fn post_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        let Device {
            queue_pairs,
            resources,
            ..
        } = &mut *self.0;
        resources.srqs.get_mut(srq)?.queue.post(request)?;
        while let Some(qpn) = resources.srqs.take_not_ready(srq) {
            // A queue pair that was destroyed, or needs no receive any more, leaves it to the next.
            if queue_pairs.announce_receive(resources, qpn) {
                break;
            }
        }
        Ok(())
    }

    /// Sets the numbers of XRC shared receive queues: a host grants each of its devices a different range, so
    /// that a number identifies the owner of the queue. By default they begin with 0.
    pub fn set_numbers(&mut self, first: Qpn, count: u32) {
        self.0.resources.srqs.set_numbers(first, count);
    }

    /// The number by which peers name an XRC shared receive queue.
    pub fn number(&self, srq: Srq) -> Qpn {
        self.0.resources.srqs.number(srq)
    }
}
