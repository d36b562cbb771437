//! State of an identifier that the program's calls and the protocol's events change.

use crate::addrinfo::Answer;
use crate::channel::Queue;
use crate::device::OpenDevice;
use crate::groups::Groups;
use crate::negotiated::Negotiated;
use crate::qp_attr::Template;
use host::cm::Bound;
use link::path_request::ResolvedPath;
use rnic::cm::{Ece, ListenerId};
use std::sync::Arc;
use wire::cm::{CommId, PortSpace};

/// State of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Created, without an address.
    Idle,
    /// Bound to a local address and a port.
    Bound,
    /// The source address and the device are known, the link-layer address of the peer is looked for.
    AddressQuery,
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
    /// The identifier's device was removed.
    DeviceRemoved,
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
    /// The path to the peer, on a port of an InfiniBand subnet.
    pub(crate) subnet_path: Option<ResolvedPath>,
    /// The program names ports by GID; that of the peer, zeros before it is known.
    pub(crate) peer_gid: Option<[u8; 16]>,
    pub(crate) groups: Groups,
    /// Attributes for the queue pairs of accepted connections, for `rdma_get_request`.
    pub(crate) endpoint: Option<Template>,
    /// Result of `rdma_resolve_addrinfo`.
    pub(crate) resolved: Option<Answer>,
    /// Whether the DISCONNECTED or REJECTED event was queued.
    pub(crate) disconnected: bool,
    /// Created for a request that the program has not accepted. Events of the connection are dropped until
    /// then, as Linux's ucma does: the identifier's `context` is still the listener's, and programs would
    /// take the event for one of the listener. Accepting fails after such an event.
    pub(crate) is_unaccepted: bool,
}

impl State {
    /// The state of an identifier that was just created.
    pub(crate) fn new(queue: Arc<Queue>, is_synchronous: bool, space: PortSpace) -> Self {
        Self {
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
            subnet_path: None,
            peer_gid: None,
            groups: Groups::default(),
            endpoint: None,
            resolved: None,
            disconnected: false,
            is_unaccepted: false,
        }
    }
}
