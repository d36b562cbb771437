//! The sockets of the process, by descriptor.

use super::datagram::Datagrams;
use super::socket::Socket;
use super::wait::{Pollable, Shared};
use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How often idle connections are checked for keep-alive.
const KEEPALIVE_TICK: Duration = Duration::from_secs(1);

/// An rsocket: a stream or a datagram socket.
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

    /// The socket as [`super::poll`] sees it.
    pub(super) fn watch(&self) -> &dyn Pollable {
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

/// The socket of a descriptor, if it is one.
pub(super) fn find(fd: c_int) -> Option<Found> {
    table()
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&fd)
        .cloned()
}

/// Adds a socket to the table.
pub(super) fn add(found: Found) -> c_int {
    let fd = found.fd();
    table()
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(fd, found);
    fd
}

/// Removes a socket from the table; it is freed when the last call on it returns.
pub(super) fn remove(fd: c_int) -> Option<Found> {
    table()
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&fd)
}

/// Starts the keep-alive thread, once in a process.
pub(super) fn keep_alive() {
    static THREAD: OnceLock<bool> = OnceLock::new();
    THREAD.get_or_init(|| {
        let keep_alive_all = || {
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
        std::thread::Builder::new()
            .name("rsocket".to_owned())
            .spawn(keep_alive_all)
            .is_ok()
    });
}
