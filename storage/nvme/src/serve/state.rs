//! The state of a server: its configuration, and how it becomes a target with ports.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{error, warn};

use super::backing::Backing;
use super::config::{
    BackendConfig, Bytes, Config, NamespaceConfig, PortConfig, Receives, SubsystemConfig,
    TransportConfig,
};
use super::{Listener, ServeError, Shared, Tuning};
use crate::auth::Credentials;
use crate::controller::{
    Barrier, ChangeError, Hosts, Identity, Namespace, Port, Referral, Subsystem, Target, Transport,
};
use crate::identifier::Serial;
use crate::machine::MachineId;
use crate::nqn::Nqn;
use crate::store::{FileStore, Store};

const MODEL: &str = "rockery";

/// A target with its listeners and stores, and the configuration that describes them. A change is made when a
/// method returns; its barrier says when the commands that began before have ended.
#[derive(Debug)]
pub(super) struct State {
    machine: MachineId,
    shared: Arc<Shared>,
    listeners: BTreeMap<u16, Listener>,
    config: Config,
    state: Option<PathBuf>,
    /// The folder with the persistent settings of hosts: reservations and write protection.
    persistence_folder: Option<PathBuf>,
    /// Namespaces that were removed, until their last commands have ended.
    leaving: Vec<Leaving>,
}

/// A namespace that was removed, whose disk may still execute commands.
#[derive(Debug)]
struct Leaving {
    namespace: Arc<Namespace>,
    barrier: Arc<Barrier>,
}

