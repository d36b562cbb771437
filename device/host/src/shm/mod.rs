//! Shared-memory channels: devices of one host exchange packets without a network.
//!
//! A channel connects two open devices by memory that both processes map (`link::memory`). It carries the
//! headers and payload that the state machine makes, so the rules of RoCEv2 are implemented once. A record on
//! a channel may represent many packets, nothing is lost or damaged, and no system call is made while both
//! processes are awake. A queue pair gets its channel when it gets its peer's address, and keeps it. The Unix
//! socket over which the memory was passed wakes a process that sleeps; end of file on it means that the peer
//! process has ended.

mod direct;
mod fetch;
mod flags;
mod forwarded;
mod handshake;
mod messages;
mod rings;
mod setup;
mod stream;

pub(crate) use stream::{MEASURED_FROM, Measured, Method};

use crate::interface;
use crate::log::HOST;
use crate::progress::clock;
use crate::progress::wake_up::WakeUp;
use crate::settings;
use crate::sys::Epoll;
use crate::sys::grant_table::GrantTable;
use crate::sys::owners::Owners;
use crate::sys::shared_files;
use link::memory::Sleeper;
use link::udp::QPN_BITS;
use link::unix;
use rnic::{DirectExecution, DirectPath, DirectWork, Gid, Instant, Nanos, Senders, SrqOwner};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use tracing::{debug, info, warn};
use wire::Qpn;

use messages::{drain, show_file};
use rings::{Beginning, Rings};

/// Time for which a device that did not answer, or does not exist, is not sent another request for a channel.
const REFUSED_FOR: Nanos = Nanos::from_millis(1000);
/// Connections of peers that may wait to be accepted, as `listen(2)` has it.
const BACKLOG: i32 = 128;

/// Number of a range of queue pair numbers, of this device or another one of the host: a queue pair number
/// without its lower [`QPN_BITS`] bits.
type QpnRange = u32;

/// The shared-memory channels of a device.
#[derive(Debug)]
pub(crate) struct ShmChannels {
    is_wanted: bool,
    epoll: Option<Arc<Epoll>>,
    listeners: Vec<(QpnRange, OwnedFd)>,
    /// Table of the process of each range of queue pair numbers.
    owners: Option<Owners>,
    /// Grants of this device. Without a table, peers send all requests through the rings.
    grants: Option<GrantTable>,
    /// Wakes a program of this process that waits for an event.
    wake_up: Option<Arc<WakeUp>>,
    /// Channel number `n` is at index `n - 1`.
    channels: Vec<Option<ShmChannel>>,
    open: usize,
    /// Number of the channel between a local range and a peer's.
    by_ranges: HashMap<(QpnRange, QpnRange), u16>,
    refused: HashMap<QpnRange, Instant>,
    /// All addresses of this host.
    addresses: Vec<Gid>,
    /// Local range and peer's range of a channel that a datagram could have used.
    wanted: Option<(QpnRange, QpnRange)>,
    /// Whether a peer has announced memory that can be mapped here.
    has_mappings: bool,
    /// The channel whose busy word [`Self::execute`] has set.
    busy: Option<u16>,
    /// Whether requests wait for the next round, because enough was executed in the last one.
    has_later: bool,
}

#[derive(Debug)]
struct ShmChannel {
    socket: OwnedFd,
    ours: QpnRange,
    theirs: QpnRange,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// We sent a [`Hello`]; the peer has not answered yet.
    Requested(Box<Rings>),
    /// We accepted the peer's connection; its [`Hello`] has not arrived yet.
    Accepted,
    Open(Box<Rings>),
}

/// Result of the search for a channel to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The number of the channel.
    Channel(u16),
    /// A request was sent to the peer, which has not answered yet.
    Pending,
    /// There is no channel and none was requested: packets reach the peer.
    None,
}

fn range_of(qpn: Qpn) -> QpnRange {
    qpn.value() >> QPN_BITS
}

fn senders(range: QpnRange) -> Senders {
    Senders {
        first: Qpn::new(range << QPN_BITS),
        count: 1 << QPN_BITS,
    }
}

fn name(range: QpnRange) -> String {
    format!("rockery-shm-{range}")
}

