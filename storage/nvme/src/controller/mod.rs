//! A target: its subsystems with their namespaces, the ports through which hosts reach them, and the
//! controllers that hosts have created. It is independent of the transport; the time is an argument, in
//! nanoseconds from an arbitrary origin.

mod aborted;
mod admin;
mod atomic_file;
mod barrier;
mod connect;
mod discovery;
mod epochs;
mod events;
mod feature_table;
mod features;
mod gate;
mod health;
mod identify;
mod logs;
mod namespace;
mod origin;
mod property;
mod queue;
mod reservation;
mod session;
mod subsystem;
mod temperature;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use wire::nvme::log::AnaState;

use crate::auth::{Credentials, NegotiationLimiter};
use crate::identifier::Serial;
use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX, SUBSYSTEMS_MAX};
use crate::nqn::Nqn;

pub use barrier::Barrier;
pub(crate) use barrier::{Counted, Underway};
pub use discovery::{Port, Referral, Transport};
pub(crate) use gate::Effect;
pub(crate) use namespace::Admitted;
pub use namespace::{Counters, Identity, Namespace, former_serial};
pub use origin::{Origin, Proved};
pub use queue::{Outcome, Plan, Queue, Request};
pub use server::Wake;
pub(crate) use session::Controller;
pub use session::{ControllerReport, Session};
pub use subsystem::{Hosts, Subsystem};

use events::Event;

/// Why a change of a target failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChangeError {
    /// A subsystem of this name exists.
    #[error("subsystem {0} exists already")]
    SubsystemExists(Nqn),
    /// No subsystem has this name.
    #[error("there is no subsystem {0}")]
    NoSubsystem(Nqn),
    /// The name is that of discovery subsystems.
    #[error("{0} is the name of every discovery service, and no subsystem's")]
    Discovery(Nqn),
    /// There are [`SUBSYSTEMS_MAX`] subsystems already.
    #[error("a target has at most {SUBSYSTEMS_MAX} subsystems")]
    Subsystems,
    /// The namespace exists.
    #[error("{subsystem} has a namespace {nsid} already")]
    NamespaceExists {
        /// The NQN of the subsystem.
        subsystem: Nqn,
        /// The namespace identifier (NSID).
        nsid: u32,
    },
    /// The namespace does not exist.
    #[error("{subsystem} has no namespace {nsid}")]
    NoNamespace {
        /// The NQN of the subsystem.
        subsystem: Nqn,
        /// The namespace identifier (NSID).
        nsid: u32,
    },
    /// The identifier is not allowed for a namespace.
    #[error("namespaces have numbers from 1 to {NAMESPACES_MAX}, not {0}")]
    NamespaceNumber(u32),
    /// The identifier is not allowed for an ANA group.
    #[error("groups of asymmetric access have numbers from 1 to {ANA_GROUPS_MAX}, not {0}")]
    Group(u32),
}

/// A target: its subsystems, ports and controllers.
#[derive(Debug)]
pub struct Target {
    state: Mutex<State>,
    pub(crate) negotiation_limiter: NegotiationLimiter,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) subsystems: BTreeMap<Nqn, Arc<Subsystem>>,
    pub(crate) ports: BTreeMap<u16, Port>,
    pub(crate) referrals: Vec<Referral>,
    pub(crate) controllers: BTreeMap<u16, Controller>,
    pub(crate) last_controller: u16,
    pub(crate) discovery_changes: u64,
    /// No host may connect any more.
    pub(crate) has_ended: bool,
    pub(crate) discovery_serial: Option<Serial>,
}

impl Default for Target {
    fn default() -> Self {
        Self::new()
    }
}

impl Target {
    /// A target without subsystems and ports.
    pub fn new() -> Self {
        let state = Mutex::new(State {
            discovery_changes: 1,
            ..State::default()
        });
        Self {
            state,
            negotiation_limiter: NegotiationLimiter::default(),
        }
    }

