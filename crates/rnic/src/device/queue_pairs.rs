//! Verbs on queue pairs.

use super::Device;
use crate::address::Gid;
use crate::error::Error;
use crate::handle::Cq;
use crate::qp::Qp;
use crate::qp::attr::{AttrMask, QpAttr, QpInit, QpType, State};
use crate::qp::emit::source_port;
use crate::qp::state;
use crate::resources::Resources;
use crate::time::Instant;
use crate::work::{ReceiveRequest, SendRequest};
use alloc::boxed::Box;
use wire::Qpn;

impl Device {
    /// Makes a queue pair.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, Error> {
        self.check_init(init)?;
        if self.qps.len() >= self.resources.config.max_qp as usize {
            return Err(Error::Exhausted("queue pairs"));
        }
        let index = self.qps.vacant_key();
        let qpn =
            self.qpns.allocate(index, &mut self.random).ok_or(Error::Exhausted("queue pair numbers"))?;
        self.insert_qp(qpn, init);
        Ok(qpn)
    }

    /// Makes queue pair 1, the general services interface: a UD queue pair with a fixed number. A host has
    /// one.
    pub fn create_gsi(&mut self, init: &QpInit) -> Result<(), Error> {
        self.check_init(init)?;
        if init.kind != QpType::Ud {
            return Err(Error::Invalid("the general services interface is a datagram service"));
        }
        if self.qpns.index(Qpn::GSI).is_some() {
            return Err(Error::Busy);
        }
        self.qpns.set_gsi(Some(self.qps.vacant_key()));
        self.insert_qp(Qpn::GSI, init);
        Ok(())
    }

    fn insert_qp(&mut self, qpn: Qpn, init: &QpInit) {
        self.count_users(init, 1);
        let mut qp = Qp::new(qpn, init, &self.resources);
        let domain = init.xrcd.and_then(|xrcd| self.xrcds.get(xrcd.0 as usize));
        qp.share(domain.and_then(|domain| domain.name));
        self.qps.insert(Box::new(qp));
    }

    /// Every object named must exist, and every object needed be named (IBTA 11.2.5.1).
    fn check_init(&self, init: &QpInit) -> Result<(), Error> {
        let config = &self.resources.config;
        let capacity = &init.capacity;
        let too_large = capacity.send_wr > config.max_qp_wr
            || capacity.receive_wr > config.max_qp_wr
            || capacity.send_sge > config.max_sge
            || capacity.receive_sge > config.max_sge
            || capacity.inline > config.max_inline;
        if too_large {
            return Err(Error::Invalid("a queue pair is larger than the device allows"));
        }
        let (pd, xrcd, send, receive) = match init.kind {
            QpType::XrcReceive => (false, true, false, false),
            QpType::XrcSend => (true, false, true, false),
            _ => (true, false, true, true),
        };
        let missing = (pd && init.pd.is_none())
            || (xrcd && init.xrcd.is_none())
            || (send && init.send_cq.is_none())
            || (receive && init.receive_cq.is_none());
        if missing {
            return Err(Error::Invalid("an object that this type of queue pair needs is not given"));
        }
        let known = |cq: Option<Cq>| cq.is_none_or(|cq| self.resources.cqs.contains(cq.0 as usize));
        let srq_known = init.srq.is_none_or(|srq| self.resources.srqs.contains(srq.0 as usize));
        let xrcd_known = init.xrcd.is_none_or(|xrcd| self.xrcds.contains(xrcd.0 as usize));
        let all_known = known(init.send_cq) && known(init.receive_cq) && srq_known && xrcd_known;
        if !all_known || init.pd.is_some_and(|pd| self.check_pd(pd).is_err()) {
            return Err(Error::NoSuchObject);
        }
        Ok(())
    }

    /// Changes attributes, and the state among them. Nothing is changed when it fails.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr, mask: AttrMask, now: Instant) -> Result<(), Error> {
        let max_rd_atomic = self.resources.config.max_rd_atomic;
        let changed = self.with_qp(qpn, |qp, resources| {
            check_change(qp, resources, attr, mask, max_rd_atomic)?;
            apply(qp, resources, attr, mask, now);
            resources.note_queue(qpn);
            Ok(())
        });
        self.fail_overrun(now);
        changed
    }

    /// Has a connected queue pair send by a lane, from its next packet on; 0 is the network. The next change
    /// of its address vector brings it back there.
    pub fn set_lane(&mut self, qpn: Qpn, lane: u16) -> Result<(), Error> {
        self.with_qp(qpn, |qp, _| {
            qp.path.lane = lane;
            Ok(())
        })
    }

    /// The lane by which a queue pair sends.
    pub fn lane(&self, qpn: Qpn) -> Result<u16, Error> {
        Ok(self.qp(qpn)?.path.lane)
    }

    /// Brings the queue pairs that send by a lane back to the network: it is gone. So are the guests that
    /// came by it, and who is asked by it answers no more.
    pub fn close_lane(&mut self, lane: u16, now: Instant) {
        self.dismiss(|qp| qp.path.lane == lane, now);
        self.give_up_visits(lane, now);
        for (_, qp) in self.qps.iter_mut().filter(|(_, qp)| qp.path.lane == lane) {
            qp.path.lane = 0;
        }
        self.resume();
    }

    /// Attributes, and what it was made from.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttr, QpInit), Error> {
        let qp = self.qp(qpn)?;
        Ok((QpAttr { state: qp.state, current_state: qp.state, ..qp.attr }, qp.init))
    }

    /// Removes a queue pair. Its completions that were not taken are gone; what arrives for it is dropped.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), Error> {
        if self.groups.values().any(|members| members.contains(&qpn)) {
            return Err(Error::Busy);
        }
        self.with_qp(qpn, |qp, resources| {
            qp.reset(resources);
            Ok(())
        })?;
        let index = self.qpns.index(qpn).ok_or(Error::NoSuchObject)?;
        let qp = self.qps.remove(index);
        if qp.scheduled == crate::qp::Urgency::Data {
            self.urgent -= 1;
        }
        self.ready.retain(|&ready| ready != index);
        self.count_users(&qp.init, -1);
        if qpn == Qpn::GSI {
            self.qpns.set_gsi(None);
        }
        self.qpns.release(qpn);
        Ok(())
    }

    /// Notes in the objects of a queue pair that it uses them, or does so no longer.
    fn count_users(&mut self, init: &QpInit, by: i32) {
        let add = |users: &mut u32| *users = users.saturating_add_signed(by);
        for cq in [init.send_cq, init.receive_cq].into_iter().flatten() {
            if let Some(queue) = self.resources.cqs.get_mut(cq.0 as usize) {
                add(&mut queue.users);
            }
        }
        if let Some(srq) = init.srq.and_then(|srq| self.resources.srqs.get_mut(srq.0 as usize)) {
            add(&mut srq.users);
        }
        if let Some(domain) = init.xrcd.and_then(|xrcd| self.xrcds.get_mut(xrcd.0 as usize)) {
            add(&mut domain.users);
        }
    }

    /// Makes a UD queue pair receive what is sent to a multicast group.
    pub fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let config = &self.resources.config;
        let (groups, members) = (config.max_mcast_groups as usize, config.max_mcast_attach as usize);
        if self.qp(qpn)?.kind != QpType::Ud || !group.is_multicast() {
            return Err(Error::Invalid("only datagram queue pairs join, and only multicast groups"));
        }
        if self.groups.len() >= groups && !self.groups.contains_key(&group) {
            return Err(Error::Exhausted("multicast groups"));
        }
        let attached = self.groups.entry(group).or_default();
        if attached.len() >= members {
            return Err(Error::Exhausted("places in the multicast group"));
        }
        if !attached.contains(&qpn) {
            attached.push(qpn);
        }
        Ok(())
    }

    /// Whether any queue pair is attached to a multicast group.
    pub fn has_multicast(&self, group: Gid) -> bool {
        self.groups.contains_key(&group)
    }

    /// Ends it.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let attached = self.groups.get_mut(&group).ok_or(Error::Invalid("not attached to the group"))?;
        let position = attached.iter().position(|&member| member == qpn);
        attached.swap_remove(position.ok_or(Error::Invalid("not attached to the group"))?);
        if attached.is_empty() {
            self.groups.remove(&group);
        }
        Ok(())
    }

    /// Posts a send. In the error state it is accepted, and flushed.
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>, now: Instant) -> Result<(), Error> {
        self.with_qp(qpn, |qp, resources| qp.post_send(resources, request, now))
    }

    /// Posts a receive. In the error state it is accepted, and flushed when the queue pair is next touched.
    pub fn post_receive(
        &mut self,
        qpn: Qpn,
        request: &ReceiveRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        self.with_qp(qpn, |qp, resources| {
            if qp.state == State::Reset {
                return Err(Error::WrongState);
            }
            if qp.init.srq.is_some() || !matches!(qp.kind, QpType::Rc | QpType::Uc | QpType::Ud) {
                return Err(Error::Invalid("the queue pair has no receive queue of its own"));
            }
            qp.receive.post(request)?;
            qp.tell_ready();
            if qp.state == State::Error {
                qp.flush_receives(resources, now);
            }
            Ok(())
        })
    }
}

