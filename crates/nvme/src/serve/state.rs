//! A server: what it was told to serve, and how that becomes a target with ports.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::config::{
    BackendConfig, Bytes, Config, NamespaceConfig, PortConfig, Receives, SubsystemConfig, TransportConfig,
};
use super::{Listener, ServeError, Shared, Tuning};
use crate::auth::Credentials;
use crate::nqn::Nqn;
use crate::store::{FileStore, Memory, Store};
use crate::target::{ChangeError, Hosts, Identity, Namespace, Port, Referral, Subsystem, Target, Transport};

const MODEL: &str = "rockery";

/// What is served, and the threads that do it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: BTreeMap<u16, Listener>,
    config: Config,
    state: Option<PathBuf>,
    /// The folder of what is kept of what hosts have set.
    kept: Option<PathBuf>,
}

impl Server {
    /// Serves what `config` says. When `state` is a file that exists, what it says instead; it is written at
    /// each change.
    ///
    /// # Errors
    /// When a file cannot be used or an address cannot be had.
    pub fn start(config: Config, state: Option<PathBuf>, tuning: Tuning) -> Result<Self, ServeError> {
        let config = match &state {
            Some(path) if path.exists() => Config::read(path)?,
            _ => config,
        };
        let shared = Shared::new(Arc::new(Target::new()), tuning);
        let kept = state.as_ref().map(|path| path.with_extension("kept"));
        let (listeners, config_so_far) = (BTreeMap::new(), Config::default());
        let mut server = Self { shared, listeners, config: config_so_far, state: None, kept };
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
        server.state = state;
        server.keep()?;
        Ok(server)
    }

    /// What connections share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What is served.
    pub fn target(&self) -> &Arc<Target> {
        &self.shared.target
    }

