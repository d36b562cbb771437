//! Addresses and routes: `rdma_bind_addr`, `rdma_resolve_addr`, `rdma_resolve_route`.

use crate::device::OpenDevice;
use crate::id::{Id, IdArg};
use crate::negotiated::Negotiated;
use crate::neighbours::Query;
use crate::path_record::{PARTITION, fill_path_record};
use crate::pending::{Action, Pending};
use crate::sockaddr::{self, AddressArg};
use crate::state::Step;
use crate::synchronous::complete;
use abi::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
    RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_gid,
};
use core::ffi::c_int;
use ffi::{Errno, public_exports, reported};
use link::neighbour::{Ends, Neighbours, solicit};
use rnic::Path;
use rnic::cm::ListenAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// TTL of RoCEv2 packets.
pub const HOP_LIMIT: u8 = 64;

/// Binds an identifier to a local address and a port.
pub(crate) fn bind(this: &Id, address: SocketAddr) -> Result<(), Errno> {
    if this.state().step != Step::Idle {
        return Err(Errno::INVALID);
    }
    let device = match address.ip() {
        ip if ip.is_unspecified() => None,
        ip => Some(device_of(this, ip)?),
    };
    let (space, listened, shared) = {
        let state = this.state();
        let listened = match address {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => ListenAddress::AnyV4,
            SocketAddr::V6(v6) if v6.ip().is_unspecified() && state.options.v6_only => {
                ListenAddress::AnyV6
            }
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => ListenAddress::Any,
            other => ListenAddress::One(other.ip().to_canonical()),
        };
        (state.space, listened, state.options.reuses_address)
    };
    let connector = this.process.connector()?;
    let bound = connector.bind(space, address.port(), listened, shared)?;
    {
        let mut state = this.state();
        state.bound = Some(bound);
        state.step = Step::Bound;
    }
    let mut address = address;
    address.set_port(bound.port);
    this.set_local(address);
    // As on Linux, binding to a loopback address selects no device: libfabric binds "localhost" to see
    // whether there is one, and would restrict the program to that device.
    if let Some(device) = device.filter(|_| !address.ip().is_loopback()) {
        this.attach(device);
        let gid = device.gid_of(sockaddr::gid(address.ip()));
        // SAFETY: calls on one identifier come one at a time.
        unsafe { (*this.raw()).route.addr.ibaddr.sgid = ibv_gid { raw: gid.0 } };
    }
    Ok(())
}

/// Attaches the device of a local address; binding to a loopback address attaches none.
pub fn attach_device(this: &Id, address: IpAddr) -> Result<&'static OpenDevice, Errno> {
    let device = device_of(this, address)?;
    this.attach(device);
    Ok(device)
}

/// The device that has an address; `EADDRNOTAVAIL` when the address is not local, `ENODEV` when its interface
/// has no device.
fn device_of(this: &Id, address: IpAddr) -> Result<&'static OpenDevice, Errno> {
    this.process
        .device_of(sockaddr::gid(address))
        .map_err(|error| match check_is_local(address) {
            Err(unknown @ Errno(libc::EADDRNOTAVAIL)) => unknown,
            _ => error,
        })
}

/// Fails with `EADDRNOTAVAIL` when the address is not one of this host's.
fn check_is_local(address: IpAddr) -> Result<(), Errno> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = sockaddr::kernel_socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)?;
    let address = SocketAddr::new(address, 0);
    let storage = sockaddr::storage(address);
    let place = storage.as_ptr().cast();
    // SAFETY: an address as long as it says.
    Errno::check_code(unsafe { libc::bind(socket.as_raw_fd(), place, sockaddr::length(&address)) })
}

