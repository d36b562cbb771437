//! Communication identifiers (`rdma_cm_id`): what C sees, and the state behind it.

use crate::channel::{self, Queue};
use crate::process::{OpenDevice, PORT, Process, lock, process};
use crate::qp::Negotiated;
use crate::sockaddr;
use abi::{ibv_sa_path_rec, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use door::{BeginsWith, Errno, Object, Out, door};
use host::cm::Bound;
use rnic::cm::{Ece, ListenerId};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use wire::cm::{CommId, PortSpace};

/// State of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Created, without an address.
    Idle,
    /// Bound to a local address and a port.
    Bound,
    /// The source address and the device are known.
    AddressResolved,
    /// The path is known.
    RouteResolved,
    /// Listens for connection requests.
    Listening,
    /// A REQ or SIDR_REQ was sent.
    Connecting,
    /// Created for a REQ or SIDR_REQ that arrived.
    Requested,
    /// A REP was sent or has arrived.
    Accepted,
    /// Established; for datagrams, the peer's queue pair is known.
    Connected,
    /// Rejected, timed out or disconnected.
    Disconnected,
    /// Its device was removed.
    DeviceRemoved,
}

/// A multicast group that the identifier joined.
pub(crate) struct Group {
    pub(crate) address: SocketAddr,
    /// Whether the queue pair is attached to it.
    pub(crate) attached: bool,
    pub(crate) sends_only: bool,
}

/// Values that `rdma_set_option` and the ECE calls set.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) tos: u8,
    pub(crate) reuses_address: bool,
    /// `RDMA_OPTION_ID_AFONLY`: listens on IPv6 only.
    pub(crate) v6_only: bool,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

/// Mutable state. Lock order: the lock of all connections (`Process::with`) before this one.
pub(crate) struct State {
    pub(crate) step: Step,
    /// The queue that its events go to.
    pub(crate) queue: Arc<Queue>,
    /// Created without a channel: calls wait for their event on a channel of its own.
    pub(crate) is_synchronous: bool,
    pub(crate) space: PortSpace,
    pub(crate) device: Option<&'static OpenDevice>,
    pub(crate) bound: Option<Bound>,
    pub(crate) comm: Option<CommId>,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) options: Options,
    /// Parameters of the connection, as far as they are known.
    pub(crate) negotiated: Negotiated,
    pub(crate) groups: Vec<Group>,
    /// Attributes for the queue pairs of accepted connections, for `rdma_get_request`.
    pub(crate) endpoint: Option<crate::endpoint::Template>,
    /// Result of `rdma_resolve_addrinfo`.
    pub(crate) resolved: Option<crate::addrinfo::Answer>,
    /// Whether the DISCONNECTED or REJECTED event was queued.
    pub(crate) disconnected: bool,
}

/// A communication identifier. C sees the first field.
#[repr(C)]
pub(crate) struct Id {
    /// Read and written by the program and by calls, which the program has to serialize.
    abi: UnsafeCell<rdma_cm_id>,
    pub(crate) process: &'static Process,
    state: Mutex<State>,
    /// Number of events that the program has taken and not acknowledged.
    unacknowledged: Mutex<u32>,
    all_acknowledged: Condvar,
}

// SAFETY: C sees the first field; `Id::new` makes the pointers.
unsafe impl BeginsWith<rdma_cm_id> for Id {}

/// An identifier, as an argument.
pub(crate) type IdArg<'a> = Object<'a, Id, rdma_cm_id>;

/// The identifier behind a C pointer.
///
/// # Safety
/// `raw` is NULL, or points to an identifier of this library that is not destroyed.
pub(crate) unsafe fn id<'a>(raw: *mut rdma_cm_id) -> Result<&'a Id, Errno> {
    // SAFETY: by this function's contract, `raw` is NULL, or points to an identifier of this library that is
    // not destroyed.
    unsafe { raw.cast::<Id>().as_ref() }.ok_or(Errno::INVALID)
}