    /// The target with the serial number of its discovery controllers, and the identifier (CNTLID) from which
    /// controllers get theirs in turn.
    #[must_use]
    pub fn with_identity(self, last_controller: u16, discovery_serial: Serial) -> Self {
        {
            let mut state = self.lock();
            state.last_controller = last_controller;
            state.discovery_serial = Some(discovery_serial);
        }
        self
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subsystem without namespaces.
    ///
    /// # Errors
    /// When the name exists, or there are too many subsystems.
    pub fn add_subsystem(&self, subsystem: Subsystem) -> Result<(), ChangeError> {
        let mut state = self.lock();
        let name = subsystem.name().clone();
        if name.is_discovery() {
            return Err(ChangeError::Discovery(name));
        }
        if state.subsystems.contains_key(&name) {
            return Err(ChangeError::SubsystemExists(name));
        }
        if state.subsystems.len() >= SUBSYSTEMS_MAX {
            return Err(ChangeError::Subsystems);
        }
        state.subsystems.insert(name, Arc::new(subsystem));
        state.discovery_changed();
        Ok(())
    }

    /// Removes a subsystem; its controllers are closed.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn remove_subsystem(&self, name: &Nqn) -> Result<Barrier, ChangeError> {
        let mut state = self.lock();
        let removed = state.subsystems.remove(name);
        let removed = removed.ok_or_else(|| ChangeError::NoSubsystem(name.clone()))?;
        state.close_controllers(|session| session.subsystem == *name);
        state.discovery_changed();
        Ok(Barrier::new(&removed.namespaces(), None))
    }

