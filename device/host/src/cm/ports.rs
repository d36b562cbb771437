//! RDMA-CM ports. The agent records which client has bound which port; a stock of free ports is kept here for
//! binds to any port.

use super::{Connector, Owner, Session};
use crate::agent::protocol::{Ask, Request};
use rnic::Instant;
use rnic::cm::{CmError, Listen, ListenAddress, ListenerId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::cm::{PortSpace, ServiceId};

/// Number of ports that are fetched at a time, so that a burst of connections needs few requests to the
/// agent.
const STOCK: u16 = 64;

/// A port that this process has bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The port space.
    pub space: PortSpace,
    /// Port number in its port space.
    pub port: u16,
    /// The address that it is bound to.
    pub address: ListenAddress,
    from_stock: bool,
}

/// Errors of binding a port or listening on it.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The agent's error: `EADDRINUSE`, `EADDRNOTAVAIL` when all ports are bound, `ENOMEM` at the agent's
    /// limit.
    #[error("cannot bind the port: {0}")]
    Agent(#[from] io::Error),
    /// The connection manager's error.
    #[error("cannot listen on the port: {0}")]
    Cm(#[from] CmError),
}

/// Free ports that were fetched from the agent, by port space.
#[derive(Default, Debug)]
pub(super) struct Pool(Mutex<HashMap<u16, VecDeque<u16>>>);

impl Pool {
    fn stocks(&self) -> MutexGuard<'_, HashMap<u16, VecDeque<u16>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, space: PortSpace) -> Option<u16> {
        self.stocks().get_mut(&space.value())?.pop_front()
    }

    /// Takes a certain port, if it is there.
    fn take_port(&self, space: PortSpace, port: u16) -> bool {
        let mut stocks = self.stocks();
        let Some(stock) = stocks.get_mut(&space.value()) else {
            return false;
        };
        let position = stock.iter().position(|&free| free == port);
        position.is_some_and(|position| stock.remove(position).is_some())
    }

    fn add(&self, space: PortSpace, ports: impl IntoIterator<Item = u16>) {
        self.stocks()
            .entry(space.value())
            .or_default()
            .extend(ports);
    }
}

/// Calls that send requests to the agent. They wait without the lock of [`Connector::with`], so they must not
/// be made in such a call.
impl<O: Owner> Connector<O> {
    /// Binds a port; 0 requests any. `shared` allows other clients that set it to bind the port as well.
    ///
    /// # Errors
    /// [`BindError::Agent`].
    pub fn bind(
        &self,
        space: PortSpace,
        port: u16,
        address: ListenAddress,
        shared: bool,
    ) -> Result<Bound, BindError> {
        // A port that the program had from the stock is free again for it, as on Linux.
        if port != 0 && !shared && self.shared.pool.take_port(space, port) {
            return Ok(Bound {
                space,
                port,
                address,
                from_stock: true,
            });
        }
        if port != 0 {
            self.ask(&Request {
                ask: Ask::Bind,
                space,
                port,
                count: 1,
                address,
                shared,
            })?;
            return Ok(Bound {
                space,
                port,
                address,
                from_stock: false,
            });
        }
        let port = match self.shared.pool.take(space) {
            Some(port) => port,
            None => {
                let all = ListenAddress::Any;
                let first = self.ask(&Request {
                    ask: Ask::Bind,
                    space,
                    port: 0,
                    count: STOCK,
                    address: all,
                    shared: false,
                })?;
                self.shared
                    .pool
                    .add(space, (1..STOCK).map(|index| first + index));
                first
            }
        };
        Ok(Bound {
            space,
            port,
            address,
            from_stock: true,
        })
    }

    /// Unbinds a port.
    pub fn unbind(&self, bound: &Bound) {
        let Bound {
            space,
            port,
            address,
            from_stock,
        } = *bound;
        if from_stock {
            self.shared.pool.add(space, [port]);
            return;
        }
        // An error means that the agent has ended, and with it the binding.
        let _ = self.ask(&Request {
            ask: Ask::Unbind,
            space,
            port,
            count: 1,
            address,
            shared: false,
        });
    }

    /// Listens on a bound port. `opened` is called with the listener before the first request is taken.
    ///
    /// # Errors
    /// `EADDRINUSE` when another client listens on it; [`BindError::Cm`] at the limit of listeners.
    pub fn listen<T>(
        &self,
        bound: &Bound,
        backlog: u32,
        opened: impl FnOnce(&mut Session<O>, ListenerId) -> T,
    ) -> Result<T, BindError> {
        let Bound {
            space,
            port,
            address,
            ..
        } = *bound;
        let service = ServiceId::ip(space, port);
        let request = Request {
            ask: Ask::Listen,
            space,
            port,
            count: 1,
            address,
            shared: false,
        };
        self.with(|session, _| session.lines.grace.expect(service));
        let answer = self.ask(&request);
        let listener = self.with(|session, now| {
            session.lines.grace.decide(service);
            let listener = answer.map_err(BindError::from).and_then(|_| {
                let listener = session.cm.listen(Listen {
                    service,
                    address,
                    backlog,
                })?;
                session.lines.grace.open(service);
                Ok(opened(session, listener))
            });
            session.lines.replay(&mut session.cm, now);
            listener
        });
        if let Err(BindError::Cm(_)) = listener {
            // Withdraws the listener from the agent; an error means that the agent has ended.
            let _ = self.ask(&Request {
                ask: Ask::Unlisten,
                ..request
            });
        }
        listener
    }

    /// Stops taking requests for a listener that [`Session::unlisten`] has closed.
    pub fn withdraw(&self, bound: &Bound) {
        let Bound {
            space,
            port,
            address,
            ..
        } = *bound;
        // Errors mean that the agent has ended, or that there is no such listener any more.
        let _ = self.ask(&Request {
            ask: Ask::Unlisten,
            space,
            port,
            count: 1,
            address,
            shared: false,
        });
    }

    fn ask(&self, request: &Request) -> io::Result<u16> {
        self.shared.requests.ask(request)
    }
}

impl<O: Owner> Session<O> {
    /// Closes a listener; [`Connector::withdraw`] follows. Requests that the program has not accepted are
    /// rejected, and new ones are held for the next listener for a moment.
    pub fn unlisten(&mut self, bound: &Bound, listener: ListenerId, now: Instant) {
        // An error means that there is no such listener any more.
        let _ = self.cm.unlisten(listener, now);
        self.lines
            .grace
            .close(ServiceId::ip(bound.space, bound.port), now);
    }
}