impl Id {
    /// Creates an identifier. Without a channel it is synchronous, and gets a channel of its own.
    pub(crate) fn new(
        process: &'static Process,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        space: PortSpace,
        qp_type: u32,
    ) -> Result<*mut Self, Errno> {
        let is_synchronous = channel.is_null();
        let channel = if is_synchronous { channel::create()? } else { channel };
        // SAFETY: the caller's channel, or ours.
        let queue = unsafe { channel::queue(channel) }?;
        let abi = rdma_cm_id {
            verbs: null_mut(),
            channel,
            context,
            qp: null_mut(),
            route: abi::rdma_route { addr: abi::rdma_addr::default(), path_rec: null_mut(), num_paths: 0 },
            ps: space.value().into(),
            port_num: 0,
            event: null_mut(),
            send_cq_channel: null_mut(),
            send_cq: null_mut(),
            recv_cq_channel: null_mut(),
            recv_cq: null_mut(),
            srq: null_mut(),
            pd: null_mut(),
            qp_type,
        };
        let state = State {
            step: Step::Idle,
            queue,
            is_synchronous,
            space,
            device: None,
            bound: None,
            comm: None,
            listener: None,
            options: Options::default(),
            negotiated: Negotiated::default(),
            groups: Vec::new(),
            endpoint: None,
            resolved: None,
            disconnected: false,
        };
        Ok(Box::into_raw(Box::new(Self {
            abi: UnsafeCell::new(abi),
            process,
            state: Mutex::new(state),
            unacknowledged: Mutex::new(0),
            all_acknowledged: Condvar::new(),
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The struct that C sees.
    pub(crate) fn raw(&self) -> *mut rdma_cm_id {
        self.abi.get()
    }

    /// Whether it has a queue pair.
    pub(crate) fn has_qp(&self) -> bool {
        // SAFETY: calls on one identifier come one at a time.
        !unsafe { (*self.raw()).qp }.is_null()
    }

    /// The identifier's address, which queued events and tables refer to.
    pub(crate) fn key(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Whether its port space is for datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.state().space, PortSpace::Udp | PortSpace::Ipoib)
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        // SAFETY: calls on one identifier come one at a time.
        sockaddr::stored(unsafe { &(*self.raw()).route.addr.src_storage })
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        // SAFETY: calls on one identifier come one at a time.
        sockaddr::stored(unsafe { &(*self.raw()).route.addr.dst_storage })
    }

    pub(crate) fn set_local(&self, address: SocketAddr) {
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*self.raw()).route.addr.src_storage = sockaddr::storage(address) };
    }

    pub(crate) fn set_remote(&self, address: SocketAddr) {
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*self.raw()).route.addr.dst_storage = sockaddr::storage(address) };
    }

    /// Attaches the identifier to a device. As in rdma-core it gets the device's default protection domain,
    /// in which programs create queue pairs of their own.
    pub(crate) fn attach(&self, device: &'static OpenDevice) {
        self.state().device = Some(device);
        // Fails only in the child of a fork, where the identifier gets no events.
        let _ = self.process.with(|session, _| {
            session.owner.attach(self.key());
            Ok(())
        });
        // SAFETY: calls on one identifier come one at a time.
        unsafe {
            (*self.raw()).verbs = device.context();
            (*self.raw()).port_num = PORT;
            // On failure it is NULL, and the call that needs the domain reports the error.
            (*self.raw()).pd = device.pd().unwrap_or(null_mut());
        }
    }

    /// Counts an event that the program has taken.
    pub(crate) fn note_event(&self) {
        *lock(&self.unacknowledged) += 1;
    }

    /// Counts an acknowledgement.
    pub(crate) fn note_acknowledged(&self) {
        let mut unacknowledged = lock(&self.unacknowledged);
        *unacknowledged = unacknowledged.saturating_sub(1);
        self.all_acknowledged.notify_all();
    }

