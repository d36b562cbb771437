//! Communication identifiers (`rdma_cm_id`): what C sees, and the state behind it.

use crate::channel;
use crate::device::{OpenDevice, PORT};
use crate::id_table::Entry;
use crate::process::Process;
use crate::sockaddr;
use crate::sockaddr_ib::GidAddress;
use crate::state::State;
use abi::{ibv_pd, rdma_cm_id, rdma_event_channel};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use ffi::lock;
use ffi::{BeginsWith, Errno, Object};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use wire::cm::PortSpace;

/// A communication identifier. C sees the first field.
#[repr(C)]
pub struct Id {
    /// Read and written by the program and by calls, which the program has to serialize.
    abi: UnsafeCell<rdma_cm_id>,
    pub(crate) process: &'static Process,
    /// Shared with the table by which events of the protocol find it.
    state: Arc<Mutex<State>>,
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
pub unsafe fn id<'a>(raw: *mut rdma_cm_id) -> Result<&'a Id, Errno> {
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
        let channel = if is_synchronous {
            channel::create()?
        } else {
            channel
        };
        // SAFETY: the caller's channel, or ours.
        let queue = unsafe { channel::queue(channel) }?;
        let abi = rdma_cm_id {
            verbs: null_mut(),
            channel,
            context,
            qp: null_mut(),
            route: abi::rdma_route {
                addr: abi::rdma_addr::default(),
                path_rec: null_mut(),
                num_paths: 0,
            },
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
        let state = State::new(queue, is_synchronous, space);
        Ok(Box::into_raw(Box::new(Self {
            abi: UnsafeCell::new(abi),
            process,
            state: Arc::new(Mutex::new(state)),
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

    /// Whether the identifier has a queue pair.
    pub(crate) fn has_qp(&self) -> bool {
        // SAFETY: calls on one identifier come one at a time.
        !unsafe { (*self.raw()).qp }.is_null()
    }

    /// The identifier's address, which queued events and tables refer to.
    pub(crate) fn key(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// The entry of the identifier in the table.
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            id: self.key(),
            state: Arc::clone(&self.state),
        }
    }

    /// Whether the identifier's port space is for datagrams.
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
        let storage = match self.gid_space() {
            Some((space, _)) => {
                let is_port = !address.ip().is_unspecified() && !address.ip().is_loopback();
                let gid = if is_port {
                    GidAddress::own_gid()
                } else {
                    sockaddr::gid(address.ip()).0
                };
                let port = address.port();
                GidAddress { gid, port }.storage(space)
            }
            None => sockaddr::storage(address),
        };
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*self.raw()).route.addr.src_storage = storage };
    }

    pub(crate) fn set_remote(&self, address: SocketAddr) {
        let storage = match self.gid_space() {
            Some((space, gid)) => GidAddress {
                gid,
                port: address.port(),
            }
            .storage(space),
            None => sockaddr::storage(address),
        };
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*self.raw()).route.addr.dst_storage = storage };
    }

    /// The port space and the peer's GID, where the program names ports by GID.
    fn gid_space(&self) -> Option<(PortSpace, [u8; 16])> {
        let state = self.state();
        Some((state.space, state.peer_gid?))
    }

    /// The program names a port by GID.
    pub(crate) fn name_by_gid(&self, peer: [u8; 16]) {
        self.state().peer_gid = Some(peer);
    }

    /// The protection domain of the identifier's device; `EINVAL` without a device.
    pub fn pd(&self) -> Result<*mut ibv_pd, Errno> {
        self.state().device.ok_or(Errno::INVALID)?.pd()
    }

    /// The path MTU that both ends agreed on, as verbs count it: 128 bytes shifted left by this.
    pub fn path_mtu(&self) -> u8 {
        self.state().negotiated.mtu
    }

    /// Attaches the identifier to a device. As in rdma-core it gets the device's default protection domain,
    /// in which programs create queue pairs of their own.
    pub(crate) fn attach(&self, device: &'static OpenDevice) {
        self.state().device = Some(device);
        // Fails only in the child of a fork, where the identifier gets no events.
        let _ = self.process.with(|session, _| {
            session.owner.attach(self.entry());
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

    /// Undoes [`Self::attach`], and makes the source address, not the port, unspecified again.
    pub(crate) fn forget_source(&self) {
        if let Some(mut local) = self.local() {
            local.set_ip(match local {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            });
            self.set_local(local);
        }
        self.state().device = None;
        // SAFETY: calls on one identifier come one at a time.
        unsafe {
            (*self.raw()).verbs = null_mut();
            (*self.raw()).port_num = 0;
            (*self.raw()).pd = null_mut();
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
}

/// The port space of a C value, and the queue pair type that it implies.
pub(crate) fn port_space(value: u32) -> Result<(PortSpace, u32), Errno> {
    let space = u16::try_from(value)
        .ok()
        .and_then(PortSpace::of)
        .ok_or(Errno::INVALID)?;
    let qp_type = match space {
        PortSpace::Udp | PortSpace::Ipoib => abi::IBV_QPT_UD,
        PortSpace::Tcp | PortSpace::Ib => abi::IBV_QPT_RC,
    };
    Ok((space, qp_type))
}
