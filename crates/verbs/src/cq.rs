//! Completion queues.

use crate::channel::{Channel, Owed};
use crate::context::{Context, context};
use crate::cq_ex;
use abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_modify_cq_attr, ibv_wc};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::AtomicBool;
use door::{Errno, door};
use rnic::{Completion, CompletionKind, Event, Extra, Moderation, Nanos, NetworkHeader, Status};

/// A completion queue. Always the long form: what `ibv_create_cq` gives out is its beginning.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: ibv_cq_ex,
    pub(crate) handle: rnic::Cq,
    pub(crate) completion_events: Owed,
    pub(crate) async_events: Owed,
    /// Between `start_poll` and `end_poll`.
    pub(crate) polling: AtomicBool,
    /// The completion that `read_…` functions look at.
    pub(crate) current: UnsafeCell<ibv_wc>,
    pub(crate) current_at_ns: UnsafeCell<u64>,
}

/// The queue behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn cq<'a>(raw: *mut ibv_cq) -> Result<&'a Cq, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Cq>().as_ref() }.ok_or(Errno::INVALID)
}

/// What a creator asks for.
pub(crate) struct CqInit {
    pub(crate) entries: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
}

/// # Safety
/// `raw` is a live context, the channel NULL or one of its live channels.
pub(crate) unsafe fn create(raw: *mut ibv_context, init: &CqInit) -> Result<*mut Cq, Errno> {
    // SAFETY: as above.
    let owner = unsafe { context(raw) };
    if init.entries == 0 || init.vector >= Context::VECTORS {
        return Err(Errno::INVALID);
    }
    let handle = owner.device.with(|rnic, _| rnic.create_cq(init.entries))?;
    let base = ibv_cq {
        context: raw,
        channel: init.channel,
        cq_context: init.cq_context,
        handle: handle.value(),
        cqe: init.entries as i32,
        mutex: [0; 5],
        cond: [0; 6],
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let queue = Box::into_raw(Box::new(Cq {
        abi: cq_ex::table(base),
        handle,
        completion_events: Owed::default(),
        async_events: Owed::default(),
        polling: AtomicBool::new(false),
        current: UnsafeCell::default(),
        current_at_ns: UnsafeCell::default(),
    }));
    let channel = init.channel.cast::<Channel>();
    // SAFETY: as above.
    if let Some(shared) = unsafe { channel.as_ref() } {
        owner.device.attach_cq(handle, &shared.queue, queue as u64);
        // SAFETY: as above.
        unsafe { Channel::count(channel, 1) };
    }
    owner.objects().cqs.insert(handle.value(), queue as usize);
    Ok(queue)
}

/// The completion as C has it.
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
        wc_flags: extra | if completion.grh.is_some() { abi::IBV_WC_GRH } else { 0 },
        sl: completion.grh.map_or(0, packet_type),
        vendor_err: if completion.status == Status::Success { 0 } else { completion.status as u32 },
        ..ibv_wc::default()
    }
}

/// RoCE has no service levels: ConnectX tells in their place what carried a datagram, and UCX relies on it.
/// Bit 3 is set for RoCEv2; the others are 1 for IPv6, 2 for IPv4.
const fn packet_type(header: NetworkHeader) -> u8 {
    match header {
        NetworkHeader::Ipv4 => 0b1010,
        NetworkHeader::Ipv6 => 0b1001,
    }
}

const fn opcode(kind: CompletionKind) -> u32 {
    kind as u32
}

door! {
    fn ibv_create_cq(
        raw: *mut ibv_context, entries: i32, cq_context: *mut c_void, channel: *mut ibv_comp_channel,
        vector: i32,
    ) -> pointer(*mut ibv_cq) {
        let (entries, vector) = (u32::try_from(entries), u32::try_from(vector));
        let (Ok(entries), Ok(vector)) = (entries, vector) else { return Err(Errno::INVALID) };
        Ok(create(raw, &CqInit { entries, cq_context, channel, vector })?.cast())
    }

    fn ibv_resize_cq(raw: *mut ibv_cq, entries: i32) -> code(i32) {
        let queue = cq(raw)?;
        let asked = u32::try_from(entries).map_err(|_| Errno::INVALID)?;
        context((*raw).context).device.with(|rnic, _| rnic.resize_cq(queue.handle, asked))?;
        (*raw).cqe = entries;
        Ok(())
    }

    /// Moderation: an event waits for so many completions, or for so many microseconds after the first.
    fn modify_cq(raw: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> code(i32) {
        let (queue, attr) = (cq(raw)?, attr.as_ref().ok_or(Errno::INVALID)?);
        if attr.attr_mask != abi::IBV_CQ_ATTR_MODERATE {
            return Err(Errno::INVALID);
        }
        let [count, period_us] = attr.moderate;
        let moderation = Moderation { count, period: Nanos::from_micros(period_us.into()) };
        Ok(context((*raw).context).device.with(|rnic, _| rnic.moderate_cq(queue.handle, moderation))?)
    }

    /// Waits until the program has acknowledged every event that it took.
    fn ibv_destroy_cq(raw: *mut ibv_cq) -> code(i32) {
        let queue = cq(raw)?;
        let owner = context((*raw).context);
        owner.device.with(|rnic, _| rnic.destroy_cq(queue.handle))?;
        owner.objects().cqs.remove(&queue.handle.value());
        owner.device.async_events().forget(|event| *event == Event::CqError(queue.handle));
        owner.device.detach_cq(queue.handle);
        queue.completion_events.settle();
        queue.async_events.settle();
        if !(*raw).channel.is_null() {
            Channel::count((*raw).channel.cast(), -1);
        }
        drop(Box::from_raw(raw.cast::<Cq>()));
        Ok(())
    }

    /// Hot: no allocation. Answers how many, or a negative error number.
    fn poll_cq(raw: *mut ibv_cq, most: i32, completions: *mut ibv_wc) -> plain(i32) {
        let (Ok(queue), Ok(most)) = (cq(raw), usize::try_from(most)) else { return -libc::EINVAL };
        let mut next = completions;
        context((*raw).context).device.poll_cq(queue.handle, most, |completion| {
            // The caller has room for `most`, and no more than that are handed over.
            next.write(work_completion(completion));
            next = next.add(1);
        }) as i32
    }
}
