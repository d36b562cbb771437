//! A server: changes are made one after another, and each waits by itself for the commands that began before.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::error;
use wire::nvme::log::AnaState;

use super::config::{Bytes, Config, NamespaceConfig, PortConfig, SubsystemConfig};
use super::state::{State, logged, path_of};
use super::{ServeError, Shared, Tuning, backing};
use crate::auth::Credentials;
use crate::controller::{Barrier, ChangeError, Target};
use crate::limits::BARRIER_TIMEOUT;
use crate::machine::MachineId;
use crate::nqn::Nqn;
use crate::store::Store;

/// A target with its listeners and stores. A method that takes rights from hosts returns when no command that
/// began before is executed any more; so does the drop of a server, which ends all connections. While one
/// method waits for a disk, others can be called.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// Not locked while a change waits.
    state: Mutex<State>,
}

impl Server {
    /// Starts a server with `config`. If the file `state` exists, it replaces `config`; each later change is
    /// written to `state` before it is made.
    ///
    /// # Errors
    /// When a file cannot be used, or an address cannot be bound.
    pub fn start(
        config: Config,
        state: Option<PathBuf>,
        tuning: Tuning,
    ) -> Result<Self, ServeError> {
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
        let state = State::start(machine, config, state, tuning)?;
        Ok(Self {
            shared: Arc::clone(state.shared()),
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn config(&self) -> Config {
        self.lock().config().clone()
    }

    /// The addresses that the server listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().addresses()
    }

    /// The addresses that the server listens on, each with its transport: `TCP`, `TLS` or `RDMA`.
    pub fn listeners(&self) -> Vec<(SocketAddr, &'static str)> {
        self.lock().listeners()
    }

    /// Adds a subsystem with its namespaces.
    ///
    /// # Errors
    /// When the name exists already, or a file cannot be used.
    pub fn add_subsystem(&self, config: SubsystemConfig) -> Result<(), ServeError> {
        self.lock().add_subsystem(config)
    }

    /// Removes a subsystem. Its files stay; its persistent reservations and write protection are removed.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn remove_subsystem(&self, name: &Nqn) -> Result<(), ServeError> {
        let barrier = self.lock().remove_subsystem(name)?;
        wait_for_commands(&barrier)?;
        self.lock().sweep()
    }

    /// Adds a namespace. Returns a warning if hosts do not reach all of its file.
    ///
    /// # Errors
    /// When the identifier is in use, the file cannot be used, or commands of a namespace that was removed
    /// are still executed on it.
    pub fn add_namespace(
        &self,
        name: &Nqn,
        config: NamespaceConfig,
    ) -> Result<Option<String>, ServeError> {
        self.lock().add_namespace(name, config)
    }

    /// Removes a namespace. Its file stays; its persistent reservations and write protection are removed.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn remove_namespace(&self, name: &Nqn, nsid: u32) -> Result<(), ServeError> {
        let barrier = self.lock().remove_namespace(name, nsid)?;
        wait_for_commands(&barrier)?;
        self.lock().sweep()
    }

    /// Changes the size of a namespace. Returns a warning if hosts do not reach all of its file.
    ///
    /// # Errors
    /// When the namespace does not exist, or its file cannot be resized.
    pub fn resize_namespace(
        &self,
        name: &Nqn,
        nsid: u32,
        size: Bytes,
    ) -> Result<Option<String>, ServeError> {
        let missing = || ChangeError::NoNamespace {
            subsystem: name.clone(),
            nsid,
        };
        let namespace = self
            .target()
            .subsystem(name)?
            .namespace(nsid)
            .ok_or_else(missing)?;
        // The last size that the configuration gets is also the last that the namespace gets.
        let _turn = namespace.resize_turn();
        let former = self.lock().begin_resize(name, &namespace, size)?;
        let failed = |source| ServeError::Backend {
            path: path_of(&namespace),
            source,
        };
        if let Err(source) = namespace.resize(size.0) {
            if let Some(former) = former {
                self.lock().cancel_resize(name, nsid, former);
            }
            return Err(failed(source));
        }
        self.target().namespace_resized(name, nsid);
        let found = match namespace.store() {
            Store::File(file) => file.bytes().map_err(failed)?,
            Store::Memory(_) | Store::Null => size.0,
        };
        Ok(logged(backing::warning(
            &path_of(&namespace),
            found,
            Some(size),
            1 << namespace.shift(),
        )))
    }

    /// Sets the allowed hosts of a subsystem; every host when `None`.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_hosts(&self, name: &Nqn, hosts: Option<BTreeSet<Nqn>>) -> Result<(), ServeError> {
        let barrier = self.lock().set_hosts(name, hosts)?;
        wait_for_commands(&barrier)
    }

    /// Sets the credentials of a host; `None` removes them.
    ///
    /// # Errors
    /// When the subsystem does not exist.
    pub fn set_credentials(
        &self,
        name: &Nqn,
        host: Nqn,
        credentials: Option<Credentials>,
    ) -> Result<(), ServeError> {
        let barrier = self.lock().set_credentials(name, host, credentials)?;
        wait_for_commands(&barrier)
    }

    /// Sets the ANA state of a group on a port. It is not part of the configuration.
    ///
    /// # Errors
    /// When the subsystem does not exist, or the group identifier is not allowed.
    pub fn set_access(
        &self,
        name: &Nqn,
        port: u16,
        group: u32,
        access: AnaState,
    ) -> Result<(), ServeError> {
        wait_for_commands(&self.target().set_access(name, port, group, access)?)
    }

    /// Adds a port; returns its identifier. It replaces the port with the same identifier, and ends the
    /// controllers of hosts that came through that.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn add_port(&self, config: PortConfig) -> Result<u16, ServeError> {
        let (id, barrier) = self.lock().add_port(config)?;
        wait_for_commands(&barrier)?;
        Ok(id)
    }

    /// Ends the server: it listens no more, ends all connections, and waits until the commands of before have
    /// ended.
    ///
    /// # Errors
    /// When a disk does not execute them in time.
    pub fn end(&self) -> Result<(), ServeError> {
        let barrier = self.lock().end();
        wait_for_commands(&barrier)?;
        self.lock().sweep()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            error!("{error}");
        }
    }
}

