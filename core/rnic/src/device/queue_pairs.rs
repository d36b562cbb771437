//! Verbs on queue pairs.

use super::Device;
use super::domains::Domains;
use crate::address::source_port;
use crate::counters::QpCounters;
use crate::error::Error;
use crate::handle::Cq;
use crate::qp::Qp;
use crate::qp::attr::{AttrMask, QpAttr, QpInit, QpType, State};
use crate::qp::state;
use crate::resources::Resources;
use crate::sink::DirectExecution;
use crate::time::Instant;
use crate::work::{ReceiveRequest, SendRequest};
use alloc::vec::Vec;
use wire::Qpn;

impl Device {
    /// Adds numbers for queue pairs: a host grants ranges to its processes. Numbers that were added already
    /// are left out.
    pub fn add_qpn_range(&mut self, first: Qpn, count: u32) {
        self.queue_pairs.qpns.add(first, count);
    }

    /// Queue pair numbers that are still free.
    pub fn free_qpns(&self) -> u32 {
        self.queue_pairs.qpns.free()
    }

    /// Creates a queue pair.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, Error> {
        self.check_usable()?;
        let Self {
            queue_pairs,
            resources,
            domains,
            random,
            ..
        } = self;
        check_init(init, resources, domains)?;
        let name = init.xrcd.and_then(|xrcd| domains.name(xrcd));
        let qpn = queue_pairs.create(init, name, resources, random)?;
        count_users(init, 1, resources, domains);
        Ok(qpn)
    }

    /// Changes attributes, including the state. On an error nothing is changed.
    pub fn modify_qp(
        &mut self,
        qpn: Qpn,
        attr: &QpAttr,
        mask: AttrMask,
        now: Instant,
    ) -> Result<(), Error> {
        if mask.contains(AttrMask::STATE) && !matches!(attr.state, State::Reset | State::Error) {
            self.check_usable()?;
        }
        let max_rd_atomic = self.resources.config.max_rd_atomic;
        let Self {
            queue_pairs,
            resources,
            ..
        } = self;
        let changed = queue_pairs.with(resources, qpn, |qp, resources| {
            check_change(qp, resources, attr, mask, max_rd_atomic)?;
            apply(qp, resources, attr, mask, now);
            resources.note_queue(qpn);
            Ok(())
        });
        queue_pairs.fail_overrun(resources, now);
        changed
    }

    /// The attributes of a queue pair, PSNs as they are now, and the parameters that it was created with.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttr, QpInit), Error> {
        let qp = self.queue_pairs.get(qpn)?;
        Ok((qp.current_attr(), *qp.init()))
    }

    /// Removes a queue pair. Its completions that were not polled are dropped; packets for it are dropped
    /// too.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), Error> {
        if self.groups.has_member(qpn) {
            return Err(Error::Busy);
        }
        let Self {
            queue_pairs,
            resources,
            domains,
            ..
        } = self;
        queue_pairs.with(resources, qpn, |qp, resources| {
            qp.reset(resources, Instant::default());
            Ok(())
        })?;
        let init = queue_pairs.remove(qpn)?;
        count_users(&init, -1, resources, domains);
        Ok(())
    }

    /// All queue pairs.
    pub fn qpns(&self) -> Vec<Qpn> {
        let qps = self.queue_pairs.qps.iter().filter(|(_, qp)| !qp.is_proxy());
        qps.map(|(_, qp)| qp.qpn()).collect()
    }

    /// Counters of a queue pair.
    pub fn qp_counters(&self, qpn: Qpn) -> Result<QpCounters, Error> {
        Ok(*self.queue_pairs.get(qpn)?.counters())
    }

    /// Whether a queue pair has executed a request that it has not acknowledged yet.
    pub fn owes_acknowledgement(&self, qpn: Qpn) -> bool {
        self.queue_pairs
            .get(qpn)
            .is_ok_and(|qp| qp.owes_acknowledgement())
    }

    /// Posts a send. In the error state the request is accepted and flushed.
    pub fn post_send(
        &mut self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        self.queue_pairs
            .with(&mut self.resources, qpn, |qp, resources| {
                qp.post_send(resources, request, now)
            })
    }

    /// Whether [`Self::post_send`] would accept the request after `before` others of the same batch.
    pub fn check_send(
        &self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        before: usize,
    ) -> Result<(), Error> {
        self.queue_pairs.get(qpn)?.check_send(request, before)
    }

    /// Executes and completes a request in place of posting it, where `peer` can: a WRITE without immediate
    /// data, READ or atomic on a shared-memory channel, with nothing of its queue pair before it. `now` is
    /// called where there is a completion, which contains the time. False where the request has to be posted;
    /// the contents of its range are undefined then.
    #[inline]
    pub fn execute_at_once(
        &mut self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        mut now: impl FnMut() -> Instant,
        peer: &mut impl DirectExecution,
    ) -> bool {
        let Self {
            queue_pairs,
            resources,
            ..
        } = self;
        // The turn and the timers of the queue pair stay as they are, because nothing of it is outstanding.
        let Some(qp) = queue_pairs.get_mut(qpn) else {
            return false;
        };
        let done = qp.execute_at_once(resources, request, &mut now, peer);
        if resources.cqs.has_overrun() {
            queue_pairs.fail_overrun(resources, now());
        }
        done
    }

    /// Posts a receive. In the error state the request is accepted, and flushed when the queue pair is next
    /// used.
    pub fn post_receive(
        &mut self,
        qpn: Qpn,
        request: &ReceiveRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        self.queue_pairs
            .with(&mut self.resources, qpn, |qp, resources| {
                qp.post_receive(resources, request, now)
            })
    }
}

