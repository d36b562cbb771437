//! Which descriptors are rsockets.

use super::datagram::Datagrams;
use super::socket::Socket;
use super::wait::{Shared, Watch};
use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How often connections that are to be kept alive are looked at.
const KEEPALIVE_TICK: Duration = Duration::from_secs(1);

/// What a descriptor stands for.
#[derive(Clone)]
pub(super) enum Found {
    Stream(Arc<Socket>),
    Datagram(Arc<Shared<Datagrams>>),
}

impl Found {
    fn fd(&self) -> c_int {
        match self {
            Self::Stream(socket) => socket.fd,
            Self::Datagram(socket) => socket.fd,
        }
    }

    /// For `poll`.
    pub(super) fn watch(&self) -> &dyn Watch {
        match self {
            Self::Stream(socket) => &**socket,
            Self::Datagram(socket) => &**socket,
        }
    }
}

fn table() -> &'static RwLock<HashMap<c_int, Found>> {
    static TABLE: OnceLock<RwLock<HashMap<c_int, Found>>> = OnceLock::new();
    TABLE.get_or_init(RwLock::default)
}

/// What a descriptor stands for, if it is a socket.
pub(super) fn find(fd: c_int) -> Option<Found> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
}

/// Makes a socket known by its descriptor.
pub(super) fn add(found: Found) -> c_int {
    let fd = found.fd();
    table().write().unwrap_or_else(PoisonError::into_inner).insert(fd, found);
    fd
}

/// Forgets it. It goes with the last call that is still using it.
pub(super) fn remove(fd: c_int) -> Option<Found> {
    table().write().unwrap_or_else(PoisonError::into_inner).remove(&fd)
}

/// Has a thread look after connections that are to be kept alive; once in a process.
pub(super) fn keep_alive() {
    static THREAD: OnceLock<bool> = OnceLock::new();
    THREAD.get_or_init(|| {
        let look = || {
            loop {
                std::thread::sleep(KEEPALIVE_TICK);
                let table = table().read().unwrap_or_else(PoisonError::into_inner);
                let sockets: Vec<Found> = table.values().cloned().collect();
                drop(table);
                for found in sockets {
                    if let Found::Stream(socket) = found {
                        socket.lock().keep_alive();
                    }
                }
            }
        };
        std::thread::Builder::new().name("rsocket".to_owned()).spawn(look).is_ok()
    });
}
