//! Addresses: binding to our own, and resolving a peer's.

use crate::events::Pending;
use crate::id::{Id, Step, id};
use crate::qp::Link;
use crate::sockaddr;
use abi::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_gid, ibv_port_attr, ibv_sa_path_rec,
    rdma_cm_id,
};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::Path;
use rnic::cm::ListenAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// How long a packet may live on RoCE: 4.096 us times 2 to this power. Linux 6.1 says 18; newer ones, as we
/// do, 16: 0.27 s.
const PACKET_LIFETIME: u8 = 16;
/// The partition that all are in.
const PARTITION: u16 = 0xffff;
/// TTL of RoCEv2.
pub(crate) const HOP_LIMIT: u8 = 64;
/// Fields of a path record that are exact (`enum ibv_sa_selector`).
const EXACTLY: u8 = 2;
/// 100 Gb/s (`enum ibv_rate`).
const RATE: u8 = 16;

/// Takes an address of ours, and a port.
pub(crate) fn bind(this: &Id, address: SocketAddr) -> Result<(), Errno> {
    if this.state().step != Step::Idle {
        return Err(Errno::INVALID);
    }
    let device = match address.ip() {
        ip if ip.is_unspecified() => None,
        ip => Some(device_of(this, ip)?),
    };
    let bound = this.world.with(|session, _| {
        let mut state = this.state();
        let listened = match address {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => ListenAddress::AnyV4,
            SocketAddr::V6(v6) if v6.ip().is_unspecified() && state.options.v6_only => ListenAddress::AnyV6,
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => ListenAddress::Any,
            other => ListenAddress::One(other.ip().to_canonical()),
        };
        let shared = state.options.reuses_address;
        let bound = session.bind(state.space, address.port(), listened, shared)?;
        state.bound = Some(bound);
        state.step = Step::Bound;
        Ok(bound)
    })?;
    let mut address = address;
    address.set_port(bound.port);
    this.set_local(address);
    // As on Linux a loopback address says nothing of a device: libfabric binds "localhost", and takes one
    // that it got for the only one that its user may have.
    if let Some(device) = device.filter(|_| !address.ip().is_loopback()) {
        this.attach(device);
        let gid = sockaddr::gid(address.ip());
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*this.raw()).route.addr.ibaddr.sgid = ibv_gid { raw: gid.0 } };
    }
    Ok(())
}

/// Gives a bound identifier the device of its address, which for a loopback address binding does not.
pub(crate) fn take_device(this: &Id, address: IpAddr) -> Result<&'static crate::world::Opened, Errno> {
    let device = device_of(this, address)?;
    this.attach(device);
    Ok(device)
}

/// The device that has an address; `EADDRNOTAVAIL` when the address is not ours at all, `ENODEV` when its
/// interface has no device.
fn device_of(this: &Id, address: IpAddr) -> Result<&'static crate::world::Opened, Errno> {
    this.world.device_of(sockaddr::gid(address)).map_err(|error| match is_known(address) {
        Err(unknown @ Errno(libc::EADDRNOTAVAIL)) => unknown,
        _ => error,
    })
}

/// Whether the kernel has an address.
fn is_known(address: IpAddr) -> Result<(), Errno> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = sockaddr::kernel_socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)?;
    let address = SocketAddr::new(address, 0);
    let storage = sockaddr::storage(address);
    let place = storage.as_ptr().cast();
    // SAFETY: an address as long as it says.
    Errno::check(unsafe { libc::bind(socket.as_raw_fd(), place, sockaddr::length(&address)) })
}