    /// The subsystem of this name.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn subsystem(&self, name: &Nqn) -> Result<Arc<Subsystem>, ChangeError> {
        let found = self.lock().subsystems.get(name).cloned();
        found.ok_or_else(|| ChangeError::NoSubsystem(name.clone()))
    }

    /// All subsystems, in the order of their names.
    pub fn subsystems(&self) -> Vec<Arc<Subsystem>> {
        self.lock().subsystems.values().cloned().collect()
    }

    /// Adds a namespace, and notifies hosts (Namespace Attribute Changed).
    ///
    /// # Errors
    /// When its identifier is in use or out of range.
    pub fn add_namespace(&self, name: &Nqn, namespace: Namespace) -> Result<(), ChangeError> {
        let nsid = namespace.nsid();
        if !(1..=NAMESPACES_MAX).contains(&nsid) {
            return Err(ChangeError::NamespaceNumber(nsid));
        }
        if !(1..=ANA_GROUPS_MAX).contains(&namespace.group()) {
            return Err(ChangeError::Group(namespace.group()));
        }
        let subsystem = self.subsystem(name)?;
        if !subsystem.add(namespace) {
            return Err(ChangeError::NamespaceExists {
                subsystem: name.clone(),
                nsid,
            });
        }
        self.lock().namespace_changed(name, nsid);
        Ok(())
    }

    /// Removes a namespace, and notifies hosts.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn remove_namespace(
        &self,
        name: &Nqn,
        nsid: u32,
    ) -> Result<(Arc<Namespace>, Barrier), ChangeError> {
        let removed = self.subsystem(name)?.remove(nsid);
        let removed = removed.ok_or_else(|| ChangeError::NoNamespace {
            subsystem: name.clone(),
            nsid,
        })?;
        let mut state = self.lock();
        for controller in state
            .controllers
            .values_mut()
            .filter(|it| it.session.subsystem == *name)
        {
            controller.forget_namespace(nsid);
        }
        state.namespace_changed(name, nsid);
        drop(state);
        let barrier = Barrier::new([&removed], None);
        Ok((removed, barrier))
    }

    /// Notifies hosts that a namespace has another size.
    pub fn namespace_resized(&self, name: &Nqn, nsid: u32) {
        self.lock().namespace_changed(name, nsid);
    }

    /// Sets the ANA state of a group on a port, and notifies hosts.
    ///
    /// # Errors
    /// When the subsystem does not exist, or the group identifier is not allowed.
    pub fn set_access(
        &self,
        name: &Nqn,
        port: u16,
        group: u32,
        access: AnaState,
    ) -> Result<Barrier, ChangeError> {
        if !(1..=ANA_GROUPS_MAX).contains(&group) {
            return Err(ChangeError::Group(group));
        }
        let subsystem = self.subsystem(name)?;
        subsystem.set_access(port, group, access);
        self.lock()
            .notify(|session| session.subsystem == *name, Event::Ana);
        let changed = subsystem
            .namespaces()
            .into_iter()
            .filter(|it| it.group() == group);
        Ok(Barrier::new(&changed.collect::<Vec<_>>(), None))
    }

    /// Sets the credentials of a host. Its controllers are closed; if the subsystem now has credentials, so
    /// are those of hosts without any. They may connect again if they are allowed.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_credentials(
        &self,
        name: &Nqn,
        host: &Nqn,
        credentials: Option<Credentials>,
    ) -> Result<Barrier, ChangeError> {
        let subsystem = self.subsystem(name)?;
        let mut state = self.lock();
        subsystem.set_credentials(host, credentials);
        let known = &subsystem.snapshot().credentials;
        state.close_controllers(|session| {
            let it = session.name();
            let is_unknown = !known.is_empty() && !it.is_some_and(|it| known.contains_key(it));
            session.subsystem == *name && (it == Some(host) || is_unknown)
        });
        state.discovery_changed();
        Ok(Barrier::new(&subsystem.namespaces(), None))
    }

    /// Sets the hosts that may use a subsystem. Controllers of other hosts are closed.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_hosts(&self, name: &Nqn, hosts: Hosts) -> Result<Barrier, ChangeError> {
        let subsystem = self.subsystem(name)?;
        let mut state = self.lock();
        state.close_controllers(|session| {
            session.subsystem == *name && !hosts.allow(session.name())
        });
        subsystem.set_hosts(hosts);
        state.discovery_changed();
        Ok(Barrier::new(&subsystem.namespaces(), None))
    }

    /// Adds a port; returns its identifier, which is assigned if `id` is 0.
    pub fn add_port(&self, mut port: Port) -> u16 {
        let mut state = self.lock();
        if port.id == 0 {
            port.id = state
                .ports
                .keys()
                .last()
                .map_or(1, |last| last.saturating_add(1));
        }
        let id = port.id;
        state.ports.insert(id, port);
        state.discovery_changed();
        id
    }

    /// Adds a port in place of the one with the same identifier, if there is one: the controllers of hosts
    /// that came through that are closed.
    pub fn replace_port(&self, port: Port) -> Barrier {
        let mut state = self.lock();
        let (id, replaced) = (port.id, state.ports.insert(port.id, port));
        state.discovery_changed();
        if replaced.is_none() {
            return Barrier::default();
        }
        state.close_controllers(|session| session.port == id);
        state.barrier()
    }

    /// Removes a port from the discovery log, and closes the controllers of hosts that came through it.
    pub fn remove_port(&self, id: u16) -> Barrier {
        let mut state = self.lock();
        state.ports.remove(&id);
        state.close_controllers(|session| session.port == id);
        state.discovery_changed();
        state.barrier()
    }

    /// Ends the target: closes all controllers, and refuses further ones.
    pub fn end(&self) -> Barrier {
        let mut state = self.lock();
        state.has_ended = true;
        state.close_controllers(|_| true);
        state.barrier()
    }

    /// All ports that the target listens on.
    pub fn ports(&self) -> Vec<Port> {
        self.lock().ports.values().cloned().collect()
    }

    /// Sets the referrals to other discovery services.
    pub fn set_referrals(&self, referrals: Vec<Referral>) {
        let mut state = self.lock();
        state.referrals = referrals;
        state.discovery_changed();
    }

    /// A description of each controller that hosts have; not of those that were closed.
    pub fn controllers(&self) -> Vec<ControllerReport> {
        let state = self.lock();
        let open = state
            .controllers
            .values()
            .filter(|controller| !controller.session.is_closed());
        open.map(Controller::report).collect()
    }

    /// Removes a controller, because its admin queue has ended.
    pub(crate) fn drop_controller(&self, id: u16) {
        if let Some(controller) = self.lock().controllers.remove(&id) {
            controller.close();
        }
    }
}

impl State {
    /// Closes the controllers of some sessions.
    fn close_controllers(&self, which: impl Fn(&Session) -> bool) {
        self.controllers
            .values()
            .filter(|it| which(&it.session))
            .for_each(Controller::close);
    }

    /// Waits for the commands on all namespaces.
    fn barrier(&self) -> Barrier {
        let all: Vec<_> = self
            .subsystems
            .values()
            .flat_map(|it| it.namespaces())
            .collect();
        Barrier::new(&all, None)
    }

    fn discovery_changed(&mut self) {
        self.discovery_changes += 1;
        self.notify(|session| session.is_discovery, Event::Discovery);
    }

    fn namespace_changed(&mut self, subsystem: &Nqn, nsid: u32) {
        for controller in self.controllers.values_mut() {
            if controller.session.subsystem == *subsystem {
                controller.namespace_changed(nsid);
            }
        }
    }

    fn notify(&mut self, whom: impl Fn(&Session) -> bool, event: Event) {
        for controller in self.controllers.values_mut().filter(|it| whom(&it.session)) {
            controller.raise(event);
        }
    }
}

/// Whether the address is the wildcard address.
pub(crate) fn is_any(address: &SocketAddr) -> bool {
    address.ip().is_unspecified()
}
