//! Queue pairs.

use crate::address::{report_missing_gid, with_route};
use crate::batch::Batch;
use crate::context::ContextRef;
use crate::event_counts::EventCounts;
use crate::held;
use crate::qp_attr::{cap, from_c, to_c};
use crate::traced;
use abi::{ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use faults::QpKind;
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Out, Subject, exports};
use rnic::Event;
use wire::Qpn;

/// A queue pair. Always the extended struct: `ibv_create_qp` returns its beginning.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) abi: ibv_qp_ex,
    pub(crate) qpn: Qpn,
    pub(crate) context: ContextRef,
    /// Whether every send request completes, whatever its flags.
    pub(crate) signal_all: bool,
    /// Whether the program requested the `ibv_wr_…` functions.
    pub(crate) extended: bool,
    /// Whether destroying it destroys the device's queue pair. False for one that was opened by number
    /// (`ibv_open_qp`).
    pub(crate) owns: bool,
    pub(crate) async_events: EventCounts,
    /// Requests built between `wr_start` and `wr_complete`.
    pub(crate) building: AtomicBool,
    pub(crate) batch: UnsafeCell<Batch>,
}

// SAFETY: C sees the first field; `qp_create::boxed` makes the pointers.
unsafe impl BeginsWith<ibv_qp> for Qp {
    fn describe(&self, subject: &mut Subject) {
        self.describe_queue(subject);
    }
}
// SAFETY: the first field is the extended struct, to which `ibv_qp_to_qp_ex` converts.
unsafe impl BeginsWith<ibv_qp_ex> for Qp {
    fn describe(&self, subject: &mut Subject) {
        self.describe_queue(subject);
    }
}

impl Qp {
    /// Type of the queue pair, as rules of faults name it.
    pub(crate) fn fault_kind(&self) -> QpKind {
        match self.abi.qp_base.qp_type {
            abi::IBV_QPT_RC => QpKind::Rc,
            abi::IBV_QPT_UC => QpKind::Uc,
            abi::IBV_QPT_UD => QpKind::Ud,
            _ => QpKind::Xrc,
        }
    }

    /// Drops completions that are held back, as the device drops its own.
    fn forget_held(&self) {
        let base = &self.abi.qp_base;
        held::forget_qp([base.send_cq as usize, base.recv_cq as usize], self.qpn);
    }

    fn describe_queue(&self, subject: &mut Subject) {
        self.context.describe(subject);
        subject.kind = Some(self.fault_kind());
        subject.qpn = Some(self.qpn.value());
    }
}

/// A queue pair, as an argument.
pub(crate) type QpArg<'a> = Object<'a, Qp, ibv_qp>;

/// Sends delayed acknowledgements before the queue pair changes state or is destroyed. Otherwise the peer
/// would repeat its last message until its retries are used up.
fn send_delayed_acks(device: &host::Device) {
    device.with(|_, _| ());
}

/// Changes attributes; the new state, if that is one of them.
fn modify(queue: &Qp, attr: &ibv_qp_attr, bits: i32) -> Result<Option<rnic::State>, Errno> {
    let device = &queue.context.device;
    let is_subnet = device.info().subnet.is_some();
    let (mut attr, mask) = from_c(attr, bits, queue.abi.qp_base.qp_type, is_subnet)?;
    send_delayed_acks(device);
    if mask.contains(rnic::AttrMask::AV) {
        report_missing_gid(device, attr.vector.source_index);
        attr.vector = with_route(device, attr.vector)?;
    }
    device.modify_qp(queue.qpn, &attr, mask)?;
    if !mask.contains(rnic::AttrMask::STATE) {
        return Ok(None);
    }
    if attr.state == rnic::State::Reset {
        queue.forget_held();
    }
    Ok(Some(attr.state))
}

fn is_about(event: &Event, qpn: Qpn) -> bool {
    matches!(event,
        Event::QpFatal(of)
        | Event::QpRequestError(of)
        | Event::QpAccessError(of)
        | Event::CommunicationEstablished(of)
        | Event::SendQueueDrained(of)
        | Event::LastWqeReached(of) if *of == qpn)
}