    /// What is served, in the form of a file.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.values().map(Listener::address).collect()
    }

    fn keep(&self) -> Result<(), ServeError> {
        match &self.state {
            Some(path) => Ok(self.config.write(path)?),
            None => Ok(()),
        }
    }

    /// Adds a subsystem with its namespaces.
    ///
    /// # Errors
    /// When its name is taken, or a file cannot be used.
    pub fn add_subsystem(&mut self, mut config: SubsystemConfig) -> Result<(), ServeError> {
        let serial = config.serial.clone().unwrap_or_else(|| serial_of(&config.nqn));
        let model = config.model.clone().unwrap_or_else(|| MODEL.to_owned());
        let hosts = config.hosts.clone().map_or(Hosts::Any, Hosts::Only);
        let subsystem = Subsystem::new(config.nqn.clone(), serial, model, hosts);
        let subsystem = subsystem.with_credentials(config.credentials.clone());
        self.target().add_subsystem(subsystem)?;
        let name = config.nqn.clone();
        let namespaces = std::mem::take(&mut config.namespaces);
        self.config.subsystems.push(config);
        for namespace in namespaces {
            if let Err(error) = self.add_namespace(&name, namespace) {
                _ = self.take_out(&name);
                return Err(error);
            }
        }
        self.keep()
    }

    /// Removes a subsystem. Its files stay; what hosts have set of its namespaces does not.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn remove_subsystem(&mut self, name: &Nqn) -> Result<(), ServeError> {
        let namespaces = self.target().subsystem(name)?.namespaces();
        self.take_out(name)?;
        namespaces.iter().try_for_each(|namespace| self.forget(namespace))
    }

    fn take_out(&mut self, name: &Nqn) -> Result<(), ServeError> {
        self.target().remove_subsystem(name)?;
        self.config.subsystems.retain(|it| it.nqn != *name);
        self.keep()
    }

    /// Adds a namespace.
    ///
    /// # Errors
    /// When its number is taken, or its file cannot be used.
    pub fn add_namespace(&mut self, name: &Nqn, config: NamespaceConfig) -> Result<(), ServeError> {
        let subsystem = self.target().subsystem(name)?;
        if subsystem.namespace(config.id).is_some() {
            return Err(ChangeError::NamespaceExists { subsystem: name.clone(), nsid: config.id }.into());
        }
        let (store, bytes) = open(&config)?;
        let identity = Identity::of(name, config.id);
        let namespace = Namespace::new(config.id, identity, config.block_size.into(), bytes, store);
        let mut namespace = namespace.with(config.group, config.read_only);
        if let Some(path) = self.kept.clone() {
            let kept = namespace.kept_in(&path);
            namespace = kept.map_err(|source| ServeError::Backend { path, source })?;
        }
        self.target().add_namespace(name, namespace)?;
        if let Some(subsystem) = self.entry(name) {
            subsystem.namespaces.push(config);
        }
        self.keep()
    }

    fn entry(&mut self, name: &Nqn) -> Option<&mut SubsystemConfig> {
        self.config.subsystems.iter_mut().find(|it| it.nqn == *name)
    }

    /// Removes a namespace. Its file stays; what hosts have set of it does not.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn remove_namespace(&mut self, name: &Nqn, nsid: u32) -> Result<(), ServeError> {
        let namespace = self.target().remove_namespace(name, nsid)?;
        self.forget(&namespace)?;
        if let Some(subsystem) = self.entry(name) {
            subsystem.namespaces.retain(|it| it.id != nsid);
        }
        self.keep()
    }

    fn forget(&self, namespace: &Namespace) -> Result<(), ServeError> {
        let path = || self.kept.clone().unwrap_or_default();
        namespace.forget().map_err(|source| ServeError::Backend { path: path(), source })
    }

    /// Changes a namespace's size.
    ///
    /// # Errors
    /// When there is none of this number, or its file cannot have this size.
    pub fn resize_namespace(&mut self, name: &Nqn, nsid: u32, size: Bytes) -> Result<(), ServeError> {
        let missing = || ChangeError::NoNamespace { subsystem: name.clone(), nsid };
        let namespace = self.target().subsystem(name)?.namespace(nsid).ok_or_else(missing)?;
        let path = match namespace.store() {
            Store::File(file) => file.path().to_owned(),
            Store::Memory(_) | Store::Null => PathBuf::from("memory"),
        };
        if size.0 >> namespace.shift() == 0 {
            return Err(ServeError::Empty { path, bytes: size.0 });
        }
        namespace.resize(size.0).map_err(|source| ServeError::Backend { path, source })?;
        self.target().namespace_resized(name, nsid);
        let subsystem = self.entry(name);
        let entry = subsystem.and_then(|it| it.namespaces.iter_mut().find(|it| it.id == nsid));
        match entry.map(|entry| &mut entry.backend) {
            Some(BackendConfig::File { size: kept, .. }) => *kept = Some(size),
            Some(BackendConfig::Memory(kept) | BackendConfig::Null(kept)) => *kept = size,
            None => {}
        }
        self.keep()
    }

    /// Sets which hosts may use a subsystem; all when `None`.
    ///
    /// # Errors
    /// When there is no such subsystem.
    pub fn set_hosts(
        &mut self,
        name: &Nqn,
        hosts: Option<std::collections::BTreeSet<Nqn>>,
    ) -> Result<(), ServeError> {
        self.target().set_hosts(name, hosts.clone().map_or(Hosts::Any, Hosts::Only))?;
        if let Some(subsystem) = self.entry(name) {
            subsystem.hosts = hosts;
        }
        self.keep()
    }

    /// Sets what a host proves itself with; with nothing, that it has nothing.
    ///
    /// # Errors
    /// When there is no such subsystem.
    pub fn set_credentials(
        &mut self,
        name: &Nqn,
        host: Nqn,
        credentials: Option<Credentials>,
    ) -> Result<(), ServeError> {
        self.target().set_credentials(name, &host, credentials.clone())?;
        if let Some(subsystem) = self.entry(name) {
            match credentials {
                Some(credentials) => _ = subsystem.credentials.insert(host, credentials),
                None => _ = subsystem.credentials.remove(&host),
            }
        }
        self.keep()
    }

    /// Listens on one more address; returns its number.
    ///
    /// # Errors
    /// When the address cannot be had.
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
        self.target().add_port(Port { id, transport, address: listener.address(), subsystems });
        self.listeners.insert(id, listener);
        config.id = Some(id);
        self.config.ports.retain(|it| it.id != Some(id));
        self.config.ports.push(config);
        self.keep()?;
        Ok(id)
    }
}

/// A serial number that stays the same: sixteen digits from the name.
fn serial_of(name: &Nqn) -> String {
    let digest = Sha256::digest(name.as_str());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn open(config: &NamespaceConfig) -> Result<(Store, u64), ServeError> {
    let block_size = u32::from(config.block_size);
    match &config.backend {
        BackendConfig::Memory(bytes) => {
            let path = PathBuf::from("memory");
            let memory = Memory::new(bytes.0).map_err(|source| ServeError::Backend { path, source })?;
            Ok((Store::Memory(memory), bytes.0))
        }
        BackendConfig::Null(bytes) => Ok((Store::Null, bytes.0)),
        BackendConfig::File { path, size, direct } => {
            let open = || open_file(path, *size, *direct, config.read_only, block_size);
            let (store, bytes) =
                open().map_err(|source| ServeError::Backend { path: path.clone(), source })?;
            if bytes < u64::from(block_size) {
                return Err(ServeError::Empty { path: path.clone(), bytes });
            }
            Ok((Store::File(Arc::new(store)), bytes))
        }
    }
}

fn open_file(
    path: &Path,
    size: Option<Bytes>,
    direct: bool,
    read_only: bool,
    block_size: u32,
) -> io::Result<(FileStore, u64)> {
    if let Some(size) = size.filter(|_| !read_only) {
        // A file that is not there is made: sparse, so that it takes no room yet.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() && file.metadata()?.len() < size.0 {
            file.set_len(size.0)?;
            file.sync_all()?;
        }
    }
    let store = FileStore::open(path, block_size as usize, read_only, direct)?;
    let found = store.bytes()?;
    Ok((store, size.map_or(found, |size| size.0.min(found))))
}
