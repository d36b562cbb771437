//! Events: how a queued event is delivered to the program, and acknowledged.

use crate::channel;
use crate::id::{Id, Step, id};
use crate::multicast;
use crate::qp::{self, Negotiated};
use abi::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_event_param, rdma_ud_param,
};
use core::ffi::{c_int, c_void};
use door::{Errno, Out, door};
use rnic::Path;
use rnic::cm::{Ece, Reject};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use wire::cm::{CommId, REJ_PRIVATE_DATA, RTU_PRIVATE_DATA, RejectReason, Rep, Req};

/// An event in a channel's queue.
pub(crate) struct Pending {
    /// Address of the identifier that it is about; of a connection request, the listener's.
    pub(crate) id: usize,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Private data of the message, padded to the length of its field.
    pub(crate) data: Box<[u8]>,
    /// Done in the program's thread when it takes the event.
    pub(crate) action: Action,
}

/// The `param` union of the event, apart from private data.
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
    /// The argument of `rdma_write_cm_event`.
    Argument(u64),
    /// `context` is the argument of `rdma_join_multicast`.
    Group {
        path: Path,
        context: usize,
    },
}

impl Param {
    /// Seen from this side: the peer's initiator depth is the limit of our responder resources.
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

    /// `qpn` is the peer's queue pair, which for an XRC target is in another field of the REP (the EECN).
    pub(crate) fn of_reply(reply: &Rep, qpn: u32) -> Self {
        Self::Connection {
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            flow_control: reply.flow_control,
            retry_count: 0,
            rnr_retry_count: reply.rnr_retry_count,
            srq: reply.srq,
            qpn,
        }
    }
}

/// Work that is done when the program takes an event, in its own thread, because it calls libibverbs.
pub(crate) enum Action {
    Nothing,
    /// Create an identifier for a connection request.
    CreateId(Box<NewRequest>),
    /// A REP came: bring the queue pair to RTS, and send the RTU.
    EstablishConnection,
    /// Bring the queue pair to the error state, which flushes its work requests.
    Flush,
    /// Attach the queue pair to a multicast group.
    Join(SocketAddr),
}

/// A connection request of a peer.
pub(crate) struct NewRequest {
    pub(crate) comm: CommId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) negotiated: Negotiated,
    pub(crate) ece: Ece,
}

impl Pending {
    /// An event without parameters.
    pub(crate) fn plain(id: usize, kind: u32, status: c_int) -> Self {
        Self { id, kind, status, param: Param::None, data: Box::default(), action: Action::Nothing }
    }

    /// An event about a connection, with status 0 and without parameters.
    pub(crate) fn conn(id: usize, kind: u32) -> Self {
        Self::plain(id, kind, 0)
    }

    pub(crate) fn is_request_of(&self, comm: CommId) -> bool {
        matches!(&self.action, Action::CreateId(new_request) if new_request.comm == comm)
    }
}

/// An event for C, which sees the first field.
#[repr(C)]
struct Event {
    abi: rdma_cm_event,
    data: Box<[u8]>,
    /// Address of the identifier that counts it as unacknowledged.
    of: usize,
}

/// Takes the next event of a channel; blocks unless the channel's descriptor is non-blocking.
///
/// # Safety
/// `raw` is NULL or a channel of this library.
pub(crate) unsafe fn next(raw: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: by this function's contract, `raw` is NULL or a channel of this library.
    let queue = unsafe { channel::queue(raw) }?;
    loop {
        // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those that
        // were noted here.
        let pending = queue.next_noting(|pending| unsafe { of(pending.id) }.note_event())?;
        let key = pending.id;
        // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those that
        // were noted here.
        match unsafe { deliver(pending) } {
            Some(event) => return Ok(event),
            // SAFETY: an identifier takes its events out of the queue before it goes, and waits for those
            // that were noted here.
            None => unsafe { of(key) }.note_acknowledged(),
        }
    }
}

/// # Safety
/// `key` is the address of a live identifier.
unsafe fn of<'a>(key: usize) -> &'a Id {
    // SAFETY: by this function's contract, `key` is the address of a live identifier.
    unsafe { &*(key as *const Id) }
}