    /// Waits until all events that were taken are acknowledged.
    pub(crate) fn wait_acknowledged(&self) {
        let unacknowledged = lock(&self.unacknowledged);
        drop(
            self.all_acknowledged
                .wait_while(unacknowledged, |unacknowledged| *unacknowledged > 0)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// For synchronous identifiers: waits for the event of the current call, which stays in `event` until the
    /// next call.
    ///
    /// # Safety
    /// No lock is held; the event of the last call is not used any more.
    pub(crate) unsafe fn complete(&self) -> Result<(), Errno> {
        if !self.state().is_synchronous {
            return Ok(());
        }
        // SAFETY: by this function's contract, no lock is held; the event of the last call is not used any
        // more; the channel is ours.
        unsafe {
            self.forget_event();
            let event = crate::events::next((*self.raw()).channel)?;
            (*self.raw()).event = event;
            let status = (*event).status;
            match status {
                0 => Ok(()),
                _ if (*event).event == abi::RDMA_CM_EVENT_REJECTED => Err(Errno(libc::ECONNREFUSED)),
                status => Err(Errno(status.abs())),
            }
        }
    }

    /// Acknowledges the event that the last synchronous call left.
    ///
    /// # Safety
    /// The program does not use the event any more.
    pub(crate) unsafe fn forget_event(&self) {
        // SAFETY: by this function's contract, the program does not use the event any more.
        unsafe {
            let event: *mut rdma_cm_event = core::mem::replace(&mut (*self.raw()).event, null_mut());
            if !event.is_null() {
                crate::events::acknowledge(event);
            }
        }
    }
}

/// Closes the connection, the listener and the port of an identifier.
fn close(this: &Id) -> Result<(), Errno> {
    let (is_listening, bound) = this.process.with(|session, now| {
        let mut state = this.state();
        session.owner.forget(this.key(), &state);
        let listener = state.listener.take().zip(state.bound);
        if let Some((listener, bound)) = listener {
            session.unlisten(&bound, listener, now);
        }
        if let Some(comm) = state.comm.take() {
            let _ = session.cm.release(comm, now);
        }
        Ok((listener.is_some(), state.bound.take()))
    })?;
    let connector = this.process.connector()?;
    if let Some(bound) = bound {
        if is_listening {
            connector.withdraw(&bound);
        }
        connector.unbind(&bound);
    }
    Ok(())
}

/// Closes the connection, the listener and the port of an identifier, and frees it.
///
/// # Safety
/// `raw` is an identifier that is not used any more.
pub(crate) unsafe fn destroy(raw: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `raw` is an identifier that is not used any more.
    unsafe {
        let this = id(raw)?;
        this.forget_event();
        // Fails only in the child of a fork, whose copies belong to the parent.
        let _ = close(this);
        crate::multicast::leave_all(this);
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| event.id == this.key()));
        this.wait_acknowledged();
        // A thread that resolves a name may have queued an event until `wait_acknowledged` returned.
        drop(queue.take_out(|event| event.id == this.key()));
        let (is_synchronous, channel) = (this.state().is_synchronous, (*raw).channel);
        let path = (*raw).route.path_rec;
        drop(Box::from_raw(raw.cast::<Id>()));
        if !path.is_null() {
            drop(Box::<ibv_sa_path_rec>::from_raw(path));
        }
        if is_synchronous {
            channel::destroy(channel);
        }
        Ok(())
    }
}

/// The port space of a C value, and the queue pair type that it implies.
pub(crate) fn port_space(value: u32) -> Result<(PortSpace, u32), Errno> {
    let space = u16::try_from(value).ok().and_then(PortSpace::of).ok_or(Errno::INVALID)?;
    let qp_type = match space {
        PortSpace::Udp | PortSpace::Ipoib => abi::IBV_QPT_UD,
        PortSpace::Tcp | PortSpace::Ib => abi::IBV_QPT_RC,
    };
    Ok((space, qp_type))
}

door! {
    fn rdma_create_id(
        channel: *mut rdma_event_channel, place: Out<'_, *mut rdma_cm_id>, context: *mut c_void, space: u32,
    ) -> status(c_int) {
        let (space, qp_type) = port_space(space)?;
        let place = place.required()?;
        place.write(Id::new(process()?, channel, context, space, qp_type)?.cast())
    }

    fn rdma_destroy_id(raw: *mut rdma_cm_id) -> status(c_int) {
        // SAFETY: the program gives the identifier up.
        unsafe { destroy(raw) }
    }

    fn rdma_migrate_id(id: IdArg<'_>, channel: *mut rdma_event_channel) -> status(c_int) {
        let (this, raw) = (id.get()?, id.raw());
        let becomes_synchronous = channel.is_null();
        if becomes_synchronous && this.state().is_synchronous {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program is done with the event of its last call.
        unsafe { this.forget_event() };
        let channel = if becomes_synchronous { channel::create()? } else { channel };
        // SAFETY: the program's channel, or ours.
        let queue = unsafe { channel::queue(channel) }?;
        // SAFETY: calls on one identifier come one at a time.
        let old = unsafe { (*raw).channel };
        let was_synchronous = this.process.with(|_, _| {
            let mut state = this.state();
            let waiting = state.queue.take_out(|event| event.id == this.key());
            waiting.into_iter().for_each(|event| queue.push(event));
            state.queue = Arc::clone(&queue);
            // SAFETY: calls on one identifier come one at a time.
            unsafe { (*raw).channel = channel };
            Ok(core::mem::replace(&mut state.is_synchronous, becomes_synchronous))
        })?;
        this.wait_acknowledged();
        if was_synchronous {
            // SAFETY: the channel was made for the identifier alone, which has another one now.
            unsafe { channel::destroy(old) };
        }
        Ok(())
    }

    /// In network byte order; 0 while there is none.
    fn rdma_get_src_port(id: IdArg<'_>) -> plain(u16) {
        id.optional().and_then(Id::local).map_or(0, |address| address.port().to_be())
    }

    /// In network byte order; 0 while there is none.
    fn rdma_get_dst_port(id: IdArg<'_>) -> plain(u16) {
        id.optional().and_then(Id::remote).map_or(0, |address| address.port().to_be())
    }
}
