//! Events: from what waits in a channel to what C reads, and back when it is acknowledged.

use crate::channel;
use crate::id::{Id, Step, id};
use crate::multicast;
use crate::qp::{self, Link};
use abi::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_event_param, rdma_ud_param,
};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::Path;
use rnic::cm::{Ece, Reject};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use wire::cm::{CommId, REJ_PRIVATE_DATA, RTU_PRIVATE_DATA, RejectReason, Rep, Req};

/// What waits in a channel.
pub(crate) struct Pending {
    /// The address of the identifier that it is about; of a request, of the one that listens.
    pub(crate) id: usize,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Private data.
    pub(crate) data: Box<[u8]>,
    /// What has to be done when the program takes it.
    pub(crate) then: Then,
}

/// What an event tells beside private data.
#[derive(Clone, Copy)]
pub(crate) enum Param {
    None,
    Connection {
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: bool,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: bool,
        qpn: u32,
    },
    Datagram {
        path: Path,
        qpn: u32,
        qkey: u32,
    },
    /// `context` is what the program gave when it joined.
    Group {
        path: Path,
        context: usize,
    },
}

impl Param {
    /// The other end's READs are ours to answer.
    pub(crate) fn of_request(request: &Req) -> Self {
        Self::Connection {
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.srq,
            qpn: request.local_qpn.value(),
        }
    }

    pub(crate) fn of_reply(reply: &Rep) -> Self {
        Self::Connection {
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            flow_control: reply.flow_control,
            retry_count: 0,
            rnr_retry_count: reply.rnr_retry_count,
            srq: reply.srq,
            qpn: reply.local_qpn.value(),
        }
    }
}

/// What has to be done when the program takes an event, in its own thread: these calls go to libibverbs.
pub(crate) enum Then {
    Nothing,
    /// A request becomes an identifier.
    Introduce(Box<Newcomer>),
    /// The peer accepted: our queue pair gets ready, and the peer is told.
    GetReady,
    /// The queue pair's work is flushed.
    Part,
    /// The queue pair receives from a group.
    Join(SocketAddr),
}

/// A peer that asks.
pub(crate) struct Newcomer {
    pub(crate) comm: CommId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) link: Link,
    pub(crate) ece: Ece,
}

impl Pending {
    /// An event that has no more to it.
    pub(crate) fn plain(id: usize, kind: u32, status: c_int) -> Self {
        Self { id, kind, status, param: Param::None, data: Box::default(), then: Then::Nothing }
    }

    /// An event about a connection, of which nothing is told.
    pub(crate) fn conn(id: usize, kind: u32) -> Self {
        Self::plain(id, kind, 0)
    }

    pub(crate) fn is_request_of(&self, comm: CommId) -> bool {
        matches!(&self.then, Then::Introduce(newcomer) if newcomer.comm == comm)
    }
}

/// What a pointer of C leads to.
#[repr(C)]
struct Event {
    abi: rdma_cm_event,
    data: Box<[u8]>,
    /// Whose events it counts among.
    of: usize,
}

/// The next event of a channel, waiting as its descriptor says.
///
/// # Safety
/// A channel of this library.
pub(crate) unsafe fn next(raw: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: as above.
    let queue = unsafe { channel::queue(raw) }?;
    loop {
        // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those that
        // were noted here.
        let pending = queue.next_noting(|pending| unsafe { of(pending.id) }.note_event())?;
        let key = pending.id;
        // SAFETY: as above.
        match unsafe { deliver(pending) } {
            Some(event) => return Ok(event),
            // SAFETY: as above.
            None => unsafe { of(key) }.note_acknowledged(),
        }
    }
}

/// # Safety
/// The address of an identifier that is alive.
unsafe fn of<'a>(key: usize) -> &'a Id {
    // SAFETY: as above.
    unsafe { &*(key as *const Id) }
}

/// Does what an event asks for, and makes C's of it; `None` when there is nothing to tell any more.
///
/// # Safety
/// The identifier is alive, and its queue pair is as C says.
unsafe fn deliver(mut pending: Pending) -> Option<*mut rdma_cm_event> {
    // SAFETY: as above.
    unsafe {
        let this = of(pending.id);
        let (mut about, mut listener) = (this.raw(), null_mut());
        match core::mem::replace(&mut pending.then, Then::Nothing) {
            Then::Nothing => {}
            Then::Introduce(newcomer) => {
                listener = this.raw();
                about = introduce(this, *newcomer, &pending.param).ok()?;
            }
            Then::GetReady => get_ready(this, &mut pending),
            Then::Part => {
                let _ = qp::fail(this);
            }
            Then::Join(address) => {
                if let Err(Errno(error)) = multicast::attach(this, address) {
                    pending.kind = abi::RDMA_CM_EVENT_MULTICAST_ERROR;
                    pending.status = -error;
                }
            }
        }
        Some(make(pending, about, listener))
    }
}

/// # Safety
/// `about` is alive.
unsafe fn make(pending: Pending, about: *mut rdma_cm_id, listener: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let Pending { id, kind, status, param, data, .. } = pending;
    let private_data: *const c_void = if data.is_empty() { null() } else { data.as_ptr().cast() };
    let private_data_len = data.len() as u8;
    // SAFETY: as above.
    let param = unsafe { in_c(param, private_data, private_data_len, about) };
    let abi = rdma_cm_event { id: about, listen_id: listener, event: kind, status, param };
    Box::into_raw(Box::new(Event { abi, data, of: id })).cast()
}

