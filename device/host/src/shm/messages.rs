//! Messages on the socket of an open channel: wake-ups, and files of which the peer shares a mapping.

use super::rings::Rings;
use crate::sys::shared_files::{self, Source};
use crate::sys::shared_mappings::{self, FILE, Message, SEGMENT};
use link::unix;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Announces that the next message carries a descriptor. Other messages only wake the receiver.
const DESCRIPTOR_FOLLOWS: u8 = 2;
/// Limit of messages that are taken from one peer's socket before other sockets are read.
const MESSAGES_MAX: usize = 256;

pub(super) fn show_file(socket: RawFd, number: u8, file: Source) -> io::Result<()> {
    unix::send_now(socket, &[DESCRIPTOR_FOLLOWS])?;
    match file {
        Source::File(fd) => unix::send_fds(socket, &[FILE, number], &[fd]),
        Source::Segment(id) => {
            let [a, b, c, d] = id.to_le_bytes();
            let namespace = shared_files::segment_namespace()?;
            unix::send_fds(
                socket,
                &[SEGMENT, number, a, b, c, d],
                &[namespace.as_raw_fd()],
            )
        }
    }
}

/// Takes the messages of a peer. Returns whether the peer has ended.
pub(super) fn drain(socket: RawFd, rings: &mut Rings) -> bool {
    for _ in 0..MESSAGES_MAX {
        if rings.descriptor_follows {
            match shared_mappings::receive(socket) {
                Message::Shown(shown) => {
                    rings.descriptor_follows = false;
                    if let (Some((number, shown)), Some(peer_memory)) =
                        (shown, &mut rings.peer_memory)
                    {
                        peer_memory.add_mapping(number, shown);
                    }
                }
                Message::Awaited => return false,
                Message::End => return true,
            }
            continue;
        }
        let mut bytes = [0; 8];
        match unix::receive_now(socket, &mut bytes) {
            Ok(0) => return true,
            Ok(length) => rings.descriptor_follows = bytes[..length] == [DESCRIPTOR_FOLLOWS],
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    false
}
