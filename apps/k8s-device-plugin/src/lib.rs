//! A Kubernetes device plugin for the kubelet's interface `v1beta1`: gRPC over Unix sockets in one folder.
//!
//! The plugin listens at its own socket and registers at the kubelet's. The kubelet then calls the plugin:
//! once for the list of devices, which stays open for changes, and for each container that requests some of
//! them. A kubelet that starts again has no registrations, and creates its socket anew, by which the plugin
//! detects it.
//!
//! Reading order: [`message`], [`service`], [`registration`].
#![forbid(unsafe_code)]

mod message;
mod registration;
mod service;

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use service::PluginService;

/// The folder of the sockets on every node.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// The kubelet's socket in it.
const KUBELET: &str = "kubelet.sock";
/// Interval at which sockets and health are checked.
const INTERVAL: Duration = Duration::from_millis(500);
/// The most devices: the list is one message, which gRPC limits to 4 MiB.
pub const DEVICES_MAX: u32 = 10_000;

/// A file or folder of the node that a container gets, read-only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Its path on the node.
    pub host: String,
    /// Its path in the container.
    pub container: String,
}

/// The contents of a container's allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Files and variables.
    Edits {
        /// Files and folders.
        mounts: Vec<Mount>,
        /// Variables and their values.
        environment: Vec<(String, String)>,
    },
    /// The full name of a device of the Container Device Interface, which the runtime looks up.
    Cdi(String),
}

/// A resource that this node offers.
pub struct Plugin {
    /// Its name, `DOMAIN/NAME`.
    pub resource: String,
    /// How many containers of the node may have it at a time.
    pub count: u32,
    /// The allocation of each container.
    pub allocation: Allocation,
    /// Folder of the sockets, [`FOLDER`] on a node.
    pub folder: PathBuf,
    /// Whether the resource can be used now.
    pub is_healthy: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A change of state, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The plugin is registered.
    Registered {
        /// The name of the resource.
        resource: String,
        /// The plugin's socket.
        socket: PathBuf,
    },
    /// The kubelet could not be reached, or refused; the plugin tries again.
    NotRegistered(String),
    /// The kubelet or another process removed or replaced a socket: the plugin registers again.
    SocketsChanged,
    /// Whether the resource can be used has changed.
    Health(bool),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { resource, socket } => {
                write!(f, "registered {resource} at {}", socket.display())
            }
            Self::NotRegistered(reason) => write!(f, "not registered: {reason}"),
            Self::SocketsChanged => write!(f, "the sockets changed: registering again"),
            Self::Health(true) => write!(f, "devices are healthy again"),
            Self::Health(false) => write!(f, "devices are unhealthy: the libraries are gone"),
        }
    }
}

/// Why a plugin does not run.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// Not a valid name of a resource.
    #[error("{0:?} is no name of a resource: write DOMAIN/NAME, such as rdma/hca_shared_devices_a")]
    Resource(String),
    /// None, or more than a message can list.
    #[error("the number of devices has to be from 1 to {DEVICES_MAX}")]
    Count,
    /// The plugin cannot listen.
    #[error("{path}: {source}")]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
    /// The runtime or the server failed.
    #[error("the server ended: {0}")]
    Server(String),
}

impl Plugin {
    /// Checks that the kubelet accepts name and number.
    fn check(&self) -> Result<(), PluginError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // Kubernetes' qualified names begin and end with a letter or digit.
        let ends = |part: &str| {
            let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            is_word(part.as_bytes().first()) && is_word(part.as_bytes().last())
        };
        let is_name = |part: &str| part.len() <= 63 && part.bytes().all(is_plain) && ends(part);
        match self.resource.split_once('/') {
            Some((domain, name)) if is_name(domain) && is_name(name) => {}
            _ => return Err(PluginError::Resource(self.resource.clone())),
        }
        if (1..=DEVICES_MAX).contains(&self.count) {
            Ok(())
        } else {
            Err(PluginError::Count)
        }
    }

    /// The name of the plugin's socket: each resource has one.
    fn endpoint(&self) -> String {
        format!("rockery-{}.sock", self.resource.replace('/', "-"))
    }

    /// Identifiers of the devices.
    fn ids(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|number| format!("rockery-{number}"))
    }
}

