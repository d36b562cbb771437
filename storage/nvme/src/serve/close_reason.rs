//! Reasons for the end of connections, in counters and the log.

use std::fmt::Display;
use std::io;

use server::Refusal;
use tracing::{debug, info, warn};

use super::Shared;
use crate::controller::Queue;

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The host closed the connection.
    Host,
    /// The connection broke.
    Broken,
    /// The host violated the protocol.
    Fault,
    /// The controller was reset or removed, or its keep alive timer expired.
    Controller,
    /// Connect and authentication were not complete in time.
    ConnectTimeout,
    /// The TLS handshake failed, for example with an unknown PSK.
    TlsHandshake,
    /// A limit of connections was reached.
    Full,
    /// The limit of unauthenticated connections from the address was reached.
    Unauthenticated,
    /// The peer of an RDMA connection did not confirm it (RTU) in time, or newer requests took its place: its
    /// address may be spoofed.
    Unconfirmed,
    /// The host did not read its responses, or did not send requested data.
    Stalled,
    /// The host was not authenticated, and other unauthenticated hosts needed the memory.
    Displaced,
}

impl End {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::Host,
        Self::Broken,
        Self::Fault,
        Self::Controller,
        Self::ConnectTimeout,
        Self::TlsHandshake,
        Self::Full,
        Self::Unauthenticated,
        Self::Unconfirmed,
        Self::Stalled,
        Self::Displaced,
    ];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "closed-by-host",
            Self::Broken => "broken",
            Self::Fault => "protocol-fault",
            Self::Controller => "controller-gone",
            Self::ConnectTimeout => "no-connect-in-time",
            Self::TlsHandshake => "no-tls",
            Self::Full => "too-many-connections",
            Self::Unauthenticated => "too-many-without-connect",
            Self::Unconfirmed => "not-confirmed",
            Self::Stalled => "stalled",
            Self::Displaced => "displaced",
        }
    }
}

/// The end of a connection: its reason, and what the log says of it.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) end: End,
    pub(super) why: String,
}

impl From<End> for Over {
    fn from(end: End) -> Self {
        let why = String::new();
        Self { end, why }
    }
}

/// An error of a stream.
impl From<io::Error> for Over {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => End::Host.into(),
            _ => Self {
                end: End::Broken,
                why: error.to_string(),
            },
        }
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => Self::Full,
            Refusal::Unauthenticated => Self::Unauthenticated,
        }
    }
}

impl Shared {
    /// Counts and logs the end of a connection. I/O queues are logged at level debug, since a host has many.
    pub(super) fn ended(&self, end: End, queue: Option<&Queue>, peer: impl Display, why: &str) {
        self.count_end(end);
        let reason = end.name();
        let known = queue.and_then(|it| it.session().zip(it.id()));
        match known {
            // An unauthenticated peer can cause any number of these, so they are logged at level debug only.
            None if matches!(end, End::Host | End::Unconfirmed | End::Displaced) => {
                debug!(%peer, reason, why, "connection ended before Connect")
            }
            None => warn!(%peer, reason, why, "connection ended before Connect"),
            Some((session, id)) => {
                let (host, subsystem, controller) = (&session.host, &session.subsystem, session.id);
                match (id, end) {
                    (_, End::Fault) => {
                        warn!(%peer, %host, %subsystem, controller, queue = id, reason, why, "queue ended");
                    }
                    (0, _) => {
                        info!(%peer, %host, %subsystem, controller, reason, why, "controller ended")
                    }
                    _ => {
                        debug!(%peer, %host, %subsystem, controller, queue = id, reason, why, "queue ended");
                    }
                }
            }
        }
    }

    /// Logs that a host has connected.
    pub(super) fn connected(&self, queue: &Queue, peer: impl Display) {
        let Some((session, id)) = queue.session().zip(queue.id()) else {
            return;
        };
        let (host, subsystem, controller, port) =
            (&session.host, &session.subsystem, session.id, session.port);
        match id {
            0 => info!(%peer, %host, %subsystem, controller, port, "controller connected"),
            _ => debug!(%peer, %host, %subsystem, controller, port, queue = id, "queue connected"),
        }
    }
}