fn check_change(
    qp: &Qp,
    resources: &Resources,
    attr: &QpAttr,
    mask: AttrMask,
    max_rd_atomic: u8,
) -> Result<(), Error> {
    if mask.contains(AttrMask::CUR_STATE) && attr.current_state != qp.state {
        return Err(Error::Invalid("the queue pair is not in the state that the caller believes"));
    }
    let to = if mask.contains(AttrMask::STATE) { attr.state } else { qp.state };
    state::check(qp.kind, qp.state, to, mask)?;
    let out_of_range = |bit: AttrMask, bad: bool| mask.contains(bit) && bad;
    let wrong = out_of_range(AttrMask::PORT, attr.port != 1)
        || out_of_range(AttrMask::PKEY_INDEX, attr.pkey_index != 0)
        || out_of_range(AttrMask::TIMEOUT, attr.timeout > 31)
        || out_of_range(AttrMask::RETRY_CNT, attr.retry_count > 7)
        || out_of_range(AttrMask::RNR_RETRY, attr.rnr_retry > 7)
        || out_of_range(AttrMask::MIN_RNR_TIMER, attr.min_rnr_timer > 31)
        || out_of_range(AttrMask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic > max_rd_atomic)
        || out_of_range(AttrMask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic > max_rd_atomic);
    if wrong {
        return Err(Error::Invalid("an attribute is out of range"));
    }
    if out_of_range(AttrMask::PATH_MTU, attr.path_mtu > resources.active_mtu) {
        return Err(Error::Invalid("the path MTU is larger than the port's"));
    }
    if mask.contains(AttrMask::AV) && resources.path(&attr.vector, 0).is_none() {
        return Err(Error::Invalid("the source GID index names an empty entry"));
    }
    Ok(())
}

