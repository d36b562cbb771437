//! What happens to connections, passed on to the identifiers that they belong to.

use crate::events::{Newcomer, Param, Pending, Then};
use crate::id::{Id, State, Step};
use crate::qp::Link;
use abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE,
};
use host::DeviceInfo;
use host::cm::Owner;
use rnic::cm::{Cm, Ece, Event, ListenerId, Parting};
use rnic::{Gid, Instant, Path};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wire::cm::{CMA_HEADER_SIZE, CmaHeader, CommId, Rej, Rep, Req, SidrRep, SidrStatus};

/// Whose the connections and listeners are, by the addresses of identifiers. An identifier takes itself out,
/// under the lock that this stands behind, before it is freed.
#[derive(Default)]
pub(crate) struct Owners {
    pub(crate) connections: HashMap<CommId, usize>,
    pub(crate) listeners: HashMap<ListenerId, usize>,
    /// Requests that wait in the queues of their listeners.
    unclaimed: HashMap<CommId, usize>,
    /// Identifiers that have a device.
    attached: HashSet<usize>,
    /// Names of the devices that there are.
    devices: Vec<String>,
}

/// The identifier at an address.
///
/// # Safety
/// The address is in one of the tables of [`Owners`].
unsafe fn at<'a>(key: usize) -> &'a Id {
    // SAFETY: as above.
    unsafe { &*(key as *const Id) }
}

impl Owners {
    /// A request is with its new identifier.
    pub(crate) fn claim(&mut self, comm: CommId, id: usize) {
        self.unclaimed.remove(&comm);
        self.connections.insert(comm, id);
    }

    /// A request is with nobody any more.
    pub(crate) fn drop_unclaimed(&mut self, comm: CommId) {
        self.unclaimed.remove(&comm);
    }

    /// An identifier is about to go.
    pub(crate) fn forget(&mut self, id: usize, state: &State) {
        self.attached.remove(&id);
        if let Some(comm) = state.comm {
            self.connections.remove(&comm);
        }
        if let Some(listener) = state.listener {
            self.listeners.remove(&listener);
            self.unclaimed.retain(|_, owner| *owner != id);
        }
    }

    /// An identifier has a device from now on.
    pub(crate) fn attach(&mut self, id: usize) {
        self.attached.insert(id);
    }

    fn of(&self, comm: CommId) -> Option<&Id> {
        // SAFETY: the address is from the table.
        self.connections.get(&comm).map(|key| unsafe { at(*key) })
    }

