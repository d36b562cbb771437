//! Ports: the agent knows whose they are; of those that may be any, some are kept in stock.

use super::{Owner, Session};
use crate::agent::protocol::{Ask, Request};
use rnic::Instant;
use rnic::cm::{CmError, Listen, ListenAddress, ListenerId};
use std::collections::{HashMap, VecDeque};
use std::io;
use wire::cm::{PortSpace, ServiceId};

/// Ports that are fetched at a time: a connection a piece, so that a burst of them asks the agent rarely.
const STOCK: u16 = 64;

/// A port that is ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The port space.
    pub space: PortSpace,
    /// The port.
    pub port: u16,
    /// The address that it is bound to.
    pub address: ListenAddress,
    from_stock: bool,
}

/// Why a port cannot be had, or nobody can listen there.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// What the agent says: `EADDRINUSE`, `EADDRNOTAVAIL` when all are taken, `ENOMEM` at its limit.
    #[error("the port cannot be had: {0}")]
    Agent(#[from] io::Error),
    /// What the connection manager says.
    #[error("nobody can listen there: {0}")]
    Cm(#[from] CmError),
}

/// Ports in stock.
#[derive(Default, Debug)]
pub(super) struct Pool(HashMap<u16, VecDeque<u16>>);

impl<O: Owner> Session<O> {
    /// Gets a port; 0 is any. `shared` allows others that say the same to have it as well.
    ///
    /// # Errors
    /// [`BindError::Agent`].
    pub fn bind(
        &mut self,
        space: PortSpace,
        port: u16,
        address: ListenAddress,
        shared: bool,
    ) -> Result<Bound, BindError> {
        if port != 0 {
            self.lines.ask(&Request { ask: Ask::Bind, space, port, count: 1, address, shared })?;
            return Ok(Bound { space, port, address, from_stock: false });
        }
        let stock = self.pool.0.entry(space.value()).or_default();
        if stock.is_empty() {
            let all = ListenAddress::Any;
            let request =
                Request { ask: Ask::Bind, space, port: 0, count: STOCK, address: all, shared: false };
            let first = self.lines.ask(&request)?;
            stock.extend((0..STOCK).map(|index| first + index));
        }
        let none = || io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        let port = stock.pop_front().ok_or_else(none)?;
        Ok(Bound { space, port, address, from_stock: true })
    }

    /// Gives it back.
    pub fn unbind(&mut self, bound: &Bound) {
        let Bound { space, port, address, from_stock } = *bound;
        if from_stock {
            self.pool.0.entry(space.value()).or_default().push_back(port);
            return;
        }
        // An agent that is gone has forgotten it already.
        let _ = self.lines.ask(&Request { ask: Ask::Unbind, space, port, count: 1, address, shared: false });
    }

    /// Takes requests for a port of ours.
    ///
    /// # Errors
    /// `EADDRINUSE` when somebody listens there; [`BindError::Cm`] at the limit of listeners.
    pub fn listen(&mut self, bound: &Bound, backlog: u32, now: Instant) -> Result<ListenerId, BindError> {
        let Bound { space, port, address, .. } = *bound;
        let request = Request { ask: Ask::Listen, space, port, count: 1, address, shared: false };
        self.lines.ask(&request)?;
        let listen = Listen { service: ServiceId::ip(space, port), address, backlog };
        let listener = self.cm.listen(listen).map_err(|error| {
            // As before: nothing of it is left with the agent.
            let _ = self.lines.ask(&Request { ask: Ask::Unlisten, ..request });
            BindError::from(error)
        })?;
        self.lines.grace.open(listen.service);
        self.lines.replay(&mut self.cm, now);
        Ok(listener)
    }

    /// Takes no more requests. Those that nobody has taken are rejected.
    pub fn unlisten(&mut self, bound: &Bound, listener: ListenerId, now: Instant) {
        let Bound { space, port, address, .. } = *bound;
        let request = Request { ask: Ask::Unlisten, space, port, count: 1, address, shared: false };
        // An agent that is gone has forgotten it; a listener that is gone is what is wanted.
        let _ = self.lines.ask(&request);
        let _ = self.cm.unlisten(listener, now);
        self.lines.grace.close(ServiceId::ip(space, port), now);
    }
}