/// The source address that the kernel selects for a route to `remote`: `local`, where the program has chosen
/// one.
fn route_to(remote: SocketAddr, local: Option<IpAddr>) -> Result<IpAddr, Errno> {
    let family = if remote.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = sockaddr::kernel_socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)?;
    if let Some(local) = local {
        let local = scoped(local, 0, remote);
        let storage = sockaddr::storage(local);
        let place = storage.as_ptr().cast();
        // SAFETY: an address as long as it says.
        Errno::check_code(unsafe {
            libc::bind(socket.as_raw_fd(), place, sockaddr::length(&local))
        })?;
    }
    let socket = UdpSocket::from(socket);
    let mut remote = remote;
    // Any port does, except 0.
    remote.set_port(1);
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// Maps the unspecified address to the loopback address, as a destination.
fn canonical(mut remote: SocketAddr) -> SocketAddr {
    if remote.ip().is_unspecified() {
        remote.set_ip(match remote {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    remote
}

/// Resolves a destination to a source address and its device.
pub(crate) fn resolve(
    this: &Id,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    timeout_ms: c_int,
) -> Result<(), Errno> {
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
    let chosen = wanted
        .map(|wanted| wanted.ip())
        .filter(|ip| !ip.is_unspecified());
    let source = match chosen {
        Some(source) => source,
        None => route_to(remote, None)?,
    };
    let device = device_of(this, source)?;
    if chosen.is_some() {
        // There has to be a route from the source address that the program has chosen. Linux looks for the
        // peer on that address's link instead, and reports ADDR_ERROR when no neighbour entry is found.
        route_to(remote, chosen)?;
    }
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
        known.dgid = ibv_gid {
            raw: path.destination.0,
        };
        known.pkey = PARTITION.to_be();
    }
    this.state().negotiated = Negotiated::of_path(path);
    let ends = Ends {
        source,
        destination: remote.ip(),
        ifindex: scope(remote),
    };
    find_neighbour(this, ends, timeout_ms, chosen.is_none())
}

/// Reports ADDR_RESOLVED at once if the kernel knows the peer's link-layer address, or needs none.
fn find_neighbour(
    this: &Id,
    ends: Ends,
    timeout_ms: c_int,
    has_any_source: bool,
) -> Result<(), Errno> {
    if host::faults::is_on()
        && let Some(errno) = reported("rdma_resolve_addr")
    {
        let mut event = Pending::plain(this.key(), RDMA_CM_EVENT_ADDR_ERROR, -errno.0);
        if has_any_source {
            event.action = Action::ForgetSource;
        }
        let mut state = this.state();
        state.step = Step::Bound;
        Arc::clone(&state.queue).push(event);
        return Ok(());
    }
    let is_subnet = this.state().device.is_some_and(|device| device.is_subnet);
    if !is_subnet && (this.process.has_address(sockaddr::gid(ends.destination))? || is_known(ends))
    {
        let mut state = this.state();
        state.step = Step::AddressResolved;
        let queue = Arc::clone(&state.queue);
        queue.push(Pending::plain(this.key(), RDMA_CM_EVENT_ADDR_RESOLVED, 0));
        return Ok(());
    }
    this.state().step = Step::AddressQuery;
    let query = Query::new(this.entry(), ends, timeout_ms, has_any_source);
    let query = if is_subnet {
        query.in_subnet()
    } else {
        Ok(query)
    };
    let added = query.and_then(|query| this.process.searches.add(query));
    added.inspect_err(|_| {
        this.state().step = Step::Bound;
        if has_any_source {
            this.forget_source();
        }
    })?;
    Ok(())
}

/// Whether the kernel knows the peer's link-layer address, perhaps after a request for it: an answer often
/// comes before the request's system call returns. Without an answer of the kernel the address counts as
/// known, since there is a route.
fn is_known(ends: Ends) -> bool {
    let neighbours = Neighbours::open();
    let is_known = || neighbours.is_known(ends).unwrap_or(true);
    is_known() || {
        solicit(ends);
        is_known()
    }
}

/// The interface of a link-local address; 0 for others, whose route names it.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    }
}

/// A local address; a link-local one gets the scope of the peer's.
fn scoped(address: IpAddr, port: u16, remote: SocketAddr) -> SocketAddr {
    let mut local = SocketAddr::new(address, port);
    if let (SocketAddr::V6(local), SocketAddr::V6(remote)) = (&mut local, &remote)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(remote.scope_id());
    }
    local
}

/// Resolves the route. On RoCE the addresses are the path; what is added is the path MTU and the time-outs.
pub(crate) fn find_route(this: &Id) -> Result<(), Errno> {
    let path = {
        let state = this.state();
        if state.step != Step::AddressResolved {
            return Err(Errno::INVALID);
        }
        let mut path = *state.negotiated.path().ok_or(Errno::INVALID)?;
        path.traffic_class = state.options.tos;
        path
    };
    let path = Path {
        flow_label: flow_label(this),
        ..path
    };
    if host::faults::is_on()
        && let Some(errno) = reported("rdma_resolve_route")
    {
        let event = Pending::plain(this.key(), RDMA_CM_EVENT_ROUTE_ERROR, -errno.0);
        Arc::clone(&this.state().queue).push(event);
        return Ok(());
    }
    // SAFETY: calls on one identifier come one at a time.
    unsafe { fill_path_record(this, path) };
    let mut state = this.state();
    let mtu = match state.subnet_path {
        Some(path) => path.mtu,
        None => state.device.map_or(0, OpenDevice::active_mtu),
    };
    // SAFETY: just described.
    let lifetime = unsafe { (*(*this.raw()).route.path_rec).packet_life_time };
    state.negotiated = Negotiated::of_route(path, mtu, lifetime);
    state.step = Step::RouteResolved;
    let queue = Arc::clone(&state.queue);
    queue.push(Pending::plain(this.key(), RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    Ok(())
}

/// The flow label, from which UDP's source port is derived: the one in the program's IPv6 address, or a hash
/// of both ports as on Linux (`cma_get_roce_udp_flow_label`).
fn flow_label(this: &Id) -> u32 {
    const MASK: u32 = 0xf_ffff;
    let (local, remote) = (this.local(), this.remote());
    let said = match local {
        Some(SocketAddr::V6(local)) => u32::from_be(local.flowinfo()) & MASK,
        _ => 0,
    };
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| u32::from(address.port()));
    if said != 0 {
        said
    } else {
        (port(local) * 31 + port(remote)) & MASK
    }
}

public_exports! {
    fn rdma_bind_addr(id: IdArg<'_>, address: AddressArg) -> status(c_int) {
        let this = id.get()?;
        if address.by_gid().is_some() {
            this.name_by_gid([0; 16]);
        }
        bind(this, address.get()?)
    }

    fn rdma_resolve_addr(id: IdArg<'_>, local: AddressArg, remote: AddressArg, timeout_ms: c_int)
        -> status(c_int) {
        let this = id.get()?;
        if let Some(peer) = remote.by_gid() {
            this.name_by_gid(peer.gid);
        }
        resolve(this, local.optional()?, remote.get()?, timeout_ms)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    fn rdma_resolve_route(id: IdArg<'_>, _timeout_ms: c_int) -> status(c_int) {
        let this = id.get()?;
        find_route(this)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
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