/// Takes over what the mask names. The checks are done.
fn apply(qp: &mut Qp, resources: &mut Resources, attr: &QpAttr, mask: AttrMask, now: Instant) {
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask.contains(AttrMask::$bit) { qp.attr.$field = attr.$field; })*
        };
    }
    take! {
        EN_SQD_ASYNC_NOTIFY => drain_notify,
        ACCESS_FLAGS => access,
        PKEY_INDEX => pkey_index,
        PORT => port,
        QKEY => qkey,
        AV => vector,
        PATH_MTU => path_mtu,
        TIMEOUT => timeout,
        RETRY_CNT => retry_count,
        RNR_RETRY => rnr_retry,
        RQ_PSN => receive_psn,
        MAX_QP_RD_ATOMIC => max_rd_atomic,
        MIN_RNR_TIMER => min_rnr_timer,
        SQ_PSN => send_psn,
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic,
        PATH_MIG_STATE => migration,
        DEST_QPN => destination,
    }
    if mask.contains(AttrMask::AV) {
        let port = source_port(attr.vector.flow_label, qp.qpn.value(), qp.attr.destination.value());
        qp.path = resources.path(&attr.vector, port).unwrap_or_default();
    }
    if mask.contains(AttrMask::RQ_PSN) {
        qp.responder.start(attr.receive_psn);
    }
    if mask.contains(AttrMask::SQ_PSN) {
        qp.requester.start(attr.send_psn);
    }
    if mask.contains(AttrMask::STATE) {
        enter(qp, resources, attr.state, now);
    }
}

fn enter(qp: &mut Qp, resources: &mut Resources, to: State, now: Instant) {
    match to {
        State::Reset => {
            qp.reset(resources);
            qp.attr = QpAttr::default();
        }
        State::Error => qp.fail_to_error(resources, now),
        State::SendQueueDrained => {
            qp.state = to;
            qp.drain(resources);
        }
        _ => qp.state = to,
    }
}
