//! Communication identifiers: what C sees, and what belongs to it.

use crate::channel::{self, Queue};
use crate::qp::Link;
use crate::sockaddr;
use crate::world::{Opened, PORT, World, lock, world};
use abi::{ibv_sa_path_rec, rdma_cm_event, rdma_cm_id, rdma_event_channel, sockaddr_storage};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use host::cm::Bound;
use rnic::cm::{Ece, ListenerId};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use wire::cm::{CommId, PortSpace};

/// How far an identifier has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing has been said.
    Idle,
    /// It has a local address and a port.
    Bound,
    /// It knows the peer's address, and has a device.
    AddressResolved,
    /// It knows the way.
    RouteResolved,
    /// It waits for requests.
    Listening,
    /// It asked a peer.
    Connecting,
    /// A peer asks.
    Requested,
    /// A peer was accepted, or has accepted.
    Accepted,
    /// Both ends are ready; of datagrams, that the peer's queue pair is known.
    Connected,
    /// It is over.
    Parted,
    /// Its device is gone.
    Removed,
}

/// A multicast group that was joined.
pub(crate) struct Group {
    pub(crate) address: SocketAddr,
    /// The queue pair receives from it.
    pub(crate) attached: bool,
    pub(crate) sends_only: bool,
}

/// What `rdma_set_option` and ECE calls set.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) tos: u8,
    pub(crate) reuses_address: bool,
    /// IPv6 alone. `None`: as the listener says by its address.
    pub(crate) v6_only: bool,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

/// What one thread at a time sees. Taken after the lock of all connections, never before it.
pub(crate) struct State {
    pub(crate) step: Step,
    /// Where its events go.
    pub(crate) queue: Arc<Queue>,
    /// The queue is its own, and calls wait for their events.
    pub(crate) is_synchronous: bool,
    pub(crate) space: PortSpace,
    pub(crate) device: Option<&'static Opened>,
    pub(crate) bound: Option<Bound>,
    pub(crate) comm: Option<CommId>,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) options: Options,
    /// What the two ends agreed upon, as far as it is known.
    pub(crate) link: Link,
    pub(crate) groups: Vec<Group>,
    /// With what `rdma_get_request` makes queue pairs.
    pub(crate) endpoint: Option<crate::endpoint::Template>,
    /// The end was told.
    pub(crate) disconnected: bool,
}

/// What a pointer of C leads to.
#[repr(C)]
pub(crate) struct Id {
    /// Programs and their calls read and write it, one at a time as they owe.
    abi: UnsafeCell<rdma_cm_id>,
    pub(crate) world: &'static World,
    state: Mutex<State>,
    /// Events that were taken and not acknowledged.
    owed: Mutex<u32>,
    settled: Condvar,
}

/// The identifier behind a pointer of C.
///
/// # Safety
/// NULL, or one that this library gave out and that is not destroyed.
pub(crate) unsafe fn id<'a>(raw: *mut rdma_cm_id) -> Result<&'a Id, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Id>().as_ref() }.ok_or(Errno::INVALID)
}

