//! Why connections end: counted, and said in the log.

use std::fmt::Display;

use tracing::{debug, info, warn};

use super::Shared;
use crate::target::Queue;

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The host closed it.
    Host,
    /// The network, or the host, broke it.
    Broken,
    /// The host broke the rules.
    Fault,
    /// Its controller is gone: reset, silent for too long, or its subsystem was removed.
    Controller,
    /// It did not say Connect in time.
    Silent,
    /// It did not have a key for TLS that is known.
    Unsealed,
    /// There were as many connections as there may be.
    Full,
    /// There were as many that had not said Connect as there may be.
    Strangers,
}

impl End {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Host,
        Self::Broken,
        Self::Fault,
        Self::Controller,
        Self::Silent,
        Self::Unsealed,
        Self::Full,
        Self::Strangers,
    ];

    /// As metrics and the log have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "closed-by-host",
            Self::Broken => "broken",
            Self::Fault => "protocol-fault",
            Self::Controller => "controller-gone",
            Self::Silent => "no-connect-in-time",
            Self::Unsealed => "no-tls",
            Self::Full => "too-many-connections",
            Self::Strangers => "too-many-without-connect",
        }
    }
}

impl Shared {
    /// Counts it, and says it: I/O queues only where somebody looks for details, since a host has many.
    pub(super) fn ended(&self, end: End, queue: Option<&Queue>, peer: impl Display, why: &str) {
        self.count_end(end);
        let reason = end.name();
        let known = queue.and_then(|it| it.session().zip(it.id()));
        match known {
            None if end == End::Host => debug!(%peer, reason, why, "connection ended before Connect"),
            None => warn!(%peer, reason, why, "connection ended before Connect"),
            Some((session, id)) => {
                let (host, subsystem, controller) = (&session.host, &session.subsystem, session.id);
                match (id, end) {
                    (_, End::Fault) => {
                        warn!(%peer, %host, %subsystem, controller, queue = id, reason, why, "queue ended");
                    }
                    (0, _) => info!(%peer, %host, %subsystem, controller, reason, why, "controller ended"),
                    _ => {
                        debug!(%peer, %host, %subsystem, controller, queue = id, reason, why, "queue ended");
                    }
                }
            }
        }
    }

    /// Says that a host is there.
    pub(super) fn connected(&self, queue: &Queue, peer: impl Display) {
        let Some((session, id)) = queue.session().zip(queue.id()) else { return };
        let (host, subsystem, controller, port) =
            (&session.host, &session.subsystem, session.id, session.port);
        match id {
            0 => info!(%peer, %host, %subsystem, controller, port, "controller connected"),
            _ => debug!(%peer, %host, %subsystem, controller, port, queue = id, "queue connected"),
        }
    }
}
