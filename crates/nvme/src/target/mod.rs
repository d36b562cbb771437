//! What a target has: subsystems with namespaces, the ports that lead to them, and the controllers that hosts
//! have made. It knows no transport; time is an argument, in nanoseconds from any beginning.

mod admin;
mod authentication;
mod connect;
mod controller;
mod discovery;
mod events;
mod features;
mod identify;
mod io;
mod keeper;
mod logs;
mod namespace;
mod property;
mod queue;
mod reservation;
mod subsystem;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use wire::nvme::log::AnaState;

use crate::auth::Credentials;
use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX, SUBSYSTEMS_MAX};
use crate::nqn::Nqn;

pub(crate) use controller::Controller;
pub use controller::{ControllerReport, Session, Wake};
pub use discovery::{Port, Referral, Transport};
pub use namespace::{Counters, Identity, Namespace};
pub use queue::{Origin, Outcome, Plan, Proved, Queue, Request};
pub use subsystem::{Hosts, Subsystem};

use events::Event;

/// Why a target cannot be changed so.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChangeError {
    /// There is one of this name.
    #[error("subsystem {0} is there already")]
    SubsystemExists(Nqn),
    /// There is none of this name.
    #[error("there is no subsystem {0}")]
    NoSubsystem(Nqn),
    /// The name is taken by discovery.
    #[error("{0} is the name of every discovery service, and no subsystem's")]
    Discovery(Nqn),
    /// Too many.
    #[error("a target has at most {SUBSYSTEMS_MAX} subsystems")]
    Subsystems,
    /// There is one of this number.
    #[error("{subsystem} has a namespace {nsid} already")]
    NamespaceExists {
        /// Where.
        subsystem: Nqn,
        /// Which.
        nsid: u32,
    },
    /// There is none of this number.
    #[error("{subsystem} has no namespace {nsid}")]
    NoNamespace {
        /// Where.
        subsystem: Nqn,
        /// Which.
        nsid: u32,
    },
    /// A number that namespaces cannot have.
    #[error("namespaces have numbers from 1 to {NAMESPACES_MAX}, not {0}")]
    NamespaceNumber(u32),
    /// A number that groups cannot have.
    #[error("groups of asymmetric access have numbers from 1 to {ANA_GROUPS_MAX}, not {0}")]
    Group(u32),
}

/// Subsystems, ports and controllers.
#[derive(Debug)]
pub struct Target {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) subsystems: BTreeMap<Nqn, Arc<Subsystem>>,
    pub(crate) ports: BTreeMap<u16, Port>,
    pub(crate) referrals: Vec<Referral>,
    pub(crate) controllers: BTreeMap<u16, Controller>,
    pub(crate) last_controller: u16,
    pub(crate) discovery_changes: u64,
}

impl Default for Target {
    fn default() -> Self {
        Self::new()
    }
}

impl Target {
    /// A target that has nothing.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { discovery_changes: 1, ..State::default() }) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subsystem without namespaces.
    ///
    /// # Errors
    /// When the name is taken, or there are too many.
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
    /// When there is none of this name.
    pub fn remove_subsystem(&self, name: &Nqn) -> Result<(), ChangeError> {
        let mut state = self.lock();
        state.subsystems.remove(name).ok_or_else(|| ChangeError::NoSubsystem(name.clone()))?;
        for controller in state.controllers.values().filter(|it| it.session.subsystem == *name) {
            controller.close();
        }
        state.discovery_changed();
        Ok(())
    }

