//! A device of a program, attached to its host's port by shared memory.

use link::attachment::{self, LabEnds};
use link::lab::{CLASSES, Header, Hello, MESSAGE_BYTES, Welcome};
use link::memory::{self, Body, Broken, HEADERS_MAX, Reader, Record};
use link::unix;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Ranges of queue pair numbers of a device at most.
const RANGES_MAX: usize = 1024;
/// The longest payload of a packet: the largest path MTU.
pub(crate) const PAYLOAD_MAX: usize = 4096;
/// Rings with packets of a device: one for notifications, which is looked at first, and one for each class.
pub(crate) const RINGS: usize = 1 + CLASSES;
/// Messages that are taken at once.
const MESSAGES_MAX: usize = 64;

/// Records of a ring that were taken and are still in it, oldest first. Room goes back to the writer in the
/// order of the ring.
#[derive(Default, Debug)]
struct Kept {
    /// Where each one ends, and how many packets of the network have their payload there.
    records: VecDeque<(u64, u32)>,
    /// The number of the first one.
    first: u64,
}

/// A payload that is still in the ring of its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InRing {
    ring: u8,
    number: u64,
    pub(crate) body: Body,
}

/// An attached device.
#[derive(Debug)]
pub(crate) struct Device {
    socket: OwnedFd,
    /// First numbers and counts of queue pairs.
    ranges: Vec<(u32, u32)>,
    rings: LabEnds,
    /// For each ring, the records whose payload the network has not copied yet.
    kept: [Kept; RINGS],
    /// By ring: the class of its next record, where that class could not leave.
    blocked: [Option<u8>; RINGS],
    /// Tokens of packets that have arrived while the device had no room.
    pub(crate) waiting: VecDeque<u32>,
    /// Its program has ended. What it had sent is still in its rings, and leaves.
    pub(crate) leaves: bool,
}

