//! A device of a program, attached to its host's port by shared memory.

use link::lab::{Header, Hello, MESSAGE_BYTES};
use link::memory::{self, Broken, HEADERS_MAX, Reader, Record, Writer};
use link::unix;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Ranges of queue pair numbers of a device at most.
const RANGES_MAX: usize = 1024;
/// The longest payload of a packet: the largest path MTU.
pub(crate) const PAYLOAD_MAX: usize = 4096;
/// Messages that are taken at once.
const MESSAGES_MAX: usize = 64;

/// An attached device.
#[derive(Debug)]
pub(crate) struct Device {
    socket: OwnedFd,
    /// First numbers and counts of queue pairs.
    ranges: Vec<(u32, u32)>,
    to_device: Writer,
    packets: Reader,
    notifications: Reader,
    /// Tokens of packets that have arrived while the device had no room.
    pub(crate) waiting: VecDeque<u32>,
    /// Its program has ended. What it had sent is still in its rings, and leaves.
    pub(crate) leaves: bool,
}

impl Device {
    /// Answers the first message on a connection.
    ///
    /// # Errors
    /// When it is not a device of this version and user, or there is no memory.
    pub(crate) fn welcome(socket: OwnedFd) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        let mut bytes = [0; MESSAGE_BYTES];
        let length = unix::receive_now(fd, &mut bytes)?;
        let hello = Hello::parse(&bytes).filter(|_| length == MESSAGE_BYTES);
        let hello = hello.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if unix::peer_user(fd)? != crate::sys::process::user().0 {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let (to_device, packets, first) = memory::create()?;
        let (_, notifications, second) = memory::create()?;
        unix::send_fds(fd, &hello.to_bytes(), &[first.as_raw_fd(), second.as_raw_fd()])?;
        let ranges = vec![(hello.first, hello.count)];
        Ok(Self {
            socket,
            ranges,
            to_device,
            packets,
            notifications,
            waiting: VecDeque::new(),
            leaves: false,
        })
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes what the device has said on its socket; false when the device is gone.
    pub(crate) fn attend(&mut self) -> bool {
        for _ in 0..MESSAGES_MAX {
            let mut bytes = [0; MESSAGE_BYTES];
            match unix::receive_now(self.raw(), &mut bytes) {
                Ok(0) => return false,
                Ok(MESSAGE_BYTES) => match Hello::parse(&bytes) {
                    Some(hello) if self.ranges.len() < RANGES_MAX => {
                        self.ranges.push((hello.first, hello.count));
                    }
                    _ => return false,
                },
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Whether the device has a queue pair of this number.
    pub(crate) fn has(&self, qpn: u32) -> bool {
        !self.leaves && self.ranges.iter().any(|(first, count)| qpn.wrapping_sub(*first) < *count)
    }

    /// Whether a packet waits to be sent.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        self.packets.has_record() || self.notifications.has_record()
    }

    /// The ring that is looked at first (0), for notifications, and the one for packets (1).
    fn ring(&mut self, ring: usize) -> &mut Reader {
        if ring == 0 { &mut self.notifications } else { &mut self.packets }
    }

    /// The oldest record of a ring.
    #[inline]
    pub(crate) fn next(&mut self, ring: usize) -> Result<Option<Record>, Broken> {
        match self.ring(ring).next()? {
            Some(record) if record.length as usize > PAYLOAD_MAX => Err(Broken),
            next => Ok(next),
        }
    }

    /// Gives the room of a record back to the device.
    #[inline]
    pub(crate) fn release(&mut self, ring: usize, record: &Record) {
        self.ring(ring).release(record);
    }

    /// Hands a packet to the device; false when it has no room for it.
    pub(crate) fn put(&mut self, header: &Header, transport: &[u8], payload: &[u8]) -> bool {
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            let end = Header::BYTES + transport.len();
            place[..Header::BYTES].copy_from_slice(&header.to_bytes());
            place.get_mut(Header::BYTES..end)?.copy_from_slice(transport);
            Some(end)
        };
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(payload);
            Ok::<(), ()>(())
        };
        let has_room = self.to_device.has_room() || self.to_device.wait_for_room(memory::Sleeper::Thread);
        has_room && self.to_device.write(0, payload.len(), headers, fill).is_some()
    }

    /// Wakes the device if it sleeps and has something to do.
    pub(crate) fn flush(&mut self) {
        let news = self.to_device.must_wake().is_some();
        if news | self.packets.must_wake().is_some() | self.notifications.must_wake().is_some() {
            let _ = unix::send_now(self.raw(), &[link::lab::WAKE]);
        }
    }

    /// Has the device wake the lab for its next packet. True when there is one already.
    pub(crate) fn sleep(&self) -> bool {
        let packets = self.packets.sleep(memory::Sleeper::Thread);
        self.notifications.sleep(memory::Sleeper::Thread) || packets
    }

    /// Has the device send no wake-ups.
    pub(crate) fn wake(&self) {
        self.packets.wake();
        self.notifications.wake();
    }
}
