//! The identifiers of the process: events of the protocol are passed to the identifier that they concern.

use crate::negotiated::Negotiated;
use crate::pending::{Action, NewRequest, Param, Pending};
use crate::state::{State, Step};
use abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE,
};
use ffi::lock;
use host::DeviceInfo;
use host::cm::Owner;
use rnic::cm::{Cm, CmEvent, Ece, ListenerId, Parting};
use rnic::{Gid, Instant, Path};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::cm::{CMA_HEADER_SIZE, CmaHeader, CommId, Rej, Rep, Req, SidrRep, SidrStatus};

/// An identifier in the table: its state, and the address by which events name it.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: usize,
    pub(crate) state: Arc<Mutex<State>>,
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Finds identifiers for connections, listeners and devices. An identifier is removed, under the lock that
/// protects this table, before it is freed: events name it by its address.
#[derive(Default)]
pub(crate) struct IdTable {
    pub(crate) connections: HashMap<CommId, Entry>,
    pub(crate) listeners: HashMap<ListenerId, Entry>,
    /// Listener of each request that is still in an event queue.
    unclaimed: HashMap<CommId, Entry>,
    /// Identifiers that are attached to a device, by address.
    attached: HashMap<usize, Entry>,
    /// Names of the devices that exist now.
    devices: Vec<String>,
}

impl IdTable {
    /// The program has taken a request: the connection belongs to its new identifier.
    pub(crate) fn claim(&mut self, comm: CommId, id: Entry) {
        self.unclaimed.remove(&comm);
        self.connections.insert(comm, id);
    }

    /// A request is dropped without having reached the program.
    pub(crate) fn drop_unclaimed(&mut self, comm: CommId) {
        self.unclaimed.remove(&comm);
    }

    /// Removes an identifier that is about to be freed.
    pub(crate) fn forget(&mut self, id: usize, state: &State) {
        self.attached.remove(&id);
        if let Some(comm) = state.comm {
            self.connections.remove(&comm);
        }
        if let Some(listener) = state.listener {
            self.listeners.remove(&listener);
            self.unclaimed.retain(|_, owner| owner.id != id);
        }
    }

    /// Adds an identifier that was attached to a device.
    pub(crate) fn attach(&mut self, id: Entry) {
        self.attached.insert(id.id, id);
    }

