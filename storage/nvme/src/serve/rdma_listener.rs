//! A listening RDMA port: it accepts requests (CM REQ), and starts a thread for each connection that its peer
//! has confirmed (RTU). Until then a request costs a queue pair and two receives, and no thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::rdma::{HalfOpen as Accepted, Listener, ListenerEvent, Request, SharedReceives};
use mio::{Events, Poll};
use server::thread::{PAUSE, STACK_BYTES};
use server::{ConnectionPermit, HalfOpen, Refusal};
use wire::nvme::rdma::{Accept, Reject, RejectStatus, Request as Private};

use super::rdma::{self, Confirmed};
use super::receives;
use super::{End, Shared};
use crate::controller::Origin;
use crate::limits::{
    ADMIN_ENTRIES, CONNECTIONS_MAX, HALF_OPEN_MAX, QUEUE_ENTRIES_MAX, RECEIVES_BEFORE_TRUST,
};

/// How often half-open connections are checked for their time limit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a confirmed connection waits for displaced ones to end, whose memory it gets. The listener waits.
const DISPLACED_PATIENCE: Duration = Duration::from_millis(20);

/// An accepted connection that its peer has not confirmed.
struct Waiting {
    connection: Accepted,
    peer: IpAddr,
    permit: ConnectionPermit,
    entries: u16,
    receives: Option<Arc<SharedReceives>>,
}

/// The state of the thread of a port.
pub(super) struct Accepting {
    pub(super) listener: Listener,
    /// The port identifier and the address.
    pub(super) port: (u16, SocketAddr),
    /// The length of the shared receive queue of the connections of a device.
    pub(super) receives: Option<u32>,
    pub(super) shared: Arc<Shared>,
    pub(super) stopped: Arc<AtomicBool>,
}

