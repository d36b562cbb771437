//! A server: its configuration, and how it becomes a target with ports.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{error, warn};
use wire::nvme::log::AnaState;

use super::backing::{self, Backing};
use super::config::{
    BackendConfig, Bytes, Config, NamespaceConfig, PortConfig, Receives, SubsystemConfig, TransportConfig,
};
use super::{Listener, ServeError, Shared, Tuning};
use crate::auth::Credentials;
use crate::identifier::Serial;
use crate::limits::BARRIER_TIMEOUT;
use crate::machine::MachineId;
use crate::nqn::Nqn;
use crate::store::{FileStore, Store};
use crate::target::{
    Barrier, ChangeError, Hosts, Identity, Namespace, Port, Referral, Subsystem, Target, Transport,
};

const MODEL: &str = "rockery";

/// A target with its listeners and stores. A method that takes rights from hosts returns when no command that
/// began before is executed any more; so does the drop of a server, which ends all connections.
#[derive(Debug)]
pub struct Server {
    machine: MachineId,
    shared: Arc<Shared>,
    listeners: BTreeMap<u16, Listener>,
    config: Config,
    state: Option<PathBuf>,
    /// The folder with the persistent settings of hosts: reservations and write protection.
    persistence_folder: Option<PathBuf>,
}

impl Server {
    /// Starts a server with `config`. If the file `state` exists, it replaces `config`; each later change is
    /// written to `state` before it is made.
    ///
    /// # Errors
    /// When a file cannot be used, or an address cannot be bound.
    pub fn start(config: Config, state: Option<PathBuf>, tuning: Tuning) -> Result<Self, ServeError> {
        Self::start_on(MachineId::this(), config, state, tuning)
    }