impl State {
    /// The state of a server that was started with `config`, or with the file `state` if it exists, on a
    /// machine with this identifier.
    pub(super) fn start(
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
        let (listeners, leaving) = (BTreeMap::new(), Vec::new());
        let (config_so_far, no_state) = (Config::default(), None);
        let mut server = Self {
            machine,
            shared,
            listeners,
            config: config_so_far,
            state: no_state,
            persistence_folder,
            leaving,
        };
        for subsystem in config.subsystems {
            server.add_subsystem(subsystem)?;
        }
        let referrals = config.referrals.iter().map(|it| Referral {
            transport: Transport::Tcp { tls: false },
            address: it.address,
        });
        server.shared.target.set_referrals(referrals.collect());
        server.config.referrals = config.referrals;
        for port in config.ports {
            // Nothing was served before.
            _ = server.add_port(port)?;
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

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn target(&self) -> &Arc<Target> {
        &self.shared.target
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.values().map(Listener::address).collect()
    }

    /// The addresses with the transports, as users know them: TCP, TLS, RDMA.
    pub(super) fn listeners(&self) -> Vec<(SocketAddr, &'static str)> {
        let listeners = self.listeners.iter();
        let named = listeners.map(|(id, listener)| {
            let port = self.config.ports.iter().find(|port| port.id == Some(*id));
            (
                listener.address(),
                port.map_or("TCP", PortConfig::transport_name),
            )
        });
        named.collect()
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
    pub(super) fn add_subsystem(&mut self, mut config: SubsystemConfig) -> Result<(), ServeError> {
        let derived = || Serial::of_hash(self.machine.derive("serial", &[config.nqn.as_str()]));
        let serial = config.serial.clone().unwrap_or_else(derived).into();
        let model = config.model.clone().unwrap_or_else(|| MODEL.to_owned());
        let hosts = config.hosts.clone().map_or(Hosts::Any, Hosts::Only);
        let subsystem = Subsystem::new(config.nqn.clone(), serial, model, hosts);
        let subsystem = subsystem.with_credentials(config.credentials.clone());
        let name = config.nqn.clone();
        let namespaces = std::mem::take(&mut config.namespaces);
        self.change(
            |it| it.subsystems.push(config),
            |it| Ok(it.target().add_subsystem(subsystem)?),
        )?;
        for namespace in namespaces {
            if let Err(error) = self.add_namespace(&name, namespace) {
                // Its namespaces are leaving: what is added next does not meet their last commands.
                _ = self.remove_subsystem(&name);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes a subsystem.
    pub(super) fn remove_subsystem(&mut self, name: &Nqn) -> Result<Arc<Barrier>, ServeError> {
        let namespaces = self.target().subsystem(name)?.namespaces();
        let edit = |it: &mut Config| it.subsystems.retain(|it| it.nqn != *name);
        let barrier = Arc::new(self.change(edit, |it| Ok(it.target().remove_subsystem(name)?))?);
        let leaving = |namespace| Leaving {
            namespace,
            barrier: Arc::clone(&barrier),
        };
        self.leaving.extend(namespaces.into_iter().map(leaving));
        Ok(barrier)
    }

    /// Adds a namespace. Returns a warning if hosts do not reach all of its file.
    pub(super) fn add_namespace(
        &mut self,
        name: &Nqn,
        mut config: NamespaceConfig,
    ) -> Result<Option<String>, ServeError> {
        let subsystem = self.target().subsystem(name)?;
        if subsystem.namespace(config.id).is_some() {
            return Err(ChangeError::NamespaceExists {
                subsystem: name.clone(),
                nsid: config.id,
            }
            .into());
        }
        let path = PathBuf::from(config.backend.to_string());
        let absolute = config.backend.absolute();
        config.backend = absolute.map_err(|source| ServeError::Backend { path, source })?;
        let backing = Backing::open(&config)?;
        let identity = self.identity(name, &config, &backing)?;
        let Backing {
            store,
            bytes,
            warning,
        } = backing;
        if let Store::File(file) = &store {
            self.check_medium(file)?;
            file.promise(bytes);
        }
        // Its reservations and its write protection would become those of the new namespace.
        self.sweep()?;
        if self
            .leaving
            .iter()
            .any(|it| it.namespace.identity() == identity)
        {
            return Err(ServeError::Leaving { nsid: config.id });
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
            Ok::<_, ServeError>(Identity::of_storage(
                &self.machine,
                name,
                config.id,
                &lasting_name,
            ))
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
        let cannot = |source| ServeError::Backend {
            path: file.path().to_owned(),
            source,
        };
        let medium = file.medium().map_err(cannot)?;
        let conflicts = |namespace: &Namespace| {
            let Store::File(other) = namespace.store() else {
                return false;
            };
            let is_same = other.medium().is_ok_and(|other| other == medium);
            is_same && !(file.is_read_only() && other.is_read_only())
        };
        for subsystem in self.target().subsystems() {
            for namespace in subsystem.namespaces() {
                if conflicts(&namespace) {
                    let (path, subsystem) = (file.path().to_owned(), subsystem.name().clone());
                    return Err(ServeError::Shared {
                        path,
                        subsystem,
                        nsid: namespace.nsid(),
                    });
                }
            }
        }
        let is_busy = |it: &&Leaving| !it.barrier.has_passed() && conflicts(&it.namespace);
        match self.leaving.iter().find(is_busy) {
            Some(it) => Err(ServeError::Leaving {
                nsid: it.namespace.nsid(),
            }),
            None => Ok(()),
        }
    }

    /// Removes a namespace.
    pub(super) fn remove_namespace(
        &mut self,
        name: &Nqn,
        nsid: u32,
    ) -> Result<Arc<Barrier>, ServeError> {
        let edit = |it: &mut Config| {
            it.with_subsystem(name, |it| it.namespaces.retain(|it| it.id != nsid))
        };
        let (namespace, barrier) =
            self.change(edit, |it| Ok(it.target().remove_namespace(name, nsid)?))?;
        let barrier = Arc::new(barrier);
        self.leaving.push(Leaving {
            namespace,
            barrier: Arc::clone(&barrier),
        });
        Ok(barrier)
    }

    /// Removes the persistent reservations and write protection of the namespaces that have left: their last
    /// commands, which could store them again, have ended.
    pub(super) fn sweep(&mut self) -> Result<(), ServeError> {
        while let Some(at) = self.leaving.iter().position(|it| it.barrier.has_passed()) {
            let path = || self.persistence_folder.clone().unwrap_or_default();
            let forgotten = self.leaving[at].namespace.forget();
            forgotten.map_err(|source| ServeError::Backend {
                path: path(),
                source,
            })?;
            self.leaving.remove(at);
        }
        Ok(())
    }

    /// Begins to change the size of a namespace: the configuration has the new one. Returns the namespace,
    /// and the former configuration of its store.
    pub(super) fn begin_resize(
        &mut self,
        name: &Nqn,
        namespace: &Arc<Namespace>,
        size: Bytes,
    ) -> Result<Option<BackendConfig>, ServeError> {
        let nsid = namespace.nsid();
        let present = self.target().subsystem(name)?.namespace(nsid);
        if !present.is_some_and(|present| Arc::ptr_eq(&present, namespace)) {
            return Err(ChangeError::NoNamespace {
                subsystem: name.clone(),
                nsid,
            }
            .into());
        }
        let path = path_of(namespace);
        if size.0 >> namespace.shift() == 0 {
            return Err(ServeError::Empty {
                path,
                bytes: size.0,
            });
        }
        let mut former = None;
        let edit = |it: &mut Config| {
            edit_backend(it, name, nsid, |it| {
                former = Some(it.clone());
                match it {
                    BackendConfig::File {
                        size: configured, ..
                    } => *configured = Some(size),
                    BackendConfig::Memory(configured) | BackendConfig::Null(configured) => {
                        *configured = size
                    }
                }
            });
        };
        self.change(edit, |_| Ok(()))?;
        Ok(former)
    }

    /// Takes back [`State::begin_resize`].
    pub(super) fn cancel_resize(&mut self, name: &Nqn, nsid: u32, former: BackendConfig) {
        let edit = |it: &mut Config| edit_backend(it, name, nsid, |it| *it = former);
        if let Err(error) = self.change(edit, |_| Ok(())) {
            error!(
                "{error}: the state file keeps the size that was not set, and the next start tries it"
            );
        }
    }

    /// Sets the allowed hosts of a subsystem; every host when `None`.
    pub(super) fn set_hosts(
        &mut self,
        name: &Nqn,
        hosts: Option<std::collections::BTreeSet<Nqn>>,
    ) -> Result<Barrier, ServeError> {
        let allowed = hosts.clone().map_or(Hosts::Any, Hosts::Only);
        let edit = |it: &mut Config| it.with_subsystem(name, |it| it.hosts = hosts);
        self.change(edit, |it| Ok(it.target().set_hosts(name, allowed)?))
    }

    /// Sets the credentials of a host; `None` removes them.
    pub(super) fn set_credentials(
        &mut self,
        name: &Nqn,
        host: Nqn,
        credentials: Option<Credentials>,
    ) -> Result<Barrier, ServeError> {
        let edit = |it: &mut Config| {
            it.with_subsystem(name, |it| match credentials.clone() {
                Some(credentials) => _ = it.credentials.insert(host.clone(), credentials),
                None => _ = it.credentials.remove(&host),
            });
        };
        let make = |it: &Self| {
            Ok(it
                .target()
                .set_credentials(name, &host, credentials.clone())?)
        };
        self.change(edit, make)
    }

    /// Adds a port; returns its identifier. It replaces the port with the same identifier, and ends the
    /// controllers of hosts that came through that.
    pub(super) fn add_port(
        &mut self,
        mut config: PortConfig,
    ) -> Result<(u16, Barrier), ServeError> {
        let next = self
            .listeners
            .keys()
            .last()
            .map_or(1, |last| last.saturating_add(1));
        let id = config.id.unwrap_or(next);
        let (listener, transport) = match config.transport {
            TransportConfig::Tcp => {
                let tls = config.tls;
                (
                    Listener::tcp(&self.shared, config.address, id, tls)?,
                    Transport::Tcp { tls },
                )
            }
            TransportConfig::Rdma if config.tls => return Err(ServeError::Tls(config.address)),
            TransportConfig::Rdma => {
                let receives = config.shared_receives.map(|Receives(count)| count);
                (
                    Listener::rdma(&self.shared, config.address, id, receives)?,
                    Transport::Rdma,
                )
            }
        };
        let subsystems = config.subsystems.clone();
        config.id = Some(id);
        let edit = |it: &mut Config| {
            it.ports.retain(|it| it.id != Some(id));
            it.ports.push(config);
        };
        let port = Port {
            id,
            transport,
            address: listener.address(),
            subsystems,
        };
        let barrier = self.change(edit, |it| Ok(it.target().replace_port(port)))?;
        self.listeners.insert(id, listener);
        Ok((id, barrier))
    }

    /// Ends all listeners and controllers.
    pub(super) fn end(&mut self) -> Barrier {
        self.listeners.clear();
        self.target().end()
    }
}

/// The file of a namespace, in errors.
pub(super) fn path_of(namespace: &Namespace) -> PathBuf {
    match namespace.store() {
        Store::File(file) => file.path().to_owned(),
        Store::Memory(_) | Store::Null => PathBuf::from("memory"),
    }
}

fn edit_backend(config: &mut Config, name: &Nqn, nsid: u32, edit: impl FnOnce(&mut BackendConfig)) {
    config.with_subsystem(name, |it| {
        if let Some(namespace) = it.namespaces.iter_mut().find(|it| it.id == nsid) {
            edit(&mut namespace.backend);
        }
    });
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
    std::path::absolute(path).map_err(|source| ServeError::Backend {
        path: path.to_owned(),
        source,
    })
}

/// The warning, which is in the log then.
pub(super) fn logged(warning: Option<String>) -> Option<String> {
    warning.inspect(|text| warn!("{text}"))
}