/// Checks that every named object exists, and every required object is named (IBTA 11.2.5.1).
fn check_init(init: &QpInit, resources: &Resources, domains: &Domains) -> Result<(), Error> {
    let config = &resources.config;
    let capacity = &init.capacity;
    let too_large = capacity.send_wr > config.max_qp_wr
        || capacity.receive_wr > config.max_qp_wr
        || capacity.send_sge > config.max_sge
        || capacity.receive_sge > config.max_sge
        || capacity.inline > config.max_inline;
    if too_large {
        return Err(Error::Invalid(
            "a queue pair is larger than the device allows",
        ));
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
        return Err(Error::Invalid(
            "an object that this type of queue pair needs is not given",
        ));
    }
    let known = |cq: Option<Cq>| cq.is_none_or(|cq| resources.cqs.contains(cq));
    let srq_known = init.srq.is_none_or(|srq| resources.srqs.get(srq).is_some());
    let xrcd_known = init.xrcd.is_none_or(|xrcd| domains.has_xrcd(xrcd));
    let all_known = known(init.send_cq) && known(init.receive_cq) && srq_known && xrcd_known;
    if !all_known || init.pd.is_some_and(|pd| domains.check_pd(pd).is_err()) {
        return Err(Error::NoSuchObject);
    }
    Ok(())
}

/// Adds `by` to the user counts of the objects of a queue pair.
fn count_users(init: &QpInit, by: i32, resources: &mut Resources, domains: &mut Domains) {
    let add = |users: &mut u32| *users = users.saturating_add_signed(by);
    for cq in [init.send_cq, init.receive_cq].into_iter().flatten() {
        if let Ok(queue) = resources.cqs.get_mut(cq) {
            add(&mut queue.users);
        }
    }
    if let Some(srq) = init.srq.and_then(|srq| resources.srqs.get_mut(srq).ok()) {
        add(&mut srq.users);
    }
    if let Some(users) = init.xrcd.and_then(|xrcd| domains.users(xrcd).ok()) {
        add(users);
    }
}

fn check_change(
    qp: &Qp,
    resources: &Resources,
    attr: &QpAttr,
    mask: AttrMask,
    max_rd_atomic: u8,
) -> Result<(), Error> {
    if mask.contains(AttrMask::CUR_STATE) && attr.current_state != qp.state() {
        return Err(Error::Invalid(
            "the queue pair is not in the state that the caller believes",
        ));
    }
    let to = if mask.contains(AttrMask::STATE) {
        attr.state
    } else {
        qp.state()
    };
    state::check_transition(qp.kind(), qp.state(), to, mask)?;
    let out_of_range = |bit: AttrMask, bad: bool| mask.contains(bit) && bad;
    let wrong = out_of_range(AttrMask::PORT, attr.port != 1)
        || out_of_range(
            AttrMask::PKEY_INDEX,
            !has_partition(resources, attr.pkey_index),
        )
        || out_of_range(AttrMask::TIMEOUT, attr.timeout > 31)
        || out_of_range(AttrMask::RETRY_CNT, attr.retry_count > 7)
        || out_of_range(AttrMask::RNR_RETRY, attr.rnr_retry > 7)
        || out_of_range(
            AttrMask::MAX_QP_RD_ATOMIC,
            attr.max_rd_atomic > max_rd_atomic,
        )
        || out_of_range(
            AttrMask::MAX_DEST_RD_ATOMIC,
            attr.max_dest_rd_atomic > max_rd_atomic,
        );
    if wrong {
        return Err(Error::Invalid("an attribute is out of range"));
    }
    if out_of_range(
        AttrMask::PATH_MTU,
        attr.path_mtu > resources.port.active_mtu,
    ) {
        return Err(Error::Invalid("the path MTU is larger than the port's"));
    }
    if mask.contains(AttrMask::AV) && resources.path(&attr.vector, 0).is_none() {
        return Err(Error::Invalid("the source GID index names an empty entry"));
    }
    Ok(())
}

/// Whether the table of partition keys has an index. RoCE has one key.
fn has_partition(resources: &Resources, index: u16) -> bool {
    let length = resources
        .port
        .subnet
        .as_ref()
        .map_or(1, |port| port.partitions.len());
    usize::from(index) < length
}

/// Applies the attributes in the mask, which were checked before.
fn apply(qp: &mut Qp, resources: &mut Resources, attr: &QpAttr, mask: AttrMask, now: Instant) {
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask.contains(AttrMask::$bit) { qp.attr_mut().$field = attr.$field; })*
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
    // Adapters of NVIDIA take what fits into the field, and programs give them 32.
    qp.attr_mut().min_rnr_timer &= 31;
    if mask.contains(AttrMask::AV) {
        let port = source_port(
            attr.vector.flow_label,
            qp.qpn().value(),
            qp.attr().destination.value(),
        );
        qp.set_path(resources.path(&attr.vector, port).unwrap_or_default());
    }
    if mask.contains(AttrMask::RQ_PSN) {
        qp.start_receiving(attr.receive_psn);
    }
    if mask.contains(AttrMask::SQ_PSN) {
        qp.start_sending(attr.send_psn);
    }
    if mask.contains(AttrMask::STATE) {
        if attr.state == State::SendQueueDrained {
            // The event is asked for with the change to SQD, and raised once for it (IBTA 11.2.5.2).
            if qp.state() == attr.state {
                return;
            }
            qp.attr_mut().drain_notify &= mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY);
        }
        qp.set_state(resources, attr.state, now);
    }
}