impl ShmChannels {
    /// A set without channels. It stays empty where `ROCKERY_SAME_HOST=0` is set.
    pub(crate) fn new() -> Self {
        Self {
            is_wanted: settings::same_host(),
            epoll: None,
            listeners: Vec::new(),
            owners: None,
            grants: None,
            wake_up: None,
            channels: Vec::new(),
            open: 0,
            by_ranges: HashMap::new(),
            refused: HashMap::new(),
            addresses: Vec::new(),
            wanted: None,
            has_mappings: false,
            busy: None,
            has_later: false,
        }
    }

    /// Publishes the device's grants from now on. `token` is a random number by which peers recognize this
    /// process's memory.
    pub(crate) fn create_grant_table(&mut self, rnic: &mut rnic::Device, token: u64) {
        let refused =
            |error| warn!(target: HOST, "no grant table: peers copy through rings only: {error}");
        self.grants = if self.is_wanted {
            GrantTable::new(token).map_err(refused).ok()
        } else {
            None
        };
        if self.grants.is_some() {
            rnic.grants().watch();
        }
    }

    /// Sets the table of owners: only peers to which the agent assigned the range of queue pair numbers that
    /// they claim are accepted.
    pub(crate) fn trust(&mut self, owners: Option<Owners>) {
        self.owners = owners;
    }

    /// Whether the process at the other end of a socket has this range of queue pair numbers.
    fn is_owner(&self, theirs: QpnRange, socket: RawFd) -> bool {
        let Some(owners) = &self.owners else {
            return true;
        };
        unix::peer_identity(socket).is_ok_and(|process| owners.has(theirs, process))
    }

    /// Listens for peers that request a channel to the range of local queue pairs that begins with `first`.
    /// Where that fails, peers use packets.
    pub(crate) fn listen(&mut self, first: Qpn, epoll: &Arc<Epoll>) {
        if self.wake_up.is_none() {
            let refused =
                |error| warn!(target: HOST, "no wake-up socket: sleeps end later: {error}");
            self.wake_up = WakeUp::new().map_err(refused).ok().map(Arc::new);
        }
        if !self.is_wanted {
            return;
        }
        self.epoll = Some(Arc::clone(epoll));
        self.addresses = interface::addresses();
        let listening = unix::listen(&name(range_of(first)), BACKLOG).and_then(|listener| {
            unix::set_nonblocking(listener.as_raw_fd())?;
            epoll.add(listener.as_raw_fd())?;
            Ok(listener)
        });
        match listening {
            Ok(listener) => self.listeners.push((range_of(first), listener)),
            Err(error) => {
                warn!(target: HOST, "peers on this host cannot ask for shared memory: {error}")
            }
        }
    }

    /// Updates the host's addresses, which may have changed.
    pub(crate) fn follow_addresses(&mut self) {
        if self.is_wanted {
            self.addresses = interface::addresses();
        }
    }

    /// Drops all channels in the child of a fork: they belong to the parent.
    pub(crate) fn sever(&mut self) {
        self.is_wanted = false;
        self.listeners.clear();
        self.grants = None;
        self.wake_up = None;
        self.channels.clear();
        self.by_ranges.clear();
        self.open = 0;
    }

    /// The channel from a local queue pair to one of a peer; requests one from the peer where there is none.
    pub(crate) fn find(&mut self, from: Qpn, to: Qpn, at: Gid, now: Instant) -> Found {
        if !self.is_here(at) {
            return Found::None;
        }
        let (ours, theirs) = (range_of(from), range_of(to));
        if let Some(channel) = self.by_ranges.get(&(ours, theirs)) {
            return Found::Channel(*channel);
        }
        if self.is_refused(theirs, now) {
            return Found::None;
        }
        if self.has_asked(ours, theirs) {
            return Found::Pending;
        }
        match self.ask(ours, theirs) {
            Ok(()) => Found::Pending,
            Err(error) => {
                debug!(target: HOST, ours, theirs, "no shared-memory channel: {error}");
                self.refuse(theirs, now);
                Found::None
            }
        }
    }

    /// The channel of a datagram, which does not wait for one: it is sent as a packet, the channel is
    /// requested, and later datagrams use it.
    pub(crate) fn look_up(&mut self, from: Qpn, to: Qpn, at: Gid) -> Found {
        if !self.is_here(at) {
            return Found::None;
        }
        let (ours, theirs) = (range_of(from), range_of(to));
        if let Some(channel) = self.by_ranges.get(&(ours, theirs)) {
            return Found::Channel(*channel);
        }
        self.wanted = Some((ours, theirs));
        Found::None
    }