    /// The same on a machine with this identifier, from which those of disks are derived.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(
        machine: MachineId,
        config: Config,
        state: Option<PathBuf>,
        tuning: Tuning,
    ) -> Result<Self, ServeError> {
        let state = state.map(|path| absolute(&path)).transpose()?;
        let known = state.as_ref().filter(|path| path.exists());
        let is_known = known.is_some();
        let config = known.map_or(Ok(config), |path| Config::read(path))?;
        let shared = Shared::new(Arc::new(target_of(&machine)?), tuning);
        let persistence_folder = state.as_ref().map(|path| path.with_extension("kept"));
        let (listeners, config_so_far) = (BTreeMap::new(), Config::default());
        let mut server =
            Self { machine, shared, listeners, config: config_so_far, state: None, persistence_folder };
        for subsystem in config.subsystems {
            server.add_subsystem(subsystem)?;
        }
        let referrals = config
            .referrals
            .iter()
            .map(|it| Referral { transport: Transport::Tcp { tls: false }, address: it.address });
        server.shared.target.set_referrals(referrals.collect());
        server.config.referrals = config.referrals;
        for port in config.ports {
            server.add_port(port)?;
        }
        if let Some(path) = &state {
            match server.config.write(path) {
                // The state file describes the same configuration, perhaps in other words: a full disk does
                // not prevent the start.
                Err(error) if is_known => warn!("{error}: the state file stays as it is"),
                written => written?,
            }
        }
        server.state = state;
        Ok(server)
    }

    /// The state that all connections share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The target that this server runs.
    pub fn target(&self) -> &Arc<Target> {
        &self.shared.target
    }

    /// The present configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The addresses that the server listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.values().map(Listener::address).collect()
    }

    /// Changes the configuration: the state file is written first, so a change that cannot be written is not
    /// made. If the change itself fails, the former configuration is written again.
    fn change<T>(
        &mut self,
        edit: impl FnOnce(&mut Config),
        make: impl FnOnce(&Self) -> Result<T, ServeError>,
    ) -> Result<T, ServeError> {
        let mut next = self.config.clone();
        edit(&mut next);
        if let Some(path) = &self.state {
            next.write(path)?;
        }
        let made = make(self);
        match (&made, &self.state) {
            (Ok(_), _) => self.config = next,
            (Err(_), Some(path)) => {
                if let Err(error) = self.config.write(path) {
                    error!(
                        "{error}: the state file keeps the change that failed, and the next start tries it"
                    );
                }
            }
            (Err(_), None) => {}
        }
        made
    }

    /// Adds a subsystem with its namespaces.
    ///
    /// # Errors
    /// When the name exists already, or a file cannot be used.
    pub fn add_subsystem(&mut self, mut config: SubsystemConfig) -> Result<(), ServeError> {
        let derived = || Serial::of_hash(self.machine.derive("serial", &[config.nqn.as_str()]));
        let serial = config.serial.clone().unwrap_or_else(derived).into();
        let model = config.model.clone().unwrap_or_else(|| MODEL.to_owned());
        let hosts = config.hosts.clone().map_or(Hosts::Any, Hosts::Only);
        let subsystem = Subsystem::new(config.nqn.clone(), serial, model, hosts);
        let subsystem = subsystem.with_credentials(config.credentials.clone());
        let name = config.nqn.clone();
        let namespaces = std::mem::take(&mut config.namespaces);
        self.change(|it| it.subsystems.push(config), |it| Ok(it.target().add_subsystem(subsystem)?))?;
        for namespace in namespaces {
            if let Err(error) = self.add_namespace(&name, namespace) {
                _ = self.take_out(&name);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes a subsystem. Its files stay; its persistent reservations and write protection are removed.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn remove_subsystem(&mut self, name: &Nqn) -> Result<(), ServeError> {
        let namespaces = self.target().subsystem(name)?.namespaces();
        self.take_out(name)?;
        namespaces.iter().try_for_each(|namespace| self.forget(namespace))
    }

    fn take_out(&mut self, name: &Nqn) -> Result<(), ServeError> {
        let edit = |it: &mut Config| it.subsystems.retain(|it| it.nqn != *name);
        settle(&self.change(edit, |it| Ok(it.target().remove_subsystem(name)?))?)
    }

    /// Adds a namespace. Returns a warning if hosts do not reach all of its file.
    ///
    /// # Errors
    /// When the identifier is in use, or the file cannot be used.
    pub fn add_namespace(
        &mut self,
        name: &Nqn,
        mut config: NamespaceConfig,
    ) -> Result<Option<String>, ServeError> {
        let subsystem = self.target().subsystem(name)?;
        if subsystem.namespace(config.id).is_some() {
            return Err(ChangeError::NamespaceExists { subsystem: name.clone(), nsid: config.id }.into());
        }
        let path = PathBuf::from(config.backend.to_string());
        let absolute = config.backend.absolute();
        config.backend = absolute.map_err(|source| ServeError::Backend { path, source })?;
        let backing = Backing::open(&config)?;
        let identity = self.identity(name, &config, &backing)?;
        let Backing { store, bytes, warning } = backing;
        if let Store::File(file) = &store {
            self.check_medium(file)?;
            file.promise(bytes);
        }
        let namespace = Namespace::new(config.id, identity, config.block_size.into(), bytes, store);
        let mut namespace = namespace.with(config.group, config.read_only);
        if let Some(path) = self.persistence_folder.clone() {
            let loaded = namespace.persisted_in(&path, name);
            namespace = loaded.map_err(|source| ServeError::Backend { path, source })?;
        }
        let edit = |it: &mut Config| it.with_subsystem(name, |it| it.namespaces.push(config));
        self.change(edit, |it| Ok(it.target().add_namespace(name, namespace)?))?;
        Ok(logged(warning))
    }

    /// The identifiers of a namespace: those of its configuration, or derived ones. No other namespace of
    /// this server may have them: hosts would take two disks for one.
    fn identity(
        &self,
        name: &Nqn,
        config: &NamespaceConfig,
        backing: &Backing,
    ) -> Result<Identity, ServeError> {
        let given = Identity::given(config.uuid, config.nguid);
        let derived = || {
            let lasting_name = backing.lasting_name()?;
            Ok::<_, ServeError>(Identity::of_storage(&self.machine, name, config.id, &lasting_name))
        };
        let identity = given.map_or_else(derived, Ok)?;
        for subsystem in self.target().subsystems() {
            for namespace in subsystem.namespaces() {
                let other = namespace.identity();
                if other.uuid == identity.uuid || other.nguid == identity.nguid {
                    let (subsystem, nsid) = (subsystem.name().clone(), namespace.nsid());
                    return Err(ServeError::Identifiers { subsystem, nsid });
                }
            }
        }
        Ok(identity)
    }

    /// Checks that no other namespace uses the same file or device: each would overwrite the blocks of the
    /// other without regard to its reservations. Read-only namespaces may share a file.
    fn check_medium(&self, file: &FileStore) -> Result<(), ServeError> {
        let cannot = |source| ServeError::Backend { path: file.path().to_owned(), source };
        let medium = file.medium().map_err(cannot)?;
        for subsystem in self.target().subsystems() {
            for namespace in subsystem.namespaces() {
                let Store::File(other) = namespace.store() else { continue };
                let is_same = other.medium().is_ok_and(|other| other == medium);
                if is_same && !(file.is_read_only() && other.is_read_only()) {
                    let (path, subsystem) = (file.path().to_owned(), subsystem.name().clone());
                    return Err(ServeError::Shared { path, subsystem, nsid: namespace.nsid() });
                }
            }
        }
        Ok(())
    }

    /// Removes a namespace. Its file stays; its persistent reservations and write protection are removed.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn remove_namespace(&mut self, name: &Nqn, nsid: u32) -> Result<(), ServeError> {
        let edit = |it: &mut Config| it.with_subsystem(name, |it| it.namespaces.retain(|it| it.id != nsid));
        let (namespace, barrier) = self.change(edit, |it| Ok(it.target().remove_namespace(name, nsid)?))?;
        settle(&barrier)?;
        self.forget(&namespace)
    }

    fn forget(&self, namespace: &Namespace) -> Result<(), ServeError> {
        let path = || self.persistence_folder.clone().unwrap_or_default();
        namespace.forget().map_err(|source| ServeError::Backend { path: path(), source })
    }

    /// Changes the size of a namespace. Returns a warning if hosts do not reach all of its file.
    ///
    /// # Errors
    /// When the namespace does not exist, or its file cannot be resized.
    pub fn resize_namespace(
        &mut self,
        name: &Nqn,
        nsid: u32,
        size: Bytes,
    ) -> Result<Option<String>, ServeError> {
        let missing = || ChangeError::NoNamespace { subsystem: name.clone(), nsid };
        let namespace = self.target().subsystem(name)?.namespace(nsid).ok_or_else(missing)?;
        let path = match namespace.store() {
            Store::File(file) => file.path().to_owned(),
            Store::Memory(_) | Store::Null => PathBuf::from("memory"),
        };
        if size.0 >> namespace.shift() == 0 {
            return Err(ServeError::Empty { path, bytes: size.0 });
        }
        let resized = |it: &mut NamespaceConfig| match &mut it.backend {
            BackendConfig::File { size: configured, .. } => *configured = Some(size),
            BackendConfig::Memory(configured) | BackendConfig::Null(configured) => *configured = size,
        };
        let edit = |it: &mut Config| {
            it.with_subsystem(name, |it| {
                it.namespaces.iter_mut().filter(|it| it.id == nsid).for_each(resized);
            });
        };
        self.change(edit, |it| {
            let failed = |source| ServeError::Backend { path: path.clone(), source };
            namespace.resize(size.0).map_err(failed)?;
            it.target().namespace_resized(name, nsid);
            let found = match namespace.store() {
                Store::File(file) => file.bytes().map_err(failed)?,
                Store::Memory(_) | Store::Null => size.0,
            };
            Ok(logged(backing::warning(&path, found, Some(size), 1 << namespace.shift())))
        })
    }

    /// Sets the allowed hosts of a subsystem; every host when `None`.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_hosts(
        &mut self,
        name: &Nqn,
        hosts: Option<std::collections::BTreeSet<Nqn>>,
    ) -> Result<(), ServeError> {
        let allowed = hosts.clone().map_or(Hosts::Any, Hosts::Only);
        let edit = |it: &mut Config| it.with_subsystem(name, |it| it.hosts = hosts);
        settle(&self.change(edit, |it| Ok(it.target().set_hosts(name, allowed)?))?)
    }

    /// Sets the credentials of a host; `None` removes them.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_credentials(
        &mut self,
        name: &Nqn,
        host: Nqn,
        credentials: Option<Credentials>,
    ) -> Result<(), ServeError> {
        let edit = |it: &mut Config| {
            it.with_subsystem(name, |it| match credentials.clone() {
                Some(credentials) => _ = it.credentials.insert(host.clone(), credentials),
                None => _ = it.credentials.remove(&host),
            });
        };
        let make = |it: &Self| Ok(it.target().set_credentials(name, &host, credentials.clone())?);
        settle(&self.change(edit, make)?)
    }

    /// Sets the ANA state of a group on a port. It is not part of the configuration.
    ///
    /// # Errors
    /// When the subsystem does not exist, or the group identifier is not allowed.
    pub fn set_access(
        &mut self,
        name: &Nqn,
        port: u16,
        group: u32,
        access: AnaState,
    ) -> Result<(), ServeError> {
        settle(&self.target().set_access(name, port, group, access)?)
    }

    /// Adds a port; returns its identifier. It replaces the port with the same identifier, and ends the
    /// controllers of hosts that came through that.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn add_port(&mut self, mut config: PortConfig) -> Result<u16, ServeError> {
        let next = self.listeners.keys().last().map_or(1, |last| last.saturating_add(1));
        let id = config.id.unwrap_or(next);
        let (listener, transport) = match config.transport {
            TransportConfig::Tcp => {
                let tls = config.tls;
                (Listener::tcp(&self.shared, config.address, id, tls)?, Transport::Tcp { tls })
            }
            TransportConfig::Rdma if config.tls => return Err(ServeError::Tls(config.address)),
            TransportConfig::Rdma => {
                let receives = config.shared_receives.map(|Receives(count)| count);
                (Listener::rdma(&self.shared, config.address, id, receives)?, Transport::Rdma)
            }
        };
        let subsystems = config.subsystems.clone();
        config.id = Some(id);
        let edit = |it: &mut Config| {
            it.ports.retain(|it| it.id != Some(id));
            it.ports.push(config);
        };
        let port = Port { id, transport, address: listener.address(), subsystems };
        let barrier = self.change(edit, |it| Ok(it.target().replace_port(port)))?;
        self.listeners.insert(id, listener);
        settle(&barrier)?;
        Ok(id)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listeners.clear();
        if !self.target().end().wait(BARRIER_TIMEOUT) {
            error!(
                "a disk has not executed the last commands: it does not answer, and may execute them later"
            );
        }
    }
}

/// Waits for the commands that began before a change.
fn settle(barrier: &Barrier) -> Result<(), ServeError> {
    if barrier.wait(BARRIER_TIMEOUT) { Ok(()) } else { Err(ServeError::Unfinished) }
}

/// A target whose controller identifiers begin at a random one: two servers that are paths to one disk would
/// otherwise give out the same ones, and a host refuses the second path.
fn target_of(machine: &MachineId) -> Result<Target, ServeError> {
    let mut first = [0; 2];
    getrandom::fill(&mut first).map_err(|error| ServeError::Random(io::Error::other(error)))?;
    let serial = Serial::of_hash(machine.derive("discovery", &[]));
    Ok(Target::new().with_identity(u16::from_le_bytes(first), serial))
}

fn absolute(path: &Path) -> Result<PathBuf, ServeError> {
    std::path::absolute(path).map_err(|source| ServeError::Backend { path: path.to_owned(), source })
}

/// The warning, which is in the log then.
fn logged(warning: Option<String>) -> Option<String> {
    warning.inspect(|text| warn!("{text}"))
}