/// Does the work that an event requires, and makes the event for C; `None` when the request cannot be served
/// any more.
///
/// # Safety
/// The identifier is alive, and its queue pair is NULL or live.
unsafe fn deliver(mut pending: Pending) -> Option<*mut rdma_cm_event> {
    // SAFETY: by this function's contract, the identifier is alive, and its queue pair is NULL or live.
    unsafe {
        let this = of(pending.id);
        let (mut about, mut listener) = (this.raw(), null_mut());
        match core::mem::replace(&mut pending.action, Action::Nothing) {
            Action::Nothing => {}
            Action::CreateId(new_request) => {
                listener = this.raw();
                about = create_id_for_request(this, *new_request, &pending.param).ok()?;
            }
            Action::EstablishConnection => establish_connection(this, &mut pending),
            Action::Flush => {
                let _ = qp::fail(this);
            }
            Action::Join(address) => {
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
/// `about` is a live identifier.
unsafe fn make(pending: Pending, about: *mut rdma_cm_id, listener: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let Pending { id, kind, status, param, data, .. } = pending;
    let private_data: *const c_void = if data.is_empty() { null() } else { data.as_ptr().cast() };
    let private_data_len = data.len() as u8;
    // SAFETY: by this function's contract, `about` is a live identifier.
    let param = unsafe { in_c(param, private_data, private_data_len, about) };
    let abi = rdma_cm_event { id: about, listen_id: listener, event: kind, status, param };
    Box::into_raw(Box::new(Event { abi, data, of: id })).cast()
}

/// # Safety
/// `about` is a live identifier.
unsafe fn in_c(
    param: Param,
    private_data: *const c_void,
    private_data_len: u8,
    about: *mut rdma_cm_id,
) -> rdma_event_param {
    let datagram = |private_data, path: &Path, qp_num, qkey| {
        // SAFETY: by this function's contract, `about` is a live identifier.
        let ah_attr = unsafe { id(about) }.and_then(|this| qp::address_vector(this, path));
        let ah_attr = ah_attr.unwrap_or_default();
        rdma_event_param { ud: rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey } }
    };
    match param {
        Param::Datagram { path, qpn, qkey } => datagram(private_data, &path, qpn, qkey),
        Param::Group { path, context } => {
            datagram(context as *const c_void, &path, qp::MULTICAST_QPN, abi::RDMA_UDP_QKEY)
        }
        Param::Argument(arg) => rdma_event_param { arg },
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

/// Creates an identifier for a connection request. It uses the listener's channel, or a channel of its own if
/// the listener is synchronous.
///
/// # Safety
/// `listener` is alive.
unsafe fn create_id_for_request(
    listener: &Id,
    new_request: NewRequest,
    param: &Param,
) -> Result<*mut rdma_cm_id, Errno> {
    let NewRequest { comm, local, remote, mut negotiated, ece } = new_request;
    let withdraw = || {
        let _ = listener.process.with(|session, now| {
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
    let device =
        negotiated.path().ok_or(Errno::NO_DEVICE).and_then(|path| listener.process.device_of(path.source));
    let channel = if is_synchronous { null_mut() } else { seen.channel };
    let made = device.and_then(|device| {
        let new = Id::new(listener.process, channel, seen.context, space, seen.qp_type)?;
        Ok((device, new))
    });
    let (device, new) = made.inspect_err(|_| withdraw())?;
    negotiated.expected_psn = psn;
    // SAFETY: just made.
    let this = unsafe { &*new };
    this.attach(device);
    this.set_local(local);
    this.set_remote(remote);
    // SAFETY: just made.
    unsafe { crate::address::fill_path_record(this, negotiated.path().copied().unwrap_or_default()) };
    let claimed = this.process.with(|session, _| {
        session.cm.take(comm)?;
        session.owner.claim(comm, this.key());
        let mut state = this.state();
        state.step = Step::Requested;
        state.comm = Some(comm);
        state.negotiated = negotiated;
        state.options.tos = tos;
        state.options.remote_ece = ece;
        Ok(())
    });
    if let Err(error) = claimed {
        withdraw();
        // SAFETY: the program has not got it.
        unsafe { crate::id::destroy(new.cast()) }?;
        return Err(error);
    }
    if let Param::Connection { responder_resources, initiator_depth, .. } = *param {
        this.state().negotiated.offer(responder_resources, initiator_depth);
    }
    Ok(new.cast())
}

/// Handles a REP. If the queue pair was created by `rdma_create_qp`, it is brought to RTS and the RTU is
/// sent; otherwise the program does both.
///
/// # Safety
/// The identifier is alive, and its queue pair is NULL or live.
unsafe fn establish_connection(this: &Id, pending: &mut Pending) {
    // SAFETY: by this function's contract, the identifier is alive, and its queue pair is NULL or live.
    unsafe {
        if (*this.raw()).qp.is_null() {
            return;
        }
        match qp::make_ready(this).and_then(|()| establish(this)) {
            Ok(()) => pending.kind = RDMA_CM_EVENT_ESTABLISHED,
            Err(Errno(error)) => {
                let _ = this.process.with(|session, now| {
                    let comm = this.state().comm.ok_or(Errno::INVALID)?;
                    let private_data = [0; REJ_PRIVATE_DATA];
                    let reject = Reject { reason: RejectReason::CONSUMER, private_data };
                    Ok(session.cm.reject(comm, &reject, now)?)
                });
                this.state().step = Step::Disconnected;
                pending.kind = RDMA_CM_EVENT_CONNECT_ERROR;
                pending.status = -error;
            }
        }
    }
}

/// Sends the RTU.
pub(crate) fn establish(this: &Id) -> Result<(), Errno> {
    this.process.with(|session, now| {
        let comm = this.state().comm.ok_or(Errno::INVALID)?;
        session.cm.ready(comm, [0; RTU_PRIVATE_DATA], now)?;
        this.state().step = Step::Connected;
        Ok(())
    })
}

/// Acknowledges and frees an event.
///
/// # Safety
/// `raw` is an event of [`next`] that is not used any more.
pub(crate) unsafe fn acknowledge(raw: *mut rdma_cm_event) {
    // SAFETY: by this function's contract, `raw` is an event of [`next`] that is not used any more; the
    // identifier is not freed before its events are acknowledged.
    unsafe {
        let event = Box::from_raw(raw.cast::<Event>());
        of(event.of).note_acknowledged();
    }
}

door! {
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, place: Out<'_, *mut rdma_cm_event>)
        -> status(c_int) {
        let place = place.required()?;
        // SAFETY: the program's channel or NULL.
        place.write(unsafe { next(channel) }?)
    }

    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> status(c_int) {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an event that the program has taken, and gives up.
        unsafe { acknowledge(event) };
        Ok(())
    }
}
