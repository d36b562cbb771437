//! Opening a channel: the requests of both sides, and what they pass to each other.

use super::direct::PeerMemory;
use super::handshake::{Answer, Hello};
use super::rings::Rings;
use super::{QpnRange, ShmChannel, ShmChannels, Stage, name};
use crate::log::HOST;
use crate::sys::grant_table::GrantTable;
use link::unix;
use rnic::Instant;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use tracing::{info, warn};

/// Limit of channels of a device. Further peers are reached with packets.
const CHANNELS_MAX: usize = 256;

impl ShmChannels {
    pub(super) fn ask(&mut self, ours: QpnRange, theirs: QpnRange) -> io::Result<()> {
        let socket = unix::connect_now(&name(theirs))?;
        check_user(&socket)?;
        if !self.is_owner(theirs, socket.as_raw_fd()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (writer, reader, memory) = link::memory::create()?;
        let hello = Hello {
            from: ours,
            to: theirs,
            grants: self.grants_address(),
        };
        let mut fds = vec![memory.as_raw_fd()];
        fds.extend(self.shared_descriptors());
        unix::send_fds(socket.as_raw_fd(), &hello.to_bytes(), &fds)?;
        let stage = Stage::Requested(Box::new(Rings::new(writer, reader)));
        self.insert(ShmChannel {
            socket,
            ours,
            theirs,
            stage,
        })
        .map(|_| ())
    }

    /// Descriptors for a peer: that of the local wake-up socket, and the grant table's if there is one.
    /// Without a wake-up socket, neither.
    fn shared_descriptors(&self) -> Vec<RawFd> {
        let Some(wake_up) = &self.wake_up else {
            return Vec::new();
        };
        [wake_up.sender()]
            .into_iter()
            .chain(self.grants.as_ref().map(|grants| grants.fd().as_raw_fd()))
            .collect()
    }

    fn grants_address(&self) -> u64 {
        self.grants.as_ref().map_or(0, GrantTable::address)
    }

    /// Accepts the connection of a peer that is going to send a [`Hello`] for a local range.
    pub(super) fn accept(&mut self, ours: QpnRange, listener: RawFd) {
        if let Ok(socket) = unix::accept(listener)
            && check_user(&socket).is_ok()
            && unix::set_nonblocking(socket.as_raw_fd()).is_ok()
        {
            // At the limit of channels the socket is closed, and the peer uses packets.
            let _ = self.insert(ShmChannel {
                socket,
                ours,
                theirs: 0,
                stage: Stage::Accepted,
            });
        }
    }

    fn insert(&mut self, channel: ShmChannel) -> io::Result<u16> {
        let free = self.channels.iter().position(Option::is_none);
        let epoll = self.epoll.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let index = match free {
            Some(index) => index,
            None if self.channels.len() < CHANNELS_MAX => {
                self.channels.push(None);
                self.channels.len() - 1
            }
            None => {
                warn!(target: HOST, limit = CHANNELS_MAX, "no free shared-memory channel: packets instead");
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
        };
        epoll.add(channel.socket.as_raw_fd())?;
        self.channels[index] = Some(channel);
        Ok(index as u16 + 1)
    }

    /// Answers a peer's [`Hello`].
    pub(super) fn answer_hello(&mut self, index: usize) {
        let Some(channel) = &self.channels[index] else {
            return;
        };
        let mut bytes = [0; Hello::BYTES];
        let received = unix::receive_fds(channel.socket.as_raw_fd(), &mut bytes);
        let (ours, socket) = (channel.ours, channel.socket.as_raw_fd());
        let Ok((Hello::BYTES, [Some(memory), wake_up, grants])) = received else {
            return self.remove(index);
        };
        let Some(hello) = Hello::parse(bytes).filter(|hello| hello.to == ours) else {
            return self.remove(index);
        };
        if !self.is_owner(hello.from, socket) {
            return self.remove(index);
        }
        // Both sent a request at once: that of the lower range number is used.
        if ours < hello.from && self.has_asked(ours, hello.from) {
            let _ = unix::send_now(socket, &Answer::Crossed.to_bytes());
            return self.remove(index);
        }
        let Ok((writer, reader)) = link::memory::open(&memory) else {
            return self.remove(index);
        };
        let answer = Answer::Welcome(self.grants_address());
        if unix::send_fds(socket, &answer.to_bytes(), &self.shared_descriptors()).is_err() {
            return self.remove(index);
        }
        let mut rings = Box::new(Rings::new(writer, reader));
        rings.peer_memory = peer_memory(socket, grants.as_ref(), hello.grants);
        rings.wake_up = wake_up;
        self.open(index, hello.from, rings);
    }

    /// Takes a peer's answer to our [`Hello`].
    pub(super) fn take_answer(&mut self, index: usize, now: Instant) {
        let Some(channel) = &self.channels[index] else {
            return;
        };
        let (theirs, mut bytes) = (channel.theirs, [0; Answer::BYTES]);
        let socket = channel.socket.as_raw_fd();
        let (answer, wake_up, grants) = match unix::receive_fds(socket, &mut bytes) {
            Ok((Answer::BYTES, [wake_up, grants, _])) => (Answer::parse(bytes), wake_up, grants),
            _ => (None, None, None),
        };
        let Some(ShmChannel { stage, .. }) = &mut self.channels[index] else {
            return;
        };
        match (answer, std::mem::replace(stage, Stage::Accepted)) {
            (Some(Answer::Welcome(address)), Stage::Requested(mut rings)) => {
                rings.peer_memory = peer_memory(socket, grants.as_ref(), address);
                rings.wake_up = wake_up;
                self.open(index, theirs, rings);
            }
            // The peer's own request opens the channel.
            (Some(Answer::Crossed), _) => self.remove(index),
            _ => {
                self.remove(index);
                self.refuse(theirs, now);
            }
        }
    }

    fn open(&mut self, index: usize, theirs: QpnRange, mut rings: Box<Rings>) {
        let Some(channel) = &mut self.channels[index] else {
            return;
        };
        channel.theirs = theirs;
        rings.channel = index as u16 + 1;
        let copies = rings
            .peer_memory
            .as_ref()
            .map_or("rings only", PeerMemory::copy_methods);
        info!(target: HOST, channel = rings.channel, ours = channel.ours, theirs,
            "shared-memory channel opened; WRITEs and READs: {copies}");
        rings.offer_fetches();
        channel.stage = Stage::Open(rings);
        self.open += 1;
        self.by_ranges
            .entry((channel.ours, theirs))
            .or_insert(index as u16 + 1);
        self.show_files();
    }
}

/// The memory of the process at the other end of a socket, if it shares its grant table.
fn peer_memory(socket: RawFd, grants: Option<&OwnedFd>, address: u64) -> Option<PeerMemory> {
    let process = unix::peer_process(socket).ok()?;
    PeerMemory::open(process, grants?, address).ok()
}

/// Refuses a peer of another user: the kernel reports the user of the process at the other end.
fn check_user(socket: &OwnedFd) -> io::Result<()> {
    match unix::peer_user(socket.as_raw_fd())? {
        user if user == os::user() => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