/// The identity of the file at a path: device and inode number, and the time of change, because inode numbers
/// are reused.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let it = path.metadata().ok()?;
    Some((it.dev(), it.ino(), it.ctime(), it.ctime_nsec()))
}

/// Offers the resource until the process ends.
///
/// # Errors
/// An invalid name or number, or a socket that cannot be created. A missing kubelet is awaited.
pub fn serve(plugin: Plugin, notify: impl Fn(&Notice)) -> Result<(), PluginError> {
    plugin.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| PluginError::Server(error.to_string()))?;
    let plugin = Arc::new(plugin);
    runtime.block_on(async {
        loop {
            once(&plugin, &notify).await?;
            notify(&Notice::SocketsChanged);
        }
    })
}

/// Listens and registers, until a socket is replaced.
async fn once(plugin: &Arc<Plugin>, notify: &impl Fn(&Notice)) -> Result<(), PluginError> {
    let socket = plugin.folder.join(plugin.endpoint());
    let cannot = |source| PluginError::Socket {
        path: socket.clone(),
        source,
    };
    // A socket of an earlier process, which no process listens on.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&socket).map_err(cannot)?;
    let own = identity(&socket);
    let (health, seen) = watch::channel((plugin.is_healthy)());
    let service = PluginService::new(plugin.clone(), seen.clone());
    let mut ended = seen;
    // The sender is dropped when a socket was replaced.
    let end = async move { while ended.changed().await.is_ok() {} };
    let incoming = UnixListenerStream::new(listener);
    let server =
        tokio::spawn(Server::builder().serve_with_incoming_shutdown(service, incoming, end));
    attend(plugin, &socket, own, &health, notify).await;
    drop(health);
    let ended = server
        .await
        .map_err(|error| PluginError::Server(error.to_string()))?;
    ended.map_err(|error| PluginError::Server(error.to_string()))
}

/// Registers, and checks sockets and health until a socket is replaced.
async fn attend(
    plugin: &Plugin,
    socket: &Path,
    own: Option<(u64, u64, i64, i64)>,
    health: &watch::Sender<bool>,
    notify: &impl Fn(&Notice),
) {
    let kubelet = plugin.folder.join(KUBELET);
    let (mut known, mut last) = (None, None);
    while identity(socket) == own {
        let found = identity(&kubelet);
        if known.is_some() && found != known {
            return;
        }
        if known.is_none() {
            let notice = match registration::register(plugin, &kubelet).await {
                Ok(()) => {
                    known = found;
                    Notice::Registered {
                        resource: plugin.resource.clone(),
                        socket: socket.to_owned(),
                    }
                }
                Err(reason) => Notice::NotRegistered(reason),
            };
            // The same reason is reported once, not each half second.
            if last.as_ref() != Some(&notice) {
                notify(&notice);
                last = Some(notice);
            }
        }
        let is_healthy = (plugin.is_healthy)();
        if health.send_if_modified(|known| std::mem::replace(known, is_healthy) != is_healthy) {
            notify(&Notice::Health(is_healthy));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(resource: &str, count: u32) -> Plugin {
        Plugin {
            resource: resource.to_owned(),
            count,
            allocation: Allocation::Cdi("rockery.dev/rdma=all".to_owned()),
            folder: PathBuf::from(FOLDER),
            is_healthy: Box::new(|| true),
        }
    }

    #[test]
    fn names_and_numbers_are_checked_before_the_kubelet_refuses_them() {
        assert!(plugin("rdma/hca_shared_devices_a", 100).check().is_ok());
        for name in ["rdma", "rdma/", "/a", "rdma/a/b", "rdma/a b", "../a"] {
            assert!(
                matches!(plugin(name, 1).check(), Err(PluginError::Resource(_))),
                "{name}"
            );
        }
        for count in [0, DEVICES_MAX + 1] {
            assert!(matches!(
                plugin("rdma/a", count).check(),
                Err(PluginError::Count)
            ));
        }
    }

    #[test]
    fn each_resource_has_a_socket_and_each_device_a_name() {
        let plugin = plugin("rdma/a", 2);
        assert_eq!(plugin.endpoint(), "rockery-rdma-a.sock");
        assert_eq!(plugin.ids().collect::<Vec<_>>(), ["rockery-0", "rockery-1"]);
    }
}