    /// The subsystem of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn subsystem(&self, name: &Nqn) -> Result<Arc<Subsystem>, ChangeError> {
        let found = self.lock().subsystems.get(name).cloned();
        found.ok_or_else(|| ChangeError::NoSubsystem(name.clone()))
    }

    /// All subsystems.
    pub fn subsystems(&self) -> Vec<Arc<Subsystem>> {
        self.lock().subsystems.values().cloned().collect()
    }

    /// Adds a namespace, and tells hosts.
    ///
    /// # Errors
    /// When its number is taken or out of range.
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
            return Err(ChangeError::NamespaceExists { subsystem: name.clone(), nsid });
        }
        self.lock().namespace_changed(name, nsid);
        Ok(())
    }

    /// Removes a namespace, and tells hosts. Commands that have begun are finished.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn remove_namespace(&self, name: &Nqn, nsid: u32) -> Result<Arc<Namespace>, ChangeError> {
        let removed = self.subsystem(name)?.remove(nsid);
        let removed = removed.ok_or_else(|| ChangeError::NoNamespace { subsystem: name.clone(), nsid })?;
        self.lock().namespace_changed(name, nsid);
        Ok(removed)
    }

    /// Says that a namespace has another size now.
    pub fn namespace_resized(&self, name: &Nqn, nsid: u32) {
        self.lock().namespace_changed(name, nsid);
    }

    /// Sets how a group of namespaces is reached through a port, and tells hosts.
    ///
    /// # Errors
    /// When there is no such subsystem, or no such group can be.
    pub fn set_access(&self, name: &Nqn, port: u16, group: u32, access: AnaState) -> Result<(), ChangeError> {
        if !(1..=ANA_GROUPS_MAX).contains(&group) {
            return Err(ChangeError::Group(group));
        }
        self.subsystem(name)?.set_access(port, group, access);
        self.lock().notify(|session| session.subsystem == *name, Event::Ana);
        Ok(())
    }

    /// Sets what a host proves itself with. Its controllers are closed, and those of hosts that have nothing
    /// where some have something: they may come again if they can.
    ///
    /// # Errors
    /// When there is no such subsystem.
    pub fn set_credentials(
        &self,
        name: &Nqn,
        host: &Nqn,
        credentials: Option<Credentials>,
    ) -> Result<(), ChangeError> {
        let subsystem = self.subsystem(name)?;
        let mut state = self.lock();
        subsystem.set_credentials(host, credentials);
        let known = &subsystem.snapshot().credentials;
        for controller in state.controllers.values().filter(|it| it.session.subsystem == *name) {
            let it = &controller.session.host;
            if it == host || !known.is_empty() && !known.contains_key(it) {
                controller.close();
            }
        }
        state.discovery_changed();
        Ok(())
    }

    /// Sets which hosts may use a subsystem. Controllers of others are closed.
    ///
    /// # Errors
    /// When there is no such subsystem.
    pub fn set_hosts(&self, name: &Nqn, hosts: Hosts) -> Result<(), ChangeError> {
        let subsystem = self.subsystem(name)?;
        let mut state = self.lock();
        for controller in state.controllers.values() {
            if controller.session.subsystem == *name && !hosts.allow(&controller.session.host) {
                controller.close();
            }
        }
        subsystem.set_hosts(hosts);
        state.discovery_changed();
        Ok(())
    }

    /// Adds a way to the target; returns its number, which is given if it is 0 and taken as it is otherwise.
    pub fn add_port(&self, mut port: Port) -> u16 {
        let mut state = self.lock();
        if port.id == 0 {
            port.id = state.ports.keys().last().map_or(1, |last| last.saturating_add(1));
        }
        let id = port.id;
        state.ports.insert(id, port);
        state.discovery_changed();
        id
    }

    /// Takes a way to the target out of the discovery log.
    pub fn remove_port(&self, id: u16) {
        let mut state = self.lock();
        state.ports.remove(&id);
        state.discovery_changed();
    }

    /// All ways to the target.
    pub fn ports(&self) -> Vec<Port> {
        self.lock().ports.values().cloned().collect()
    }

    /// Sets which other discovery services this one names.
    pub fn set_referrals(&self, referrals: Vec<Referral>) {
        let mut state = self.lock();
        state.referrals = referrals;
        state.discovery_changed();
    }

    /// All controllers.
    pub fn controllers(&self) -> Vec<ControllerReport> {
        self.lock().controllers.values().map(Controller::report).collect()
    }

    /// The session of a controller, for its queues' transports.
    pub(crate) fn drop_controller(&self, id: u16) {
        if let Some(controller) = self.lock().controllers.remove(&id) {
            controller.close();
        }
    }
}

impl State {
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

/// Where a connection arrived.
pub(crate) fn is_any(address: &SocketAddr) -> bool {
    address.ip().is_unspecified()
}
