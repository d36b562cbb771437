//! Faults that the driver was asked for: asynchronous errors, with the events and what they mean for their
//! objects, and messages that are refused although a receive is posted.

use super::Device;
use crate::error::Error;
use crate::event::Event;
use crate::handle::{Cq, Srq};
use crate::qp::attr::{AttrMask, QpAttr, State};
use crate::time::Instant;
use wire::Qpn;

impl Device {
    /// Raises an event about a queue pair that is in the error state from then on, such as
    /// [`Event::QpFatal`] (IBTA 11.6.3.2).
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn fail_qp(&mut self, qpn: Qpn, event: Event, now: Instant) -> Result<(), Error> {
        let attr = QpAttr {
            state: State::Error,
            ..QpAttr::default()
        };
        self.modify_qp(qpn, &attr, AttrMask::STATE, now)?;
        self.resources.events.push_back(event);
        Ok(())
    }

    /// Lets a completion queue overrun: [`Event::CqError`], and its queue pairs go to the error state.
    pub fn fail_cq(&mut self, cq: Cq) {
        self.resources.cqs.overrun(cq, &mut self.resources.events);
    }

    /// Raises [`Event::SrqLimitReached`], and disarms the limit.
    pub fn report_srq_limit(&mut self, srq: Srq) {
        if let Ok(queue) = self.resources.srqs.get_mut(srq) {
            queue.limit = 0;
            self.resources.events.push_back(Event::SrqLimitReached(srq));
        }
    }

    /// Raises [`Event::GidChange`] without a change.
    pub fn report_gid_change(&mut self) {
        self.resources.events.push_back(Event::GidChange);
    }

    /// Has the message that would take the receive that was posted last refused with an RNR NAK, so many
    /// times; datagrams are lost.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn refuse_last_receive(&mut self, qpn: Qpn, times: u32) -> Result<(), Error> {
        self.queue_pairs.with(&mut self.resources, qpn, |qp, _| {
            qp.refuse_last_receive(times);
            Ok(())
        })
    }

    /// As [`Self::refuse_last_receive`], for a shared receive queue.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn refuse_last_shared_receive(&mut self, srq: Srq, times: u32) -> Result<(), Error> {
        self.resources.srqs.get_mut(srq)?.queue.refuse_last(times);
        Ok(())
    }
}
