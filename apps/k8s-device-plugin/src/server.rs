//! The plugin's server: its socket, and its registration at the kubelet, again after each change.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::plugin::{Plugin, Refused};
use crate::registration;
use crate::service::PluginService;

/// The kubelet's socket in the folder of the sockets.
const KUBELET: &str = "kubelet.sock";
/// Interval at which sockets and health are checked.
const INTERVAL: Duration = Duration::from_millis(500);

/// A change of state, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
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
pub(crate) enum PluginError {
    /// The kubelet would refuse the resource.
    #[error(transparent)]
    Refused(#[from] Refused),
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
pub(crate) fn serve(plugin: Plugin, notify: impl Fn(&Notice)) -> Result<(), PluginError> {
    plugin.check_resource()?;
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

/// Removes the socket of an earlier process. Any other file with its name stays.
fn remove_socket(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is no socket has this name and is left as it is: move it elsewhere",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Listens and registers, until a socket is replaced.
async fn once(plugin: &Arc<Plugin>, notify: &impl Fn(&Notice)) -> Result<(), PluginError> {
    let socket = plugin.folder.join(plugin.endpoint());
    let cannot = |source| PluginError::Socket {
        path: socket.clone(),
        source,
    };
    remove_socket(&socket).map_err(cannot)?;
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

    #[test]
    fn the_socket_of_an_earlier_process_is_removed_and_no_other_file() {
        let folder = std::env::temp_dir().join(format!("rockery-plugin-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("rockery.sock");
        remove_socket(&path).unwrap();
        std::fs::write(&path, "kept").unwrap();
        let error = remove_socket(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.join("elsewhere"), &path).unwrap();
        assert!(remove_socket(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        // A listener of the standard library leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        remove_socket(&path).unwrap();
        assert!(!path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }
}