    fn request(&mut self, listener: ListenerId, newcomer: Newcomer, param: Param, data: &[u8], ece: Ece) {
        let Some(key) = self.listeners.get(&listener).copied() else { return };
        self.unclaimed.insert(newcomer.comm, key);
        let data = data.get(CMA_HEADER_SIZE..).unwrap_or_default().into();
        let then = Then::Introduce(Box::new(Newcomer { ece, ..newcomer }));
        let (kind, status) = (RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        // SAFETY: the address is from the table.
        unsafe { at(key) }.state().queue.push(Pending { id: key, kind, status, param, data, then });
    }

    /// Tells the owner of a connection, after a look at its state.
    fn tell(&self, comm: CommId, tell: impl FnOnce(usize, &mut State) -> Option<Pending>) {
        let Some(id) = self.of(comm) else { return };
        let mut state = id.state();
        if let Some(pending) = tell(id.key(), &mut state) {
            Arc::clone(&state.queue).push(pending);
        }
    }

    /// A request that nobody has taken yet, and that its peer has given up.
    fn withdraw(&mut self, comm: CommId, cm: &mut Cm, now: Instant) {
        let Some(key) = self.unclaimed.remove(&comm) else { return };
        // SAFETY: the listener would have taken it out of the table when it went.
        let queue = Arc::clone(&unsafe { at(key) }.state().queue);
        drop(queue.take_out(|event| event.is_request_of(comm)));
        let _ = cm.release(comm, now);
    }

    /// Tells whoever has a device that is gone, once: connections, listeners, who is bound.
    fn devices_removed(&self) {
        for key in &self.attached {
            // SAFETY: the address is from the table.
            let mut state = unsafe { at(*key) }.state();
            let is_there = state.device.is_none_or(|device| self.devices.contains(&device.name));
            if !is_there && state.step != Step::Removed {
                state.step = Step::Removed;
                let removal = Pending::plain(*key, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
                Arc::clone(&state.queue).push(removal);
            }
        }
    }
}

impl Owner for Owners {
    fn handle(&mut self, event: Event, cm: &mut Cm, now: Instant) {
        match event {
            Event::Request { id, listener, path, request, addresses, ece } => {
                let link = Link::of_request(&request, path);
                let param = Param::of_request(&request);
                let newcomer = newcomer(id, path, addresses, service_port(&request), link);
                self.request(listener, newcomer, param, &request.private_data, ece);
            }
            Event::SidrRequest { id, listener, path, request, addresses, ece } => {
                let port = request.service_id.port().map_or(0, |(_, port)| port);
                let newcomer = newcomer(id, path, addresses, port, Link::of_path(path));
                self.request(listener, newcomer, Param::None, &request.private_data, ece);
            }
            Event::Reply { id, reply, ece } => self.tell(id, |key, state| replied(key, state, &reply, ece)),
            Event::Established { id, private_data } => self.tell(id, |key, state| {
                state.step = Step::Connected;
                let data = private_data.map_or_else(Box::default, |data| Box::<[u8]>::from(*data));
                Some(Pending { data, ..Pending::conn(key, RDMA_CM_EVENT_ESTABLISHED) })
            }),
            Event::Rejected { id, reject } => {
                self.withdraw(id, cm, now);
                self.tell(id, |key, state| rejected(key, state, &reject));
            }
            Event::Unreachable { id } => self.tell(id, |key, state| {
                state.step = Step::Parted;
                Some(Pending::plain(key, RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT))
            }),
            Event::Disconnected { id, cause } => self.tell(id, |key, state| parted(key, state, &cause)),
            Event::Resolved { id, answer, ece } => self.tell(id, |key, state| {
                state.options.remote_ece = ece;
                Some(resolved(key, state, &answer))
            }),
            Event::AddressRemoved { id } => {
                self.withdraw(id, cm, now);
                // With its device, and that is told already; or alone.
                self.tell(id, |key, state| match state.step {
                    Step::Removed => None,
                    _ => disconnected(key, state, -libc::ENETDOWN, &[]),
                });
            }
            Event::TimeWaitOver { id } => self.tell(id, |key, state| {
                state.step = Step::Parted;
                Some(Pending::plain(key, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0))
            }),
        }
    }

    fn devices_changed(&mut self, devices: &[DeviceInfo]) {
        self.devices = devices.iter().map(|device| device.name.clone()).collect();
        self.devices_removed();
    }
}

fn service_port(request: &Req) -> u16 {
    request.service_id.port().map_or(0, |(_, port)| port)
}

/// Who came, under which addresses.
fn newcomer(comm: CommId, path: Path, addresses: Option<CmaHeader>, port: u16, link: Link) -> Newcomer {
    let (remote, remote_port) = match addresses {
        Some(header) => (header.source(), header.source_port),
        None => (ip(path.destination), 0),
    };
    Newcomer {
        comm,
        local: SocketAddr::new(addresses.map_or_else(|| ip(path.source), |it| it.destination()), port),
        remote: SocketAddr::new(remote, remote_port),
        link,
        ece: Ece::default(),
    }
}

fn ip(gid: Gid) -> IpAddr {
    IpAddr::V6(gid.0.into()).to_canonical()
}

fn replied(key: usize, state: &mut State, reply: &Rep, ece: Ece) -> Option<Pending> {
    state.step = Step::Accepted;
    state.options.remote_ece = ece;
    state.link.learn(reply);
    Some(Pending {
        param: Param::of_reply(reply),
        data: Box::from(reply.private_data),
        then: Then::GetReady,
        ..Pending::conn(key, RDMA_CM_EVENT_CONNECT_RESPONSE)
    })
}

fn rejected(key: usize, state: &mut State, reject: &Rej) -> Option<Pending> {
    state.step = Step::Parted;
    state.disconnected = true;
    Some(Pending {
        status: i32::from(reject.reason.0),
        data: Box::from(reject.private_data),
        then: Then::Part,
        ..Pending::conn(key, RDMA_CM_EVENT_REJECTED)
    })
}

fn parted(key: usize, state: &mut State, cause: &Parting) -> Option<Pending> {
    match cause {
        Parting::Peer(data) => disconnected(key, state, 0, &data[..]),
        Parting::Answered(data) => disconnected(key, state, 0, &data[..]),
        Parting::Both | Parting::Unknown => disconnected(key, state, 0, &[]),
        Parting::TimedOut => disconnected(key, state, -libc::ETIMEDOUT, &[]),
    }
}

/// The end is told once, whoever began it.
fn disconnected(key: usize, state: &mut State, status: i32, data: &[u8]) -> Option<Pending> {
    state.step = Step::Parted;
    let told = core::mem::replace(&mut state.disconnected, true);
    let pending = Pending { status, data: data.into(), ..Pending::conn(key, RDMA_CM_EVENT_DISCONNECTED) };
    (!told).then_some(pending)
}

fn resolved(key: usize, state: &mut State, answer: &SidrRep) -> Pending {
    let data: Box<[u8]> = Box::from(answer.private_data);
    if answer.status != SidrStatus::VALID {
        state.step = Step::Parted;
        let status = i32::from(answer.status.0);
        return Pending { status, data, ..Pending::plain(key, RDMA_CM_EVENT_UNREACHABLE, 0) };
    }
    state.step = Step::Connected;
    let path = state.link.path().copied().unwrap_or_default();
    let param = Param::Datagram { path, qpn: answer.qpn.value(), qkey: answer.qkey };
    Pending { data, param, ..Pending::plain(key, RDMA_CM_EVENT_ESTABLISHED, 0) }
}