/// # Safety
/// `about` is alive.
unsafe fn in_c(
    param: Param,
    private_data: *const c_void,
    private_data_len: u8,
    about: *mut rdma_cm_id,
) -> rdma_event_param {
    let datagram = |private_data, path: &Path, qp_num, qkey| {
        // SAFETY: as above.
        let ah_attr = unsafe { id(about) }.and_then(|this| qp::address_vector(this, path));
        let ah_attr = ah_attr.unwrap_or_default();
        rdma_event_param { ud: rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey } }
    };
    match param {
        Param::Datagram { path, qpn, qkey } => datagram(private_data, &path, qpn, qkey),
        Param::Group { path, context } => {
            datagram(context as *const c_void, &path, qp::MULTICAST_QPN, abi::RDMA_UDP_QKEY)
        }
        Param::None => rdma_event_param { conn: conn_param(private_data, private_data_len) },
        Param::Connection {
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            srq,
            qpn,
        } => rdma_event_param {
            conn: rdma_conn_param {
                responder_resources,
                initiator_depth,
                flow_control: flow_control.into(),
                retry_count,
                rnr_retry_count,
                srq: srq.into(),
                qp_num: qpn,
                ..conn_param(private_data, private_data_len)
            },
        },
    }
}

fn conn_param(private_data: *const c_void, private_data_len: u8) -> rdma_conn_param {
    rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    }
}

/// Makes an identifier for a request. It goes to the listener's channel, or gets its own where that waits
/// for its events.
///
/// # Safety
/// `listener` is alive.
unsafe fn introduce(listener: &Id, newcomer: Newcomer, param: &Param) -> Result<*mut rdma_cm_id, Errno> {
    let Newcomer { comm, local, remote, mut link, ece } = newcomer;
    let withdraw = || {
        let _ = listener.world.with(|session, now| {
            session.owner.drop_unclaimed(comm);
            let _ = session.cm.release(comm, now);
            Ok(())
        });
    };
    let psn = crate::qp::random_psn().inspect_err(|_| withdraw())?;
    // SAFETY: the listener is alive.
    let seen = unsafe { *listener.raw() };
    let (space, is_synchronous, tos) = {
        let state = listener.state();
        (state.space, state.is_synchronous, state.options.tos)
    };
    let device = link.path().ok_or(Errno::NO_DEVICE).and_then(|path| listener.world.device_of(path.source));
    let channel = if is_synchronous { null_mut() } else { seen.channel };
    let made = device.and_then(|device| {
        let new = Id::new(listener.world, channel, seen.context, space, seen.qp_type)?;
        Ok((device, new))
    });
    let (device, new) = made.inspect_err(|_| withdraw())?;
    link.expected_psn = psn;
    // SAFETY: just made.
    let this = unsafe { &*new };
    this.attach(device);
    this.set_local(local);
    this.set_remote(remote);
    // SAFETY: just made.
    unsafe { crate::address::describe_route(this, link.path().copied().unwrap_or_default()) };
    let claimed = this.world.with(|session, _| {
        session.cm.take(comm)?;
        session.owner.claim(comm, this.key());
        let mut state = this.state();
        state.step = Step::Requested;
        state.comm = Some(comm);
        state.link = link;
        state.options.tos = tos;
        state.options.remote_ece = ece;
        Ok(())
    });
    if let Err(error) = claimed {
        withdraw();
        // SAFETY: nobody has seen it.
        unsafe { crate::id::destroy(new.cast()) }?;
        return Err(error);
    }
    if let Param::Connection { responder_resources, initiator_depth, .. } = *param {
        this.state().link.offer(responder_resources, initiator_depth);
    }
    Ok(new.cast())
}

/// The peer accepted. A queue pair of the identifier's own gets ready, and then the peer is told; where the
/// program has its own, it does both.
///
/// # Safety
/// The identifier is alive, and its queue pair is as C says.
unsafe fn get_ready(this: &Id, pending: &mut Pending) {
    // SAFETY: as above.
    unsafe {
        if (*this.raw()).qp.is_null() {
            return;
        }
        match qp::make_ready(this).and_then(|()| establish(this)) {
            Ok(()) => pending.kind = RDMA_CM_EVENT_ESTABLISHED,
            Err(Errno(error)) => {
                let _ = this.world.with(|session, now| {
                    let comm = this.state().comm.ok_or(Errno::INVALID)?;
                    let private_data = [0; REJ_PRIVATE_DATA];
                    let reject = Reject { reason: RejectReason::CONSUMER, private_data };
                    Ok(session.cm.reject(comm, &reject, now)?)
                });
                this.state().step = Step::Parted;
                pending.kind = RDMA_CM_EVENT_CONNECT_ERROR;
                pending.status = -error;
            }
        }
    }
}

/// Tells the peer that we are ready.
pub(crate) fn establish(this: &Id) -> Result<(), Errno> {
    this.world.with(|session, now| {
        let comm = this.state().comm.ok_or(Errno::INVALID)?;
        session.cm.ready(comm, [0; RTU_PRIVATE_DATA], now)?;
        this.state().step = Step::Connected;
        Ok(())
    })
}

/// Frees an event.
///
/// # Safety
/// An event of [`next`] that nobody uses any more.
pub(crate) unsafe fn acknowledge(raw: *mut rdma_cm_event) {
    // SAFETY: as above; whose event it is waits for it.
    unsafe {
        let event = Box::from_raw(raw.cast::<Event>());
        of(event.of).note_acknowledged();
    }
}

door! {
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, place: *mut *mut rdma_cm_event) -> status(c_int) {
        let place = place.as_mut().ok_or(Errno::INVALID)?;
        *place = next(channel)?;
        Ok(())
    }

    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> status(c_int) {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        acknowledge(event);
        Ok(())
    }
}
