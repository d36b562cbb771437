//! The agent itself: one loop over its connections.
//!
//! It may run in a process that was forked off a program with many threads, so it allocates nothing: its
//! tables have a fixed size and stand on the stack.

use super::{REPLY_BYTES, Reply, SLOTS, VERSION};
use crate::sys::{process, unix};
use link::udp::Socket;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// How long it stays when nobody uses it, in milliseconds: long enough for the next program of a script,
/// short enough not to hold a network namespace.
const IDLE_MS: i32 = 500;
/// Datagrams of a former owner that are thrown away before a socket gets a new one: more than fit its buffer.
const STALE_MAX: usize = 1 << 16;

/// A range of queue pair numbers.
struct Slot {
    /// Made when first needed, never closed: the index in the group must not move.
    socket: Option<Socket>,
    /// The connection of whoever uses it.
    lease: Option<OwnedFd>,
}

/// Starts the agent behind a listening socket.
pub(super) fn start(listener: OwnedFd) -> io::Result<()> {
    process::spawn_daemon(listener, run)
}

fn run(listener: OwnedFd) {
    let mut slots: [Slot; SLOTS] = [const { Slot { socket: None, lease: None } }; SLOTS];
    let mut watched = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; SLOTS];
    watched[0].fd = listener.as_raw_fd();
    loop {
        let idle = slots.iter().all(|slot| slot.lease.is_none());
        let ready = unix::poll(&mut watched, if idle { IDLE_MS } else { -1 });
        if ready == 0 && idle {
            return;
        }
        for index in 1..SLOTS {
            // A client never sends anything: what can be read is its end.
            if watched[index].fd >= 0 && watched[index].revents != 0 {
                watched[index].fd = -1;
                slots[index].lease = None;
            }
        }
        if watched[0].revents != 0
            && let Ok(client) = unix::accept(listener.as_raw_fd())
            && let Some(index) = admit(&mut slots, client)
        {
            watched[index].fd = slots[index].lease.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        }
    }
}

/// Gives a client a slot, and returns which.
fn admit(slots: &mut [Slot; SLOTS], client: OwnedFd) -> Option<usize> {
    let peer = unix::peer_user(client.as_raw_fd()).ok()?;
    if peer != process::user() && peer != 0 {
        return None;
    }
    // The first slot is the agent's, the last has the multicast number in it.
    let free = (1..SLOTS - 1).find(|&index| slots[index].lease.is_none());
    let made = free.map(|index| make_sockets(slots, index));
    let errno = match &made {
        Some(Err(error)) => error.raw_os_error().unwrap_or(libc::EIO),
        _ => 0,
    };
    let index = free.filter(|_| errno == 0);
    let reply = Reply { version: VERSION, errno: errno as u32, slot: index.unwrap_or(0) as u32 };
    let bytes: [u8; REPLY_BYTES] = reply.to_bytes();
    let socket = index.and_then(|index| slots[index].socket.as_ref());
    unix::send(client.as_raw_fd(), &bytes, socket.map(Socket::raw)).ok()?;
    slots[index?].lease = Some(client);
    index
}

/// Makes the sockets up to a slot: their order in the group is their index.
fn make_sockets(slots: &mut [Slot; SLOTS], index: usize) -> io::Result<()> {
    if slots[0].socket.is_none() {
        Socket::check_port_is_free()?;
    }
    for slot in slots.iter_mut().take(index + 1).filter(|slot| slot.socket.is_none()) {
        slot.socket = Some(Socket::join_group()?);
    }
    let mut stale = [0; 16];
    if let Some(socket) = &slots[index].socket {
        for _ in 0..STALE_MAX {
            if !matches!(socket.receive(&mut stale), Ok(Some(_))) {
                break;
            }
        }
    }
    Ok(())
}