/// Waits for the commands that began before a change.
fn wait_for_commands(barrier: &Barrier) -> Result<(), ServeError> {
    if barrier.wait(BARRIER_TIMEOUT) {
        Ok(())
    } else {
        Err(ServeError::Unfinished)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use serde_json::Value;

    use super::super::config::BackendConfig;
    use super::super::control::Command;
    use super::*;
    use crate::controller::Underway;
    use ::server::control::{Control, ControlError, ask};

    const SIZE: u64 = 1 << 20;

    fn name() -> Nqn {
        "nqn.2024-01.org.example:disk".parse().unwrap()
    }

    fn namespace(folder: &Path, id: u32) -> NamespaceConfig {
        let (path, size) = (folder.join(format!("disk{id}")), Some(Bytes(SIZE)));
        NamespaceConfig::new(
            id,
            BackendConfig::File {
                path,
                size,
                direct: false,
            },
        )
    }

    /// A server with two namespaces, and its control socket.
    fn start(folder: &Path) -> (Arc<Server>, PathBuf) {
        let namespaces = vec![namespace(folder, 1), namespace(folder, 2)];
        let subsystems = vec![SubsystemConfig {
            namespaces,
            ..SubsystemConfig::new(name())
        }];
        let config = Config {
            subsystems,
            ..Config::default()
        };
        let server =
            Arc::new(Server::start(config, Some(folder.join("state")), Tuning::default()).unwrap());
        let path = folder.join("control");
        let (control, served) = (Control::listen(&path).unwrap(), Arc::clone(&server));
        std::thread::spawn(move || served.serve_control(&control));
        (server, path)
    }

    /// A command that the disk of namespace 1 does not execute.
    fn hang(server: &Server) -> Underway {
        Underway::new(
            &server
                .target()
                .subsystem(&name())
                .unwrap()
                .namespace(1)
                .unwrap(),
            0,
        )
    }

    fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_disk_that_hangs_delays_no_other_control_command() {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = start(folder.path());
        let hanging = hang(&server);
        let (nqn, ask_at) = (name(), path.clone());
        let remove = move || ask(&ask_at, &Command::RemoveNamespace { nqn, id: 1 });
        let removal = std::thread::spawn(remove);
        until(|| server.config().subsystems[0].namespaces.len() == 1);
        // A report, and a change that waits for commands of another namespace.
        assert_eq!(
            ask(&path, &Command::Status).unwrap()["subsystems"][0]["namespaces"][0]["id"],
            2
        );
        ask(&path, &Command::RemoveNamespace { nqn: name(), id: 2 }).unwrap();
        ask(
            &path,
            &Command::AddNamespace {
                nqn: name(),
                namespace: namespace(folder.path(), 2),
            },
        )
        .unwrap();
        // The identifier and the file of the namespace are free when its commands have ended.
        let again = || {
            ask(
                &path,
                &Command::AddNamespace {
                    nqn: name(),
                    namespace: namespace(folder.path(), 1),
                },
            )
        };
        let elsewhere = NamespaceConfig {
            id: 3,
            ..namespace(folder.path(), 1)
        };
        let elsewhere = ask(
            &path,
            &Command::AddNamespace {
                nqn: name(),
                namespace: elsewhere,
            },
        );
        for refused in [again(), elsewhere] {
            let is_named =
                matches!(&refused, Err(ControlError::Refused(why)) if why.contains("was removed"));
            assert!(is_named, "{refused:?}");
        }
        assert!(
            !removal.is_finished(),
            "the removal has to wait for the command"
        );
        drop(hanging);
        assert_eq!(
            removal.join().unwrap().unwrap(),
            Value::Object(Default::default())
        );
        again().unwrap();
    }

    #[test]
    fn a_resize_that_hangs_delays_no_other_control_command_and_keeps_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = start(folder.path());
        let hanging = hang(&server);
        let resize = |size: u64| {
            let path = path.clone();
            let command = Command::Resize {
                nqn: name(),
                id: 1,
                size: Bytes(size),
            };
            std::thread::spawn(move || ask(&path, &command))
        };
        let configured = |at: usize| match server.config().subsystems[0].namespaces[at].backend {
            BackendConfig::File { size, .. } => size,
            _ => None,
        };
        let first = resize(2 * SIZE);
        until(|| configured(0) == Some(Bytes(2 * SIZE)));
        let second = resize(3 * SIZE);
        let other = Command::Resize {
            nqn: name(),
            id: 2,
            size: Bytes(4 * SIZE),
        };
        ask(&path, &other).unwrap();
        assert_eq!(
            (configured(0), configured(1)),
            (Some(Bytes(2 * SIZE)), Some(Bytes(4 * SIZE)))
        );
        assert!(!first.is_finished() && !second.is_finished());
        drop(hanging);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        assert_eq!(configured(0), Some(Bytes(3 * SIZE)));
        assert_eq!(
            std::fs::metadata(folder.path().join("disk1"))
                .unwrap()
                .len(),
            3 * SIZE
        );
    }
}