/// The address that the kernel would send from.
fn route_to(remote: SocketAddr) -> Result<IpAddr, Errno> {
    let family = if remote.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = sockaddr::kernel_socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)?;
    let socket = UdpSocket::from(socket);
    let mut remote = remote;
    // Which port does not matter, but it must not be 0.
    remote.set_port(1);
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// A destination of "any" is this host.
fn canonical(mut remote: SocketAddr) -> SocketAddr {
    if remote.ip().is_unspecified() {
        remote.set_ip(match remote {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    remote
}

/// Finds out where a peer is reached from.
pub(crate) fn resolve(this: &Id, local: Option<SocketAddr>, remote: SocketAddr) -> Result<(), Errno> {
    let remote = canonical(remote);
    let step = this.state().step;
    let wanted = match (step, local) {
        (Step::Idle, local) => local,
        (Step::Bound, _) => this.local(),
        _ => return Err(Errno::INVALID),
    };
    if wanted.is_some_and(|wanted| wanted.is_ipv4() != remote.is_ipv4()) {
        return Err(Errno::INVALID);
    }
    let source = match wanted {
        Some(address) if !address.ip().is_unspecified() => address.ip(),
        _ => route_to(remote)?,
    };
    let device = device_of(this, source)?;
    if step == Step::Idle {
        let port = wanted.map_or(0, |wanted| wanted.port());
        bind(this, scoped(source, port, remote))?;
    }
    let port = this.state().bound.map_or(0, |bound| bound.port);
    this.set_local(scoped(source, port, remote));
    this.set_remote(remote);
    this.attach(device);
    let path = {
        let state = this.state();
        Path {
            source: sockaddr::gid(source),
            destination: sockaddr::gid(remote.ip()),
            traffic_class: state.options.tos,
            hop_limit: HOP_LIMIT,
            ..Path::default()
        }
    };
    // SAFETY: calls on one identifier come one at a time.
    unsafe {
        let known = &mut (*this.raw()).route.addr.ibaddr;
        known.sgid = ibv_gid { raw: path.source.0 };
        known.dgid = ibv_gid { raw: path.destination.0 };
        known.pkey = PARTITION.to_be();
    }
    let mut state = this.state();
    state.link = Link::of_path(path);
    state.step = Step::AddressResolved;
    let queue = Arc::clone(&state.queue);
    queue.push(Pending::plain(this.key(), RDMA_CM_EVENT_ADDR_RESOLVED, 0));
    Ok(())
}

/// An address of ours towards a peer: link-local ones are on the peer's link.
fn scoped(address: IpAddr, port: u16, remote: SocketAddr) -> SocketAddr {
    let mut local = SocketAddr::new(address, port);
    if let (SocketAddr::V6(local), SocketAddr::V6(remote)) = (&mut local, &remote)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(remote.scope_id());
    }
    local
}

/// Finds the way. On RoCE the addresses say it; what remains is the path MTU and the time-outs.
pub(crate) fn find_route(this: &Id) -> Result<(), Errno> {
    let path = {
        let state = this.state();
        if state.step != Step::AddressResolved {
            return Err(Errno::INVALID);
        }
        let mut path = *state.link.path().ok_or(Errno::INVALID)?;
        path.traffic_class = state.options.tos;
        path
    };
    let path = Path { flow_label: flow_label(this), ..path };
    // SAFETY: calls on one identifier come one at a time.
    unsafe { describe_route(this, path) };
    let mut state = this.state();
    let mtu = state.device.map_or(0, active_mtu);
    // SAFETY: just described.
    let lifetime = unsafe { (*(*this.raw()).route.path_rec).packet_life_time };
    state.link = Link::of_route(path, mtu, lifetime);
    state.step = Step::RouteResolved;
    let queue = Arc::clone(&state.queue);
    queue.push(Pending::plain(this.key(), RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    Ok(())
}

/// What switches and receivers tell flows apart by, UDP's source port follows from it: what the program says
/// in its IPv6 address, or a hash of both ports as Linux has it (`cma_get_roce_udp_flow_label`).
fn flow_label(this: &Id) -> u32 {
    const MASK: u32 = 0xf_ffff;
    let (local, remote) = (this.local(), this.remote());
    let said = match local {
        Some(SocketAddr::V6(local)) => u32::from_be(local.flowinfo()) & MASK,
        _ => 0,
    };
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| u32::from(address.port()));
    if said != 0 { said } else { (port(local) * 31 + port(remote)) & MASK }
}

/// The longest payload per packet of a device, as `enum ibv_mtu` has it.
pub(crate) fn active_mtu(device: &'static crate::world::Opened) -> u8 {
    let mut attr = ibv_port_attr::default();
    let Ok(verbs) = crate::verbs::verbs() else { return 0 };
    // SAFETY: an open device, and room for what it tells.
    let code = unsafe { (verbs.ibv_query_port)(device.context(), crate::world::PORT, &mut attr) };
    if code == 0 { attr.active_mtu as u8 } else { 0 }
}

/// Fills in the path record that C sees.
///
/// # Safety
/// Nobody else uses the identifier.
pub(crate) unsafe fn describe_route(this: &Id, path: Path) {
    let (mtu, lifetime) = {
        let state = this.state();
        let timeout = state.options.ack_timeout.map(|timeout| timeout.saturating_sub(1));
        (state.device.map_or(0, active_mtu), timeout.unwrap_or(PACKET_LIFETIME))
    };
    let record = ibv_sa_path_rec {
        dgid: ibv_gid { raw: path.destination.0 },
        sgid: ibv_gid { raw: path.source.0 },
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: PARTITION.to_be(),
        sl: path.service_level,
        mtu_selector: EXACTLY,
        mtu,
        rate_selector: EXACTLY,
        rate: RATE,
        packet_life_time_selector: EXACTLY,
        packet_life_time: lifetime,
        ..ibv_sa_path_rec::default()
    };
    // SAFETY: as above; the record is NULL or ours.
    unsafe {
        let raw = this.raw();
        let known = &mut (*raw).route.addr.ibaddr;
        known.sgid = ibv_gid { raw: path.source.0 };
        known.dgid = ibv_gid { raw: path.destination.0 };
        known.pkey = PARTITION.to_be();
        match (*raw).route.path_rec.as_mut() {
            Some(place) => *place = record,
            None => (*raw).route.path_rec = Box::into_raw(Box::new(record)),
        }
        (*raw).route.num_paths = 1;
    }
}

door! {
    fn rdma_bind_addr(raw: *mut rdma_cm_id, address: *const c_void) -> status(c_int) {
        bind(id(raw)?, sockaddr::read(address)?)
    }

    fn rdma_resolve_addr(raw: *mut rdma_cm_id, local: *const c_void, remote: *const c_void,
        _timeout_ms: c_int) -> status(c_int) {
        let this = id(raw)?;
        let local = if local.is_null() { None } else { Some(sockaddr::read(local)?) };
        resolve(this, local, sockaddr::read(remote)?)?;
        this.complete()
    }

    fn rdma_resolve_route(raw: *mut rdma_cm_id, _timeout_ms: c_int) -> status(c_int) {
        let this = id(raw)?;
        find_route(this)?;
        this.complete()
    }
}
