//! The commands of the control socket of a target.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::control::{self, Control};
use wire::nvme::log::AnaState;

use super::config::{Bytes, NamespaceConfig, PortConfig, SubsystemConfig};
use super::server::Server;
use crate::auth::Credentials;
use crate::identifier::{Nguid, Uuid};
use crate::nqn::Nqn;

/// A command for a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Reports the subsystems, namespaces, ports and controllers.
    Status,
    /// Reports the counters and latency histograms.
    Report,
    /// Reports the configuration in the form of the file.
    Config,
    /// Adds a subsystem.
    AddSubsystem(SubsystemConfig),
    /// Removes a subsystem.
    RemoveSubsystem {
        /// The NQN of the subsystem.
        nqn: Nqn,
    },
    /// Adds a namespace.
    AddNamespace {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace to add.
        namespace: NamespaceConfig,
    },
    /// Removes a namespace.
    RemoveNamespace {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace identifier (NSID).
        id: u32,
    },
    /// Changes the size of a namespace.
    Resize {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace identifier (NSID).
        id: u32,
        /// The new size in bytes.
        size: Bytes,
    },
    /// Sets the allowed hosts of a subsystem.
    Hosts {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The allowed hosts; every host when `None`.
        hosts: Option<BTreeSet<Nqn>>,
    },
    /// Sets the credentials of a host.
    Credentials {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The NQN of the host.
        host: Nqn,
        /// The credentials; `None` removes them.
        credentials: Option<Credentials>,
    },
    /// Adds a port.
    AddPort(PortConfig),
    /// Sets the ANA state of a group on a port.
    Access {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The port identifier (PORTID).
        port: u16,
        /// The ANA group identifier, from 1.
        group: u32,
        /// The new ANA state.
        access: Access,
    },
}

/// The ANA states that can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Access {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl From<Access> for AnaState {
    fn from(access: Access) -> Self {
        match access {
            Access::Optimized => Self::Optimized,
            Access::NonOptimized => Self::NonOptimized,
            Access::Inaccessible => Self::Inaccessible,
            Access::PersistentLoss => Self::PersistentLoss,
            Access::Change => Self::Change,
        }
    }
}

impl control::Command for Command {
    fn is_change(&self) -> bool {
        !matches!(self, Self::Status | Self::Report | Self::Config)
    }
}

fn with_warning(warning: Option<String>) -> Value {
    warning.map_or_else(|| json!({}), |text| json!({ "warning": text }))
}

impl Server {
    /// Executes the commands of the clients of a control socket until the socket fails.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn serve_control(self: &Arc<Self>, control: &Control) -> io::Result<()> {
        let server = Arc::clone(self);
        control.serve(move |command| server.obey(command).map_err(|error| error.to_string()))
    }

    fn obey(&self, command: Command) -> Result<Value, super::ServeError> {
        match command {
            Command::Status => return Ok(self.status()),
            Command::Report => return Ok(json!(super::Report::of(self.shared()))),
            Command::Config => return Ok(json!(self.config())),
            Command::AddSubsystem(subsystem) => self.add_subsystem(subsystem)?,
            Command::RemoveSubsystem { nqn } => self.remove_subsystem(&nqn)?,
            Command::AddNamespace { nqn, namespace } => {
                return Ok(with_warning(self.add_namespace(&nqn, namespace)?));
            }
            Command::RemoveNamespace { nqn, id } => self.remove_namespace(&nqn, id)?,
            Command::Resize { nqn, id, size } => {
                return Ok(with_warning(self.resize_namespace(&nqn, id, size)?));
            }
            Command::Hosts { nqn, hosts } => self.set_hosts(&nqn, hosts)?,
            Command::Credentials {
                nqn,
                host,
                credentials,
            } => {
                self.set_credentials(&nqn, host, credentials)?;
            }
            Command::AddPort(port) => {
                let id = self.add_port(port)?;
                return Ok(json!({ "port": id }));
            }
            Command::Access {
                nqn,
                port,
                group,
                access,
            } => {
                self.set_access(&nqn, port, group, access.into())?;
            }
        }
        Ok(json!({}))
    }

    fn status(&self) -> Value {
        use std::sync::atomic::Ordering::Relaxed;
        let subsystems = self.target().subsystems();
        let namespace = |it: &Arc<crate::controller::Namespace>| {
            let counters = &it.counters;
            json!({
                "id": it.nsid(), "uuid": Uuid::from(it.identity().uuid),
                "nguid": Nguid::from(it.identity().nguid),
                "bytes": it.bytes(), "block-size": 1 << it.shift(), "group": it.group(),
                "read-only": it.is_read_only(), "direct": it.store().is_direct(),
                "reads": counters.reads.load(Relaxed), "read-bytes": counters.read_bytes.load(Relaxed),
                "writes": counters.writes.load(Relaxed),
                "written-bytes": counters.written_bytes.load(Relaxed),
                "others": counters.others.load(Relaxed), "errors": counters.errors.load(Relaxed),
            })
        };
        let subsystems: Vec<Value> = subsystems
            .iter()
            .map(|it| {
                let namespaces: Vec<Value> = it.namespaces().iter().map(namespace).collect();
                json!({ "nqn": it.name(), "serial": it.serial(), "namespaces": namespaces })
            })
            .collect();
        let controllers = self.target().controllers().into_iter().map(|it| {
            json!({
                "id": it.id, "subsystem": it.subsystem, "host": it.host, "port": it.port,
                "queues": it.queues, "keep-alive-ms": it.keep_alive_ms,
            })
        });
        let controllers: Vec<Value> = controllers.collect();
        let ports: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        let connections = self.shared().connections();
        json!({
            "subsystems": subsystems, "controllers": controllers, "ports": ports, "connections": connections,
        })
    }
}
