//! Completion queues.

use crate::channel::Channel;
use crate::context::ContextRef;
use crate::event_counts::EventCounts;
use crate::{held, record};
use abi::{ibv_cq, ibv_cq_ex, ibv_modify_cq_attr, ibv_wc};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Subject, exports};
use rnic::{Completion, CompletionKind, Event, Extra, Moderation, Nanos, NetworkHeader, Status};

/// A completion queue. Always the extended struct: `ibv_create_cq` returns its beginning.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: ibv_cq_ex,
    pub(crate) handle: rnic::Cq,
    pub(crate) context: ContextRef,
    pub(crate) completion_events: EventCounts,
    pub(crate) async_events: EventCounts,
    /// Set between `start_poll` and `end_poll`.
    pub(crate) polling: AtomicBool,
    /// The completion that the `read_…` functions read.
    pub(crate) current: UnsafeCell<ibv_wc>,
    pub(crate) current_at_ns: UnsafeCell<u64>,
}

// SAFETY: C sees the first field; `cq_create::create` makes the pointers.
unsafe impl BeginsWith<ibv_cq> for Cq {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}
// SAFETY: the first field is the extended struct, of which `ibv_cq_ex_to_cq` returns the beginning.
unsafe impl BeginsWith<ibv_cq_ex> for Cq {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// A completion queue, as an argument.
pub(crate) type CqArg<'a> = Object<'a, Cq, ibv_cq>;

/// The completion queue behind a C pointer.
///
/// # Safety
/// The pointer comes from this library, and the queue is not destroyed.
pub(crate) unsafe fn cq<'a>(raw: *mut ibv_cq) -> Result<&'a Cq, Errno> {
    // SAFETY: by this function's contract, the pointer comes from this library, and the queue is not
    // destroyed.
    unsafe { raw.cast::<Cq>().as_ref() }.ok_or(Errno::INVALID)
}

/// A completion as C's struct.
pub(crate) fn work_completion(completion: &Completion) -> ibv_wc {
    let (imm_data, extra) = match completion.extra {
        Extra::None => (0, 0),
        Extra::Immediate(bytes) => (u32::from_ne_bytes(bytes), abi::IBV_WC_WITH_IMM),
        Extra::Invalidated(rkey) => (rkey.0, abi::IBV_WC_WITH_INV),
    };
    ibv_wc {
        wr_id: completion.id,
        status: completion.status as u32,
        opcode: opcode(completion.kind),
        byte_len: completion.length,
        imm_data,
        qp_num: completion.qpn.value(),
        src_qp: completion.source.value(),
        wc_flags: extra
            | if completion.grh.is_some() {
                abi::IBV_WC_GRH
            } else {
                0
            },
        sl: match completion.source_lid {
            0 => completion.grh.map_or(0, packet_type),
            _ => completion.service_level,
        },
        slid: completion.source_lid,
        dlid_path_bits: completion.path_bits,
        vendor_err: if completion.status == Status::Success {
            0
        } else {
            completion.status as u32
        },
        ..ibv_wc::default()
    }
}

/// Value of `sl`. RoCE has no service levels: ConnectX reports the L3 type of a received datagram there, and
/// UCX relies on it. Bit 3 is set for RoCEv2; the others are 1 for IPv6, 2 for IPv4.
const fn packet_type(header: NetworkHeader) -> u8 {
    match header {
        NetworkHeader::Ipv4 => 0b1010,
        NetworkHeader::Ipv6 => 0b1001,
        // InfiniBand has the service level there.
        NetworkHeader::Global => 0,
    }
}

const fn opcode(kind: CompletionKind) -> u32 {
    kind as u32
}

/// Writes a completion for the program, and goes on to the next place.
///
/// # Safety
/// There is room for a completion.
#[inline(always)]
pub(crate) unsafe fn write(next: &mut *mut ibv_wc, completion: &Completion) {
    if let Some(recorder) = record::active() {
        recorder.completed(completion);
    }
    // SAFETY: by this function's contract, there is room.
    unsafe { next.write_unaligned(work_completion(completion)) };
    // SAFETY: the end of that room at most.
    *next = unsafe { next.add(1) };
}

exports! {
    fn ibv_resize_cq(raw: CqArg<'_>, entries: i32) -> code(i32) {
        let queue = raw.get()?;
        let asked = u32::try_from(entries).map_err(|_| Errno::INVALID)?;
        queue.context.device.with(|rnic, _| rnic.cqs_mut().resize(queue.handle, asked))?;
        // SAFETY: a field of a live queue, which this function alone changes.
        unsafe { (*raw.raw()).cqe = entries };
        Ok(())
    }

    /// Event moderation: an event waits for `cq_count` completions, or for `cq_period` microseconds after the
    /// first.
    fn modify_cq(queue: CqArg<'_>, attr: In<'_, *mut ibv_modify_cq_attr>) -> code(i32) {
        let (queue, attr) = (queue.get()?, attr.get()?);
        if attr.attr_mask != abi::IBV_CQ_ATTR_MODERATE {
            return Err(Errno::INVALID);
        }
        let [count, period_us] = attr.moderate;
        let moderation = Moderation { count, period: Nanos::from_micros(period_us.into()) };
        Ok(queue.context.device.with(|rnic, _| rnic.cqs_mut().moderate(queue.handle, moderation))?)
    }

    /// Waits until the program has acknowledged every event that it took.
    fn ibv_destroy_cq(given_up: GivenUp<Cq, ibv_cq>) -> code(i32) {
        let queue = given_up.get()?;
        let owner = &queue.context;
        owner.device.with(|rnic, _| rnic.cqs_mut().destroy(queue.handle))?;
        owner.objects().cqs.remove(&queue.handle.value());
        owner.device.async_events().forget(|event| *event == Event::CqError(queue.handle));
        owner.device.detach_cq(queue.handle);
        held::forget_queue(core::ptr::from_ref(queue) as usize);
        queue.completion_events.wait_acknowledged();
        queue.async_events.wait_acknowledged();
        let channel = queue.abi.base.channel.cast::<Channel>();
        if !channel.is_null() {
            // SAFETY: a channel with queues is not destroyed.
            unsafe { Channel::count(channel, -1) };
        }
        given_up.free();
        Ok(())
    }

    /// Private call for programs that also run over other libraries, and use it where it is: they wait for
    /// completions and descriptors of their own at once, see [`host::Device::wait_cq`]. Returns the sum of 1
    /// if the queue has completions, and of 2 if the descriptors were looked at; -1 with `errno`.
    fn rockery_await_cq(
        queue: CqArg<'_>, others: *mut libc::pollfd, count: u32, polls_ns: u64, most_ns: i64,
    ) -> number(i32) {
        let queue = queue.get()?;
        let others = match count {
            0 => &mut [],
            // SAFETY: the caller passes so many descriptors, which nothing else uses while the function runs.
            count => unsafe { core::slice::from_raw_parts_mut(others, count as usize) },
        };
        let most = u64::try_from(most_ns).ok().map(core::time::Duration::from_nanos);
        let polls = core::time::Duration::from_nanos(polls_ns);
        let end = queue.context.device.wait_cq(queue.handle, others, polls, most)?;
        Ok(i32::from(end.completions) + 2 * i32::from(end.looked))
    }

    /// Hot path: no allocation. Returns the number of completions, or a negative error number.
    fn poll_cq(queue: CqArg<'_>, most: i32, completions: *mut ibv_wc) -> plain(i32) {
        let (Ok(queue), Ok(most)) = (queue.get(), usize::try_from(most)) else { return -libc::EINVAL };
        let mut next = completions;
        queue.context.device.poll_cq(queue.handle, most, |completion| {
            // SAFETY: the caller has room for `most` completions, and no more than that are written.
            unsafe { write(&mut next, completion) };
        }) as i32
    }
}