impl Device {
    /// Answers the first message on a connection; `welcome` limits how the device fills its rings.
    ///
    /// # Errors
    /// When it is not a device of this version and user, or there is no memory.
    pub(crate) fn welcome(socket: OwnedFd, welcome: &Welcome) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        let mut bytes = [0; MESSAGE_BYTES];
        let length = unix::receive_now(fd, &mut bytes)?;
        let hello = Hello::parse(&bytes).filter(|_| length == MESSAGE_BYTES);
        let hello = hello.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if unix::peer_user(fd)? != os::user() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let (rings, memories) = attachment::create()?;
        unix::send_fds(
            fd,
            &welcome.to_bytes(),
            &memories.each_ref().map(AsRawFd::as_raw_fd),
        )?;
        let ranges = vec![(hello.first, hello.count)];
        let (kept, blocked) = (Default::default(), [None; RINGS]);
        Ok(Self {
            socket,
            ranges,
            rings,
            kept,
            blocked,
            waiting: VecDeque::new(),
            leaves: false,
        })
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Reads the messages of the device on its socket; false when the device is gone.
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
        !self.leaves
            && self
                .ranges
                .iter()
                .any(|(first, count)| qpn.wrapping_sub(*first) < *count)
    }

    /// Whether a packet waits to be sent.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        self.all_rings().any(Reader::has_record)
    }

    fn all_rings(&self) -> impl Iterator<Item = &Reader> {
        [&self.rings.notifications]
            .into_iter()
            .chain(&self.rings.classes)
    }

    /// One of [`RINGS`].
    fn ring(&mut self, ring: usize) -> &mut Reader {
        match ring.checked_sub(1) {
            Some(class) => &mut self.rings.classes[class % CLASSES],
            None => &mut self.rings.notifications,
        }
    }

    /// The oldest record of a ring.
    #[inline]
    pub(crate) fn next(&mut self, ring: usize) -> Result<Option<Record>, Broken> {
        match self.ring(ring).next()? {
            Some(record) if record.length as usize > PAYLOAD_MAX => Err(Broken),
            next => Ok(next),
        }
    }

    /// Whether the next record of a ring is known to have a class that is none of these.
    #[inline]
    pub(crate) fn is_blocked(&self, ring: usize, classes: u8) -> bool {
        self.blocked[ring].is_some_and(|class| classes >> class & 1 == 0)
    }

    /// Notes that the next record of a ring waits because of its class.
    pub(crate) fn block(&mut self, ring: usize, class: u8) {
        self.blocked[ring] = Some(class);
    }

    /// Forgets the classes of records, which have to be read again: other classes are theirs now.
    pub(crate) fn unblock(&mut self) {
        self.blocked = [None; RINGS];
    }

    /// Takes a record from a ring. The payload stays in the ring until [`Self::finish`] is called.
    #[inline]
    pub(crate) fn keep(&mut self, ring: usize, record: &Record) -> InRing {
        self.ring(ring).pass(record);
        self.blocked[ring] = None;
        let body = record.body();
        let kept = &mut self.kept[ring];
        kept.records.push_back((body.end, 1));
        InRing {
            ring: ring as u8,
            number: kept.first + kept.records.len() as u64 - 1,
            body,
        }
    }

    /// One more packet has its payload in this record.
    pub(crate) fn share(&mut self, place: &InRing) {
        let kept = &mut self.kept[usize::from(place.ring)];
        if let Some((_, users)) = kept
            .records
            .get_mut(place.number.wrapping_sub(kept.first) as usize)
        {
            *users += 1;
        }
    }

    /// A packet has its payload in this record no more. The room of records that have no packet, up to the
    /// first one that has, goes back to the device.
    #[inline]
    pub(crate) fn finish(&mut self, place: &InRing) {
        let ring = usize::from(place.ring);
        let kept = &mut self.kept[ring];
        if let Some((_, users)) = kept
            .records
            .get_mut(place.number.wrapping_sub(kept.first) as usize)
        {
            *users -= 1;
        }
        let mut end = None;
        while let Some((free, 0)) = kept.records.front() {
            end = Some(*free);
            kept.records.pop_front();
            kept.first += 1;
        }
        if let Some(end) = end {
            self.ring(ring).give_back(end);
        }
    }

    /// Writes a packet into the ring to the device; `fill` writes the payload. False when the ring is full.
    pub(crate) fn write_packet(
        &mut self,
        header: &Header,
        transport: &[u8],
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            let end = Header::BYTES + transport.len();
            place[..Header::BYTES].copy_from_slice(&header.to_bytes());
            place
                .get_mut(Header::BYTES..end)?
                .copy_from_slice(transport);
            Some(end)
        };
        let fill = |place: &mut [u8]| {
            fill(place);
            Ok::<(), ()>(())
        };
        let ring = &mut self.rings.to_device;
        let has_room = ring.has_room() || ring.wait_for_room(memory::Sleeper::Thread);
        has_room && ring.write(0, length, headers, fill).is_some()
    }

    /// Wakes the device if it sleeps and has something to do.
    pub(crate) fn flush(&mut self) {
        let mut has_news = self.rings.to_device.must_wake().is_some();
        for ring in self
            .rings
            .classes
            .iter_mut()
            .chain([&mut self.rings.notifications])
        {
            has_news |= ring.must_wake().is_some();
        }
        if has_news {
            let _ = unix::send_now(self.raw(), &[link::lab::WAKE]);
        }
    }

    /// Sends the device a message about its port.
    pub(crate) fn tell(&self, message: &[u8]) {
        // A program that has not read so many of them gets the state with the next one.
        let _ = unix::send_now(self.raw(), message);
    }

    /// Has the device wake the lab for its next packet. True when there is one already.
    pub(crate) fn sleep(&self) -> bool {
        self.all_rings()
            .filter(|ring| ring.sleep(memory::Sleeper::Thread))
            .count()
            > 0
    }

    /// Has the device send no wake-ups.
    pub(crate) fn wake(&self) {
        self.all_rings().for_each(Reader::wake);
    }
}