    fn request(
        &mut self,
        listener: ListenerId,
        new_request: NewRequest,
        param: Param,
        data: &[u8],
        ece: Ece,
    ) {
        let Some(owner) = self.listeners.get(&listener) else {
            return;
        };
        self.unclaimed.insert(new_request.comm, owner.clone());
        let data = data.get(CMA_HEADER_SIZE..).unwrap_or_default().into();
        let action = Action::CreateId(Box::new(NewRequest { ece, ..new_request }));
        let (kind, status) = (RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        owner.state().queue.push(Pending {
            id: owner.id,
            kind,
            status,
            param,
            data,
            action,
        });
    }

    /// Queues the event that `event_for` derives for the identifier of a connection, unless the program has
    /// not accepted it.
    fn queue_event(
        &self,
        comm: CommId,
        event_for: impl FnOnce(usize, &mut State) -> Option<Pending>,
    ) {
        let Some(entry) = self.connections.get(&comm) else {
            return;
        };
        let mut state = entry.state();
        let pending = event_for(entry.id, &mut state);
        if let Some(pending) = pending.filter(|_| !state.is_unaccepted) {
            Arc::clone(&state.queue).push(pending);
        }
    }

    /// Removes a request that the peer has given up before the program took it.
    fn withdraw(&mut self, comm: CommId, cm: &mut Cm, now: Instant) {
        let Some(owner) = self.unclaimed.remove(&comm) else {
            return;
        };
        let queue = Arc::clone(&owner.state().queue);
        drop(queue.take_out(|event| event.is_request_of(comm)));
        let _ = cm.release(comm, now);
    }

    /// Reports DEVICE_REMOVAL once to every identifier whose device is gone: connected, listening or bound.
    fn devices_removed(&self) {
        for entry in self.attached.values() {
            let mut state = entry.state();
            let is_there = state
                .device
                .is_none_or(|device| self.devices.contains(&device.name));
            if !is_there && state.step != Step::DeviceRemoved {
                state.step = Step::DeviceRemoved;
                if state.is_unaccepted {
                    continue;
                }
                let removal = Pending::plain(entry.id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
                Arc::clone(&state.queue).push(removal);
            }
        }
    }
}

impl Owner for IdTable {
    fn handle(&mut self, event: CmEvent, cm: &mut Cm, now: Instant) {
        match event {
            CmEvent::Request {
                id,
                listener,
                path,
                request,
                addresses,
                ece,
            } => {
                let negotiated = Negotiated::of_request(&request, path);
                let param = Param::of_request(&request);
                let new_request =
                    new_request(id, path, addresses, service_port(&request), negotiated);
                self.request(listener, new_request, param, &request.private_data, ece);
            }
            CmEvent::SidrRequest {
                id,
                listener,
                path,
                request,
                addresses,
                ece,
            } => {
                let port = request.service_id.port().map_or(0, |(_, port)| port);
                let new_request = new_request(id, path, addresses, port, Negotiated::of_path(path));
                self.request(
                    listener,
                    new_request,
                    Param::None,
                    &request.private_data,
                    ece,
                );
            }
            CmEvent::Reply { id, reply, ece } => {
                self.queue_event(id, |key, state| replied(key, state, &reply, ece))
            }
            CmEvent::Established { id, .. } => self.queue_event(id, established),
            CmEvent::Rejected { id, reject } => {
                self.withdraw(id, cm, now);
                self.queue_event(id, |key, state| rejected(key, state, &reject));
            }
            CmEvent::Unreachable { id } => self.queue_event(id, unreachable),
            CmEvent::Disconnected { id, cause } => {
                // The peer may have acknowledged requests just before it disconnected: they are completed
                // before the program gets DISCONNECTED, and are not flushed with its queue pair.
                if let Some(qpn) = cm.queue_pair(id) {
                    crate::verbs::take_arrived(qpn.value());
                }
                self.queue_event(id, |key, state| ended(key, state, &cause));
            }
            CmEvent::Resolved { id, answer, ece } => self.queue_event(id, |key, state| {
                state.options.remote_ece = ece;
                Some(resolved(key, state, &answer))
            }),
            CmEvent::AddressRemoved { id } => {
                self.withdraw(id, cm, now);
                self.queue_event(id, address_removed);
            }
            CmEvent::TimeWaitOver { id } => self.queue_event(id, time_wait_over),
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

/// A request's addresses and parameters.
fn new_request(
    comm: CommId,
    path: Path,
    addresses: Option<CmaHeader>,
    port: u16,
    negotiated: Negotiated,
) -> NewRequest {
    let (remote, remote_port) = match addresses {
        Some(header) => (header.source(), header.source_port),
        None => (ip(path.destination), 0),
    };
    NewRequest {
        comm,
        local: SocketAddr::new(
            addresses.map_or_else(|| ip(path.source), |it| it.destination()),
            port,
        ),
        remote: SocketAddr::new(remote, remote_port),
        negotiated,
        ece: Ece::default(),
    }
}

fn ip(gid: Gid) -> IpAddr {
    IpAddr::V6(gid.0.into()).to_canonical()
}

fn replied(key: usize, state: &mut State, reply: &Rep, ece: Ece) -> Option<Pending> {
    state.step = Step::Accepted;
    state.options.remote_ece = ece;
    state.negotiated.learn(reply);
    Some(Pending {
        param: Param::of_reply(reply, state.negotiated.remote_qpn()),
        data: Box::from(reply.private_data),
        action: Action::EstablishConnection,
        ..Pending::conn(key, RDMA_CM_EVENT_CONNECT_RESPONSE)
    })
}

/// As in Linux's rdma_cm, the RTU's private data is dropped: libfabric's XRC distinguishes the two sides of a
/// connection by whether ESTABLISHED has any.
fn established(key: usize, state: &mut State) -> Option<Pending> {
    state.step = Step::Connected;
    Some(Pending::conn(key, RDMA_CM_EVENT_ESTABLISHED))
}

fn unreachable(key: usize, state: &mut State) -> Option<Pending> {
    state.step = Step::Disconnected;
    let status = -libc::ETIMEDOUT;
    Some(Pending::plain(key, RDMA_CM_EVENT_UNREACHABLE, status))
}

fn rejected(key: usize, state: &mut State, reject: &Rej) -> Option<Pending> {
    state.step = Step::Disconnected;
    state.disconnected = true;
    Some(Pending {
        status: i32::from(reject.reason.0),
        data: Box::from(reject.private_data),
        action: Action::Flush,
        ..Pending::conn(key, RDMA_CM_EVENT_REJECTED)
    })
}

/// As in Linux's rdma_cm, private data of a DREQ or DREP is dropped.
fn ended(key: usize, state: &mut State, cause: &Parting) -> Option<Pending> {
    match cause {
        Parting::Peer(_) | Parting::Answered(_) | Parting::Both | Parting::Unknown => {
            disconnected(key, state, 0)
        }
        Parting::TimedOut => disconnected(key, state, -libc::ETIMEDOUT),
    }
}

/// Reports DISCONNECTED once, whichever side disconnected first.
fn disconnected(key: usize, state: &mut State, status: i32) -> Option<Pending> {
    state.step = Step::Disconnected;
    let was_reported = core::mem::replace(&mut state.disconnected, true);
    (!was_reported).then(|| Pending {
        status,
        ..Pending::conn(key, RDMA_CM_EVENT_DISCONNECTED)
    })
}

/// Reports a connection whose local address is gone. If the device is gone too, DEVICE_REMOVAL was reported
/// already.
fn address_removed(key: usize, state: &mut State) -> Option<Pending> {
    match state.step {
        Step::DeviceRemoved => None,
        _ => disconnected(key, state, -libc::ENETDOWN),
    }
}

fn time_wait_over(key: usize, state: &mut State) -> Option<Pending> {
    state.step = Step::Disconnected;
    Some(Pending::plain(key, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0))
}

fn resolved(key: usize, state: &mut State, answer: &SidrRep) -> Pending {
    let data: Box<[u8]> = Box::from(answer.private_data);
    if answer.status != SidrStatus::VALID {
        state.step = Step::Disconnected;
        let status = i32::from(answer.status.0);
        return Pending {
            status,
            data,
            ..Pending::plain(key, RDMA_CM_EVENT_UNREACHABLE, 0)
        };
    }
    state.step = Step::Connected;
    let path = state.negotiated.path().copied().unwrap_or_default();
    let param = Param::Datagram {
        path,
        qpn: answer.qpn.value(),
        qkey: answer.qkey,
    };
    Pending {
        data,
        param,
        ..Pending::plain(key, RDMA_CM_EVENT_ESTABLISHED, 0)
    }
}
