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

/// Number of ports that are fetched at a time at most, so that a burst of connections needs few requests to
/// the agent. It begins with one, and doubles: the 28,232 ports are enough for as many processes that bind
/// one each.
const STOCK_MAX: u16 = 64;

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

/// Free ports of a port space.
#[derive(Default, Debug)]
struct Stock {
    free: VecDeque<u16>,
    /// How many were fetched at a time last.
    fetched: u16,
}

/// Free ports that were fetched from the agent, by port space.
#[derive(Default, Debug)]
pub(super) struct Pool(Mutex<HashMap<u16, Stock>>);

impl Pool {
    fn stocks(&self) -> MutexGuard<'_, HashMap<u16, Stock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, space: PortSpace) -> Option<u16> {
        self.stocks().get_mut(&space.value())?.free.pop_front()
    }

    /// How many ports are to be fetched next.
    fn to_fetch(&self, space: PortSpace) -> u16 {
        let mut stocks = self.stocks();
        let stock = stocks.entry(space.value()).or_default();
        stock.fetched = (2 * stock.fetched).clamp(1, STOCK_MAX);
        stock.fetched
    }

    /// Takes a certain port, if it is there.
    fn take_port(&self, space: PortSpace, port: u16) -> bool {
        let mut stocks = self.stocks();
        let Some(stock) = stocks.get_mut(&space.value()) else {
            return false;
        };
        let position = stock.free.iter().position(|&free| free == port);
        position.is_some_and(|position| stock.free.remove(position).is_some())
    }

    fn add(&self, space: PortSpace, ports: impl IntoIterator<Item = u16>) {
        self.stocks()
            .entry(space.value())
            .or_default()
            .free
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
            None => self.fetch(space)?,
        };
        Ok(Bound {
            space,
            port,
            address,
            from_stock: true,
        })
    }

    /// Binds free ports; returns the first one, and keeps the others.
    fn fetch(&self, space: PortSpace) -> Result<u16, BindError> {
        let bind = |count| {
            self.ask(&Request {
                ask: Ask::Bind,
                space,
                port: 0,
                count,
                address: ListenAddress::Any,
                shared: false,
            })
        };
        let count = self.shared.pool.to_fetch(space);
        match bind(count) {
            Ok(first) => {
                let others = (1..count).map(|index| first + index);
                self.shared.pool.add(space, others);
                Ok(first)
            }
            // No range of so many consecutive ports is free; single ones may be.
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) && count > 1 => {
                Ok(bind(1)?)
            }
            Err(error) => Err(error.into()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ports_that_are_fetched_doubles_up_to_its_limit() {
        let pool = Pool::default();
        let counts: Vec<u16> = (0..9).map(|_| pool.to_fetch(PortSpace::Tcp)).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(pool.to_fetch(PortSpace::Udp), 1, "each space has its own");
    }

    #[test]
    fn a_port_that_was_unbound_is_taken_again_by_number_or_in_order() {
        let pool = Pool::default();
        pool.add(PortSpace::Tcp, [40_000, 40_001, 40_002]);
        assert!(pool.take_port(PortSpace::Tcp, 40_001));
        assert!(!pool.take_port(PortSpace::Tcp, 40_001));
        assert!(!pool.take_port(PortSpace::Udp, 40_000));
        let taken: Vec<_> = (0..3).map(|_| pool.take(PortSpace::Tcp)).collect();
        assert_eq!(taken, [Some(40_000), Some(40_002), None]);
    }
}