impl Accepting {
    pub(super) fn run(self, mut poll: Poll) {
        let mut events = Events::with_capacity(4);
        let mut queues = BTreeMap::new();
        let mut waiting = HalfOpen::new(&self.shared.half_open, HALF_OPEN_MAX);
        while !self.stopped.load(Ordering::Acquire) {
            let now_ns = self.shared.now_ns();
            while let Some(late) =
                waiting.begun_before(now_ns.saturating_sub(self.shared.connect_timeout_ns()))
            {
                self.give_up(&late);
            }
            match self.listener.next_event() {
                Ok(Some(ListenerEvent::Request(request))) => {
                    if let Some(oldest) = waiting.make_room() {
                        self.give_up(&oldest);
                    }
                    if let Some(accepted) = self.accept(request, &mut queues) {
                        waiting.insert(accepted.connection.key(), accepted.peer, now_ns, accepted);
                    }
                }
                Ok(Some(ListenerEvent::Established(key))) => {
                    if let Some((began_ns, confirmed)) = waiting.take(key) {
                        self.start(confirmed, began_ns);
                    }
                }
                Ok(Some(ListenerEvent::Failed(key))) => {
                    if let Some((_, failed)) = waiting.take(key) {
                        self.give_up(&failed);
                    }
                }
                Ok(None) => {
                    let most = (!waiting.is_empty()).then_some(CHECK_INTERVAL);
                    if poll.poll(&mut events, most).is_err() {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn give_up(&self, waiting: &Waiting) {
        self.shared
            .ended(End::Unconfirmed, None, waiting.peer, "RDMA");
    }

    /// Accepts or rejects a request.
    fn accept(
        &self,
        request: Request,
        queues: &mut BTreeMap<usize, Arc<SharedReceives>>,
    ) -> Option<Waiting> {
        let peer = request.peer();
        let entries = match entries_of(&request.private_data) {
            Ok(entries) => entries,
            Err(reason) => return refuse(request, reason),
        };
        let permit = match self.shared.connections() >= CONNECTIONS_MAX {
            true => Err(Refusal::Full),
            false => self.shared.connection_limiter.admit(peer),
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(refusal) => {
                self.shared.ended(refusal.into(), None, peer, "RDMA");
                return refuse(request, RejectStatus::Resources);
            }
        };
        let made = self.shared_receives(&request, queues).and_then(|receives| {
            let connection = prepare(request, entries, receives.as_ref())?;
            Ok(Waiting {
                connection,
                peer,
                permit,
                entries,
                receives,
            })
        });
        // If the device has no free resources, the request is not answered, and the host repeats it.
        made.inspect_err(|error| {
            self.shared
                .ended(End::Broken, None, peer, &error.to_string())
        })
        .ok()
    }

    fn shared_receives(
        &self,
        request: &Request,
        queues: &mut BTreeMap<usize, Arc<SharedReceives>>,
    ) -> io::Result<Option<Arc<SharedReceives>>> {
        let Some(size) = self.receives else {
            return Ok(None);
        };
        if let Some(queue) = queues.get(&request.device()) {
            return Ok(Some(Arc::clone(queue)));
        }
        let queue = request
            .domain()
            .and_then(|domain| SharedReceives::new(domain, size))
            .map_err(receives::other)?;
        queues.insert(request.device(), Arc::clone(&queue));
        Ok(Some(queue))
    }

    /// Starts the thread of a connection. If that fails, the connection is closed, and the host retries.
    fn start(&self, waiting: Waiting, began_ns: u64) {
        let Waiting {
            connection,
            peer,
            mut permit,
            entries,
            receives,
        } = waiting;
        if let Err(refusal) = permit.charge(receives::connection_bytes(entries), DISPLACED_PATIENCE)
        {
            return self.shared.ended(refusal.into(), None, peer, "RDMA");
        }
        let connection = match connection.establish() {
            Ok(connection) => connection,
            Err(error) => {
                return self
                    .shared
                    .ended(End::Broken, None, peer, &error.to_string());
            }
        };
        let (port, local) = self.port;
        let origin = Origin {
            port,
            local,
            peer: peer.to_canonical(),
        };
        let confirmed = Confirmed {
            connection,
            peer,
            permit,
            origin,
            entries,
            receives,
            began_ns,
        };
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("nvme-host".to_owned())
            .stack_size(STACK_BYTES);
        // The connection is closed then, and the host retries.
        if let Err(error) = thread.spawn(move || rdma::serve(&shared, confirmed)) {
            tracing::warn!("a connection is closed, because no thread can be started: {error}");
        }
    }
}

/// The queue size that the private data of a request ask for. That of an admin queue is limited to what the
/// discovery log offers; CRQSIZE of the response says so.
fn entries_of(private_data: &[u8]) -> Result<u16, RejectStatus> {
    let (private, _) = Private::split(private_data).ok_or(RejectStatus::Length)?;
    if private.format != 0 {
        return Err(RejectStatus::Format);
    }
    let entries = private.send_size.saturating_add(1);
    if entries > QUEUE_ENTRIES_MAX {
        return Err(RejectStatus::SendSize);
    }
    if private.receive_size == 0 {
        return Err(RejectStatus::ReceiveSize);
    }
    Ok(if private.queue_id == 0 {
        entries.min(ADMIN_ENTRIES)
    } else {
        entries
    })
}

fn refuse(request: Request, reason: RejectStatus) -> Option<Waiting> {
    request.reject(
        &Reject {
            format: 0,
            status: reason as u16,
        }
        .to_bytes(),
    );
    None
}

/// Creates a queue pair with the receives for Connect, and accepts the request.
fn prepare(
    request: Request,
    entries: u16,
    shared: Option<&Arc<SharedReceives>>,
) -> io::Result<Accepted> {
    let sizes = receives::sizes(entries);
    let mut connection = match shared {
        None => {
            let domain = request.domain().map_err(receives::other)?;
            request.prepare(&domain, sizes).map_err(receives::other)?
        }
        Some(shared) => request
            .prepare_shared(sizes, shared)
            .map_err(receives::other)?,
    };
    let is_there = shared.is_some_and(|it| it.size() as usize - it.room() >= RECEIVES_BEFORE_TRUST);
    for _ in 0..if is_there { 0 } else { RECEIVES_BEFORE_TRUST } {
        let buffer = receives::capsule(connection.domain())?;
        match shared {
            None => {
                let posted = connection.receive(buffer, receives::RECEIVE);
                posted.map_err(|(error, _)| receives::other(error))?;
            }
            Some(shared) => receives::post_shared(shared, buffer)?,
        }
    }
    let accept = Accept {
        format: 0,
        receive_size: entries,
    };
    connection
        .accept(&accept.to_bytes())
        .map_err(receives::other)?;
    Ok(connection)
}