exports! {
    fn ibv_modify_qp(raw: QpArg<'_>, attr: In<'_, *mut ibv_qp_attr>, mask: i32) -> code(i32) {
        let (queue, attr) = (raw.get()?, attr.get()?);
        let changed = modify(queue, attr, mask);
        if traced::is_on() {
            traced::modified(&queue.context.device, &queue.abi.qp_base, attr, mask, &changed.map(drop));
        }
        if let Some(state) = changed? {
            // SAFETY: a field of a live queue pair, of which the program makes one such call at a time.
            unsafe { (*raw.raw()).state = state as u32 };
        }
        Ok(())
    }

    /// Fills in every attribute, whatever the `mask`. The field `state` of the queue pair itself changes only
    /// where the mask has the state, as with rdma-core: UCX asserts this.
    fn ibv_query_qp(
        raw: QpArg<'_>, attr: Out<'_, ibv_qp_attr>, mask: i32, init: Out<'_, ibv_qp_init_attr>,
    ) -> code(i32) {
        let queue = raw.get()?;
        let (current, made) = queue.context.device.with(|rnic, _| rnic.query_qp(queue.qpn))?;
        attr.write(to_c(&current, &made.capacity))?;
        let base = &queue.abi.qp_base;
        init.write(ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: cap(&made.capacity),
            qp_type: base.qp_type,
            sq_sig_all: made.signal_all.into(),
        })?;
        if mask as u32 & rnic::AttrMask::STATE.bits() != 0 {
            // SAFETY: a field of a live queue pair, of which the program makes one such call at a time.
            unsafe { (*raw.raw()).state = current.state as u32 };
        }
        Ok(())
    }

    fn ibv_destroy_qp(given_up: GivenUp<Qp, ibv_qp>) -> code(i32) {
        let queue = given_up.get()?;
        if queue.owns {
            let owner = &queue.context;
            send_delayed_acks(&owner.device);
            owner.device.destroy_qp(queue.qpn)?;
            if traced::is_on() {
                traced::destroyed(queue.qpn);
            }
            owner.objects().qps.remove(&queue.qpn.value());
            queue.forget_held();
            owner.device.async_events().forget(|event| is_about(event, queue.qpn));
            queue.async_events.wait_acknowledged();
        }
        given_up.free();
        Ok(())
    }

    /// Private call for rockery's `librdmacm.so.1`, whose connection manager must not report the end of a
    /// connection before the packets that the peer sent ahead of it are processed: see
    /// [`host::take_arrived`].
    fn rockery_take_arrived(qpn: u32) -> plain(()) {
        host::take_arrived(Qpn::new(qpn));
    }

    /// Returns NULL for a queue pair that was not created for `ibv_wr_…`.
    fn ibv_qp_to_qp_ex(queue: QpArg<'_>) -> plain(Option<core::ptr::NonNull<ibv_qp_ex>>) {
        let found = queue.optional().filter(|found| found.extended);
        found.and_then(|_| core::ptr::NonNull::new(queue.raw().cast()))
    }

    /// ECE has no options here: the answer is an empty set, and `EOPNOTSUPP`.
    fn ibv_query_ece(_queue: QpArg<'_>, ece: Out<'_, ibv_ece>) -> code(i32) {
        ece.write(ibv_ece::default())?;
        Err(Errno::UNSUPPORTED)
    }

    fn ibv_set_ece(_queue: QpArg<'_>, _ece: In<'_, *mut ibv_ece>) -> code(i32) {
        Err(Errno::UNSUPPORTED)
    }

    /// No ordering is guaranteed: with out-of-order placement packets are stored as they arrive.
    fn ibv_query_qp_data_in_order(_queue: QpArg<'_>, _opcode: u32, _flags: u32) -> plain(i32) {
        0
    }
}
