//! Which descriptors are rsockets.

use super::socket::Socket;
use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How often connections that are to be kept alive are looked at.
const KEEPALIVE_TICK: Duration = Duration::from_secs(1);

fn table() -> &'static RwLock<HashMap<c_int, Arc<Socket>>> {
    static TABLE: OnceLock<RwLock<HashMap<c_int, Arc<Socket>>>> = OnceLock::new();
    TABLE.get_or_init(RwLock::default)
}

/// The socket of a descriptor, if it is one.
pub(super) fn find(fd: c_int) -> Option<Arc<Socket>> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
}

/// Makes a socket known by its descriptor.
pub(super) fn add(socket: Socket) -> c_int {
    let fd = socket.fd;
    table().write().unwrap_or_else(PoisonError::into_inner).insert(fd, Arc::new(socket));
    fd
}

/// Forgets it. It goes with the last call that is still using it.
pub(super) fn remove(fd: c_int) -> Option<Arc<Socket>> {
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
                let sockets: Vec<Arc<Socket>> = table.values().cloned().collect();
                drop(table);
                sockets.iter().for_each(|socket| socket.lock().keep_alive());
            }
        };
        std::thread::Builder::new().name("rsocket".to_owned()).spawn(look).is_ok()
    });
}