    /// The channel to the device that has a shared receive queue; requests one where there is none. There is
    /// no time limit: the requester's retries end a message that waits too long.
    pub(crate) fn srq_owner(&mut self, front_end: Qpn, srq: Qpn) -> SrqOwner {
        let (ours, theirs) = (range_of(front_end), range_of(srq));
        if let Some(channel) = self.by_ranges.get(&(ours, theirs)) {
            return SrqOwner::Channel(*channel);
        }
        if !self.is_wanted {
            return SrqOwner::Unreachable;
        }
        if self.has_asked(ours, theirs) {
            return SrqOwner::Pending;
        }
        match self.ask(ours, theirs).map_err(|error| error.kind()) {
            // WouldBlock: the owner's backlog is full, because many devices connect at once.
            Ok(()) | Err(io::ErrorKind::WouldBlock) => SrqOwner::Pending,
            Err(io::ErrorKind::ConnectionRefused) => SrqOwner::Absent,
            Err(_) => SrqOwner::Unreachable,
        }
    }

    /// Whether an address is one of this host. Queue pair numbers do not identify a host: each numbers its
    /// own.
    fn is_here(&self, at: Gid) -> bool {
        self.is_wanted && self.addresses.contains(&at)
    }

    /// The reason why a queue pair whose peer has this address uses packets, for the log.
    pub(crate) fn why_packets(&self, at: Gid) -> &'static str {
        match (self.is_wanted, self.addresses.contains(&at)) {
            (false, _) => "packets: ROCKERY_SAME_HOST or ROCKERY_PCAP ask for them",
            (true, false) => "packets: the peer's address is not one of this host",
            (true, true) => "packets: the peer on this host does not accept shared memory",
        }
    }

    /// Records that a peer did not answer in time.
    pub(crate) fn give_up(&mut self, to: Qpn, now: Instant) {
        self.refuse(range_of(to), now);
    }

    fn refuse(&mut self, theirs: QpnRange, now: Instant) {
        self.refused.insert(theirs, now + REFUSED_FOR);
    }

    fn is_refused(&mut self, theirs: QpnRange, now: Instant) -> bool {
        match self.refused.get(&theirs) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.refused.remove(&theirs);
                false
            }
            None => false,
        }
    }

    fn has_asked(&self, ours: QpnRange, theirs: QpnRange) -> bool {
        let asked = |channel: &ShmChannel| {
            matches!(channel.stage, Stage::Requested(_))
                && (channel.ours, channel.theirs) == (ours, theirs)
        };
        self.channels.iter().flatten().any(asked)
    }

    /// The wake-up socket of a program of this process that waits for an event.
    pub(crate) fn wake_up(&self) -> Option<&Arc<WakeUp>> {
        self.wake_up.as_ref()
    }

    /// Handles a descriptor that is ready, if it is a listener's or a channel's. Returns whether a channel
    /// was opened or closed.
    pub(crate) fn attend(&mut self, ready: RawFd, rnic: &mut rnic::Device, now: Instant) -> bool {
        if let Some(&(ours, ref listener)) = self
            .listeners
            .iter()
            .find(|(_, fd)| fd.as_raw_fd() == ready)
        {
            let listener = listener.as_raw_fd();
            self.accept(ours, listener);
            return false;
        }
        let is_it = |channel: &Option<ShmChannel>| {
            channel
                .as_ref()
                .is_some_and(|channel| channel.socket.as_raw_fd() == ready)
        };
        let Some(index) = self.channels.iter().position(is_it) else {
            return false;
        };
        let Some(channel) = &self.channels[index] else {
            return false;
        };
        match &channel.stage {
            Stage::Accepted => self.answer_hello(index),
            Stage::Requested(_) => self.take_answer(index, now),
            Stage::Open(_) => return self.drain_messages(index, rnic, now),
        }
        true
    }

    /// Handles the messages of a peer that woke this process, or closes the channel of one that has ended,
    /// after the records that it wrote before.
    fn drain_messages(&mut self, index: usize, rnic: &mut rnic::Device, now: Instant) -> bool {
        let Some(channel) = &mut self.channels[index] else {
            return false;
        };
        let Stage::Open(rings) = &mut channel.stage else {
            return false;
        };
        let gone = drain(channel.socket.as_raw_fd(), rings);
        self.has_mappings |= rings.has_shared_mappings();
        if gone {
            rings.receive_all(rnic, senders(channel.theirs), now);
            self.close(index, rnic);
        }
        gone
    }

    fn close(&mut self, index: usize, rnic: &mut rnic::Device) {
        info!(target: HOST, channel = index + 1, "shared-memory channel closed: the peer process has ended");
        self.remove(index);
        rnic.shm().close_channel(index as u16 + 1, clock::now());
    }

    fn remove(&mut self, index: usize) {
        let Some(channel) = self.channels[index].take() else {
            return;
        };
        if matches!(channel.stage, Stage::Open(_)) {
            self.open -= 1;
            self.by_ranges
                .retain(|_, number| usize::from(*number) != index + 1);
            // A second channel to the same peer, created when both sent a request at once, replaces it.
            let same = |other: &Option<ShmChannel>| {
                other.as_ref().is_some_and(|other| {
                    matches!(other.stage, Stage::Open(_))
                        && (other.ours, other.theirs) == (channel.ours, channel.theirs)
                })
            };
            if let Some(other) = self.channels.iter().position(same) {
                self.by_ranges
                    .insert((channel.ours, channel.theirs), other as u16 + 1);
            }
        }
    }

    /// Requests the channel that a datagram could have used.
    pub(crate) fn ask_wanted(&mut self, now: Instant) {
        let Some((ours, theirs)) = self.wanted.take() else {
            return;
        };
        if !self.is_refused(theirs, now)
            && !self.has_asked(ours, theirs)
            && self.ask(ours, theirs).is_err()
        {
            self.refuse(theirs, now);
        }
    }

    /// Updates the grant table. When this returns, no peer executes a request with a revoked grant.
    pub(crate) fn publish(&mut self, rnic: &mut rnic::Device) {
        let (mut taken_back, mut shows) = (false, false);
        while let Some(change) = rnic.grants().poll_change() {
            if let Some(grants) = &self.grants {
                let published = direct::publish_change(grants, rnic, change);
                taken_back |= published.taken_back;
                shows |= published.shows;
            }
        }
        if shows {
            self.show_files();
        }
        if taken_back {
            self.wait_while_busy(rnic);
        }
    }

    /// Waits until no peer executes a request on local memory. A channel whose busy word is invalid is
    /// closed.
    fn wait_while_busy(&mut self, rnic: &mut rnic::Device) {
        let broken: Vec<usize> = { self.open_channels() }
            .filter_map(|(index, socket, _, rings)| {
                rings.wait_while_busy(socket).err().map(|_| index)
            })
            .collect();
        broken.into_iter().for_each(|index| self.close(index, rnic));
    }

    /// Sends peers the descriptors of shared files that they do not have yet. Where the socket's buffer is
    /// full, the rest is sent at the next call, and requests are executed by other copy methods until then.
    fn show_files(&mut self) {
        let files = shared_files::files();
        for (_, socket, _, rings) in self.open_channels() {
            for (number, file) in files.iter().enumerate().skip(rings.files_shown) {
                if show_file(socket, number as u8, *file).is_err() {
                    break;
                }
                rings.files_shown = number + 1;
            }
        }
    }

    /// Whether no channel is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open == 0
    }

    fn open_channels(&mut self) -> impl Iterator<Item = (usize, RawFd, QpnRange, &mut Rings)> {
        self.channels
            .iter_mut()
            .enumerate()
            .filter_map(|(index, channel)| match channel {
                Some(ShmChannel {
                    stage: Stage::Open(rings),
                    socket,
                    theirs,
                    ..
                }) => Some((index, socket.as_raw_fd(), *theirs, &mut **rings)),
                _ => None,
            })
    }

    /// Whether the first records of a channel have arrived. Datagrams are sent as packets until there is a
    /// channel: those packets are in the local socket's buffer when the first record is in the ring, and have
    /// to be taken first.
    pub(crate) fn sees_beginning(&mut self) -> bool {
        let mut sees = false;
        for (_, _, _, rings) in self
            .open_channels()
            .filter(|(_, _, _, rings)| rings.begins())
        {
            (rings.beginning, sees) = (Beginning::Seen, true);
        }
        sees
    }

    /// Permits taking records, now that the packets in the socket's buffer were taken.
    pub(crate) fn begin(&mut self) {
        for (_, _, _, rings) in self.open_channels() {
            if rings.beginning == Beginning::Seen {
                rings.beginning = Beginning::Over;
            }
        }
    }

    /// Takes records of all channels until `is_enough` holds or there are no more. Returns how many were
    /// taken.
    pub(crate) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        now: Instant,
        is_enough: impl Fn(&rnic::Device) -> bool,
    ) -> usize {
        let (mut arrived, mut broken) = (0, None);
        for (index, _, theirs, rings) in self.open_channels() {
            if rings.beginning != Beginning::Over {
                continue;
            }
            match rings.receive(rnic, senders(theirs), now, &is_enough) {
                Ok(taken) => arrived += taken,
                Err(_) => broken = Some(index),
            }
        }
        if let Some(index) = broken {
            self.close(index, rnic);
        }
        arrived
    }

    /// Records that requests wait for the next round.
    pub(crate) fn note_later(&mut self) {
        self.has_later = true;
    }

    /// Whether requests wait for the next round.
    pub(crate) fn has_later(&self) -> bool {
        self.has_later
    }

    /// Begins a round. Whether requests have waited for it, so that their queue pairs have to be resumed.
    pub(crate) fn begin_round(&mut self) -> bool {
        std::mem::take(&mut self.has_later)
    }

    /// Ends a round: no more requests are executed on peers' memory, and peers are woken that sleep while
    /// records for them wait, or that wait for room in a ring.
    pub(crate) fn end_round(&mut self) {
        for (_, socket, _, rings) in self.open_channels() {
            rings.end_busy();
            for sleeper in rings.must_wake().into_iter().flatten() {
                let socket = match (sleeper, &rings.wake_up) {
                    (Sleeper::Program, Some(wake_up)) => wake_up.as_raw_fd(),
                    _ => socket,
                };
                // A full socket buffer contains other wake-ups.
                let _ = unix::send_now(socket, &[1]);
            }
        }
    }

    /// Whether a peer has announced memory that can be mapped here.
    #[inline]
    pub(crate) fn has_mappings(&self) -> bool {
        self.has_mappings
    }

    /// Ends a series of [`Self::execute`]: the peer may revoke its grants.
    #[inline]
    pub(crate) fn end_execution(&mut self) {
        if let Some(rings) = self.busy.take().and_then(|channel| self.rings(channel)) {
            rings.end_busy();
        }
    }

    /// Requests wake-ups of `sleeper` from peers from now on. True when records wait already, room for which
    /// a queue pair waits, or requests for the next round, so that it must not sleep.
    pub(crate) fn sleep(&mut self, sleeper: Sleeper) -> bool {
        let has_later = self.has_later;
        self.open_channels()
            .fold(has_later, |busy, (_, _, _, rings)| {
                busy | rings.sleep(sleeper)
            })
    }

    /// Cancels the request for wake-ups: this process reads the rings itself.
    pub(crate) fn wake(&mut self) {
        self.open_channels()
            .for_each(|(_, _, _, rings)| rings.wake());
    }

    /// The measurements of streams of long requests, with their channels.
    pub(crate) fn measured_streams(&mut self) -> impl Iterator<Item = (u16, Measured)> {
        let open = self.open_channels();
        open.flat_map(|(_, _, _, rings)| {
            let channel = rings.channel;
            rings.measured_streams().map(move |it| (channel, it))
        })
    }

    /// The rings of an open channel; `None` for 0, the network, and for a channel that is closed.
    pub(crate) fn rings(&mut self, channel: u16) -> Option<&mut Rings> {
        match &mut self
            .channels
            .get_mut(usize::from(channel).checked_sub(1)?)?
            .as_mut()?
            .stage
        {
            Stage::Open(rings) => Some(rings),
            _ => None,
        }
    }
}

/// Execution in the call that posts a request, see [`rnic::Device::execute_at_once`].
impl DirectExecution for ShmChannels {
    /// Executes a request on memory of the peer that is mapped here, if the peer grants it.
    /// [`Self::end_execution`] follows the last one of a call; one that is not executed ends the series
    /// itself.
    #[inline]
    fn execute(&mut self, at: &DirectPath<'_>, work: DirectWork<'_>) -> usize {
        let DirectWork::One(request) = work else {
            return 0;
        };
        if self.busy != Some(at.path.channel) {
            self.end_execution();
            self.busy = Some(at.path.channel);
        }
        let rings = self.rings(at.path.channel);
        let done = rings.is_some_and(|rings| rings.execute_at_once(at, &request));
        if !done {
            self.end_execution();
        }
        usize::from(done)
    }
}