impl Id {
    /// Makes one. Without a channel it gets one of its own.
    pub(crate) fn new(
        world: &'static World,
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
            link: Link::default(),
            groups: Vec::new(),
            endpoint: None,
            disconnected: false,
        };
        Ok(Box::into_raw(Box::new(Self {
            abi: UnsafeCell::new(abi),
            world,
            state: Mutex::new(state),
            owed: Mutex::new(0),
            settled: Condvar::new(),
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What C sees.
    pub(crate) fn raw(&self) -> *mut rdma_cm_id {
        self.abi.get()
    }

    /// Its address, as events name it.
    pub(crate) fn key(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Whether it is for datagrams.
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

    /// It belongs to this device from now on. As in rdma-core it has the device's protection domain, with
    /// which programs make queue pairs of their own.
    pub(crate) fn attach(&self, device: &'static Opened) {
        self.state().device = Some(device);
        // A child's copy of its parent's world hears nothing anyway.
        let _ = self.world.with(|session, _| {
            session.owner.attach(self.key());
            Ok(())
        });
        // SAFETY: calls on one identifier come one at a time.
        unsafe {
            (*self.raw()).verbs = device.context();
            (*self.raw()).port_num = PORT;
            // Where there is none, the call that needs it says so.
            (*self.raw()).pd = device.pd().unwrap_or(null_mut());
        }
    }

    /// An event about it is with the program.
    pub(crate) fn note_event(&self) {
        *lock(&self.owed) += 1;
    }

    /// The program gave it back.
    pub(crate) fn note_acknowledged(&self) {
        let mut owed = lock(&self.owed);
        *owed = owed.saturating_sub(1);
        self.settled.notify_all();
    }

    /// Waits until the program has given all back.
    pub(crate) fn settle(&self) {
        let owed = lock(&self.owed);
        drop(self.settled.wait_while(owed, |owed| *owed > 0).unwrap_or_else(PoisonError::into_inner));
    }

    /// A synchronous call is through when its event is there: that stays in `event` until the next call.
    ///
    /// # Safety
    /// No lock is held; the event of the last call is not used any more.
    pub(crate) unsafe fn complete(&self) -> Result<(), Errno> {
        if !self.state().is_synchronous {
            return Ok(());
        }
        // SAFETY: as above; the channel is ours.
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

    /// Acknowledges the event that a synchronous call left.
    ///
    /// # Safety
    /// The program does not use it any more.
    pub(crate) unsafe fn forget_event(&self) {
        // SAFETY: as above.
        unsafe {
            let event: *mut rdma_cm_event = core::mem::replace(&mut (*self.raw()).event, null_mut());
            if !event.is_null() {
                crate::events::acknowledge(event);
            }
        }
    }
}

/// Ends everything that an identifier has, and frees it.
///
/// # Safety
/// `raw` is an identifier that nobody uses any more.
pub(crate) unsafe fn destroy(raw: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe {
        let this = id(raw)?;
        this.forget_event();
        // What is not ours ends with its process.
        let _ = this.world.with(|session, now| {
            let mut state = this.state();
            session.owner.forget(this.key(), &state);
            if let (Some(listener), Some(bound)) = (state.listener.take(), state.bound) {
                session.unlisten(&bound, listener, now);
            }
            if let Some(comm) = state.comm.take() {
                let _ = session.cm.release(comm, now);
            }
            if let Some(bound) = state.bound.take() {
                session.unbind(&bound);
            }
            Ok(())
        });
        crate::multicast::leave_all(this);
        let queue = Arc::clone(&this.state().queue);
        drop(queue.take_out(|event| event.id == this.key()));
        this.settle();
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

/// Whether a port space is one of ours, and the kind of its queue pairs.
pub(crate) fn port_space(value: u32) -> Result<(PortSpace, u32), Errno> {
    let space = u16::try_from(value).ok().and_then(PortSpace::of).ok_or(Errno::INVALID)?;
    let qp_type = match space {
        PortSpace::Udp | PortSpace::Ipoib => abi::IBV_QPT_UD,
        PortSpace::Tcp | PortSpace::Ib => abi::IBV_QPT_RC,
    };
    Ok((space, qp_type))
}

door! {
    fn rdma_create_id(channel: *mut rdma_event_channel, place: *mut *mut rdma_cm_id, context: *mut c_void,
        space: u32) -> status(c_int) {
        let (space, qp_type) = port_space(space)?;
        let place = place.as_mut().ok_or(Errno::INVALID)?;
        *place = Id::new(world()?, channel, context, space, qp_type)?.cast();
        Ok(())
    }

    fn rdma_destroy_id(raw: *mut rdma_cm_id) -> status(c_int) {
        destroy(raw)
    }

    fn rdma_migrate_id(raw: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> status(c_int) {
        let this = id(raw)?;
        let becomes_synchronous = channel.is_null();
        if becomes_synchronous && this.state().is_synchronous {
            return Err(Errno::INVALID);
        }
        this.forget_event();
        let channel = if becomes_synchronous { channel::create()? } else { channel };
        let queue = channel::queue(channel)?;
        let old = (*raw).channel;
        let was_synchronous = this.world.with(|_, _| {
            let mut state = this.state();
            let waiting = state.queue.take_out(|event| event.id == this.key());
            waiting.into_iter().for_each(|event| queue.push(event));
            state.queue = Arc::clone(&queue);
            (*raw).channel = channel;
            Ok(core::mem::replace(&mut state.is_synchronous, becomes_synchronous))
        })?;
        this.settle();
        if was_synchronous {
            channel::destroy(old);
        }
        Ok(())
    }
}

/// The port in an address, big-endian; 0 while there is none.
fn port_of(storage: &sockaddr_storage) -> u16 {
    sockaddr::stored(storage).map_or(0, |address| address.port().to_be())
}

door! {
    fn rdma_get_src_port(raw: *mut rdma_cm_id) -> plain(u16) {
        raw.as_ref().map_or(0, |raw| port_of(&raw.route.addr.src_storage))
    }

    fn rdma_get_dst_port(raw: *mut rdma_cm_id) -> plain(u16) {
        raw.as_ref().map_or(0, |raw| port_of(&raw.route.addr.dst_storage))
    }
}
