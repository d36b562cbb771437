//! Lanes: how devices of one host reach each other without packets on a network.
//!
//! A lane joins two open devices through memory that both processes have (`link::memory`). What travels on it
//! is what the state machine makes, headers and payload, so the rules of RoCEv2 are kept in one place; but a
//! packet on a lane may stand for many, nothing is lost or damaged, and no system call is made while both
//! sides are awake. A queue pair gets its lane when it learns who its peer is, and keeps it. The Unix socket
//! by which the memory came wakes a side that sleeps, and its end says that the other side is gone.

mod direct;
mod greeting;
mod traffic;
mod visits;

use crate::bell::Bell;
use crate::clock;
use crate::interface;
use crate::settings;
use crate::sys::book::OwnBook;
use crate::sys::epoll::Epoll;
use crate::sys::shares::{self, Source};
use crate::sys::{process, unix};
use direct::Reach;
use greeting::{Answer, Hello};
use link::memory::Sleeper;
use link::udp::QPN_BITS;
use rnic::{Gid, Instant, Nanos, Owner, Senders};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use wire::Qpn;

pub(crate) use traffic::Exit;
use traffic::{Beginning, Traffic};

/// Lanes of a device at most; further peers are reached by packets.
const LANES_MAX: usize = 256;
/// For how long nobody is asked again who did not answer, or is not there.
const REFUSED_FOR: Nanos = Nanos::from_millis(1000);
/// What a message begins with that brings the descriptor of a file; its number follows.
const FILE: u8 = 2;
/// The same for a System V segment: the file's number and the segment's, with the namespace that names it.
/// Other messages are bells.
const SEGMENT: u8 = 3;
/// Messages that are taken from one peer before others have their turn.
const MESSAGES_MAX: usize = 256;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A range of queue pair numbers, of a device here or elsewhere on the host.
type Slot = u32;

/// The lanes of a device.
#[derive(Debug)]
pub(crate) struct Lanes {
    is_wanted: bool,
    epoll: Option<Arc<Epoll>>,
    listeners: Vec<(Slot, OwnedFd)>,
    /// What we grant. Without one, peers ask for everything.
    book: Option<OwnBook>,
    /// Where a program of ours waits for an event, and is woken.
    bell: Option<Arc<Bell>>,
    /// Lane number `n` is at index `n - 1`.
    lanes: Vec<Option<Lane>>,
    open: usize,
    /// By our slot and theirs: the one to send by.
    by_slots: HashMap<(Slot, Slot), u16>,
    refused: HashMap<Slot, Instant>,
    /// All addresses of the host.
    addresses: Vec<Gid>,
    /// Asked for by datagrams: our slot and theirs.
    wanted: Option<(Slot, Slot)>,
}

#[derive(Debug)]
struct Lane {
    socket: OwnedFd,
    ours: Slot,
    theirs: Slot,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// We asked; the answer is still to come.
    Asked(Box<Traffic>),
    /// They are about to ask.
    Invited,
    Open(Box<Traffic>),
}

/// Whether there is a lane to somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Lane(u16),
    /// Somebody was asked, and may answer.
    Asked,
    /// There will be none.
    None,
}

fn slot(qpn: Qpn) -> Slot {
    qpn.value() >> QPN_BITS
}

fn senders(slot: Slot) -> Senders {
    Senders { first: Qpn::new(slot << QPN_BITS), count: 1 << QPN_BITS }
}

fn name(slot: Slot) -> String {
    format!("rockery-lane-{slot}")
}

impl Lanes {
    /// No lane yet. None will ever be there when the environment says so.
    pub(crate) fn new() -> Self {
        Self {
            is_wanted: settings::same_host(),
            epoll: None,
            listeners: Vec::new(),
            book: None,
            bell: None,
            lanes: Vec::new(),
            open: 0,
            by_slots: HashMap::new(),
            refused: HashMap::new(),
            addresses: Vec::new(),
            wanted: None,
        }
    }

    /// Keeps a book of what the device grants, from now on; `token` is nobody else's.
    pub(crate) fn keep_book(&mut self, rnic: &mut rnic::Device, token: u64) {
        self.book = if self.is_wanted { OwnBook::new(token).ok() } else { None };
        if self.book.is_some() {
            rnic.watch_grants();
        }
    }

    /// Lets others ask for lanes to our queue pairs from `first` on. Where that cannot be had they go on with
    /// packets.
    pub(crate) fn listen(&mut self, first: Qpn, epoll: &Arc<Epoll>) {
        if !self.is_wanted {
            return;
        }
        self.epoll = Some(Arc::clone(epoll));
        self.addresses = interface::addresses();
        if self.bell.is_none() {
            self.bell = Bell::new().ok().map(Arc::new);
        }
        let Ok(listener) = unix::listen(&name(slot(first)), BACKLOG) else { return };
        let ready =
            unix::set_nonblocking(listener.as_raw_fd()).and_then(|()| epoll.add(listener.as_raw_fd()));
        if ready.is_ok() {
            self.listeners.push((slot(first), listener));
        }
    }

    /// The host's addresses may have changed.
    pub(crate) fn follow_addresses(&mut self) {
        if self.is_wanted {
            self.addresses = interface::addresses();
        }
    }

    /// In the child of a fork.
    pub(crate) fn sever(&mut self) {
        self.is_wanted = false;
        self.listeners.clear();
        self.book = None;
        self.bell = None;
        self.lanes.clear();
        self.by_slots.clear();
        self.open = 0;
    }

    /// The lane from a queue pair of ours to one of theirs; asks for one where there is none.
    pub(crate) fn find(&mut self, from: Qpn, to: Qpn, at: Gid, now: Instant) -> Found {
        if !self.is_here(at) {
            return Found::None;
        }
        let (ours, theirs) = (slot(from), slot(to));
        if let Some(lane) = self.by_slots.get(&(ours, theirs)) {
            return Found::Lane(*lane);
        }
        if self.is_refused(theirs, now) {
            return Found::None;
        }
        if self.has_asked(ours, theirs) {
            return Found::Asked;
        }
        match self.ask(ours, theirs) {
            Ok(()) => Found::Asked,
            Err(_) => {
                self.refuse(theirs, now);
                Found::None
            }
        }
    }

    /// The same for a datagram, which does not wait: the lane is asked for, and those that follow use it.
    fn look_up(&mut self, from: Qpn, to: Qpn, at: Gid) -> Found {
        if !self.is_here(at) {
            return Found::None;
        }
        let (ours, theirs) = (slot(from), slot(to));
        if let Some(lane) = self.by_slots.get(&(ours, theirs)) {
            return Found::Lane(*lane);
        }
        self.wanted = Some((ours, theirs));
        Found::None
    }

    /// The lane to the device that has a shared receive queue; asks for one where there is none. However long
    /// that takes: who sent the message knows when to give up.
    fn owner(&mut self, holder: Qpn, srq: Qpn) -> Owner {
        let (ours, theirs) = (slot(holder), slot(srq));
        if let Some(lane) = self.by_slots.get(&(ours, theirs)) {
            return Owner::Lane(*lane);
        }
        if !self.is_wanted {
            return Owner::OutOfReach;
        }
        if self.has_asked(ours, theirs) {
            return Owner::Asked;
        }
        match self.ask(ours, theirs).map_err(|error| error.kind()) {
            // Many ask at once.
            Ok(()) | Err(io::ErrorKind::WouldBlock) => Owner::Asked,
            Err(io::ErrorKind::ConnectionRefused) => Owner::Nobody,
            Err(_) => Owner::OutOfReach,
        }
    }

    /// Whether a lane can lead there. Slots alone do not tell: each host counts its own from zero.
    fn is_here(&self, at: Gid) -> bool {
        self.is_wanted && self.addresses.contains(&at)
    }

    /// Notes that somebody did not answer.
    pub(crate) fn give_up(&mut self, to: Qpn, now: Instant) {
        self.refuse(slot(to), now);
    }

    fn refuse(&mut self, theirs: Slot, now: Instant) {
        self.refused.insert(theirs, now + REFUSED_FOR);
    }

    fn is_refused(&mut self, theirs: Slot, now: Instant) -> bool {
        match self.refused.get(&theirs) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.refused.remove(&theirs);
                false
            }
            None => false,
        }
    }

    fn has_asked(&self, ours: Slot, theirs: Slot) -> bool {
        let asked =
            |lane: &Lane| matches!(lane.stage, Stage::Asked(_)) && (lane.ours, lane.theirs) == (ours, theirs);
        self.lanes.iter().flatten().any(asked)
    }

    fn ask(&mut self, ours: Slot, theirs: Slot) -> io::Result<()> {
        let socket = unix::connect_now(&name(theirs))?;
        check_user(&socket)?;
        let (writer, reader, memory) = link::memory::create()?;
        let hello = Hello { from: ours, to: theirs, book: self.book_address() };
        let mut fds = vec![memory.as_raw_fd()];
        fds.extend(self.shown());
        unix::send_fds(socket.as_raw_fd(), &hello.to_bytes(), &fds)?;
        let stage = Stage::Asked(Box::new(Traffic::new(writer, reader)));
        self.insert(Lane { socket, ours, theirs, stage }).map(|_| ())
    }

    /// What the other side needs of us: the bell, and the book if there is one. Without a bell, neither.
    fn shown(&self) -> Vec<RawFd> {
        let Some(bell) = &self.bell else { return Vec::new() };
        [bell.button()].into_iter().chain(self.book.as_ref().map(|book| book.fd().as_raw_fd())).collect()
    }

    /// Where a program of ours waits.
    pub(crate) fn bell(&self) -> Option<&Arc<Bell>> {
        self.bell.as_ref()
    }

    fn book_address(&self) -> u64 {
        self.book.as_ref().map_or(0, OwnBook::address)
    }

    fn insert(&mut self, lane: Lane) -> io::Result<u16> {
        let free = self.lanes.iter().position(Option::is_none);
        let epoll = self.epoll.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let index = match free {
            Some(index) => index,
            None if self.lanes.len() < LANES_MAX => {
                self.lanes.push(None);
                self.lanes.len() - 1
            }
            None => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        epoll.add(lane.socket.as_raw_fd())?;
        self.lanes[index] = Some(lane);
        Ok(index as u16 + 1)
    }

    /// Sees to a descriptor that is ready, if it is one of ours. Says whether lanes came or went.
    pub(crate) fn attend(&mut self, ready: RawFd, rnic: &mut rnic::Device, now: Instant) -> bool {
        if let Some(&(ours, ref listener)) = self.listeners.iter().find(|(_, fd)| fd.as_raw_fd() == ready) {
            if let Ok(socket) = unix::accept(listener.as_raw_fd())
                && check_user(&socket).is_ok()
                && unix::set_nonblocking(socket.as_raw_fd()).is_ok()
            {
                // Where no more fit, the socket is dropped and they know.
                let _ = self.insert(Lane { socket, ours, theirs: 0, stage: Stage::Invited });
            }
            return false;
        }
        let is_it = |lane: &Option<Lane>| lane.as_ref().is_some_and(|lane| lane.socket.as_raw_fd() == ready);
        let Some(index) = self.lanes.iter().position(is_it) else { return false };
        let Some(lane) = &self.lanes[index] else { return false };
        match &lane.stage {
            Stage::Invited => self.welcome(index),
            Stage::Asked(_) => self.hear(index, now),
            Stage::Open(_) => return self.drain_bell(index, rnic, now),
        }
        true
    }

    /// They ask.
    fn welcome(&mut self, index: usize) {
        let Some(lane) = &self.lanes[index] else { return };
        let mut bytes = [0; Hello::BYTES];
        let received = unix::receive_fds(lane.socket.as_raw_fd(), &mut bytes);
        let (ours, socket) = (lane.ours, lane.socket.as_raw_fd());
        let Ok((Hello::BYTES, [Some(memory), bell, book])) = received else { return self.remove(index) };
        let Some(hello) = Hello::parse(bytes).filter(|hello| hello.to == ours) else {
            return self.remove(index);
        };
        // Both asked at once: the one with the lower number has its way.
        if ours < hello.from && self.has_asked(ours, hello.from) {
            let _ = unix::send_now(socket, &Answer::Crossed.to_bytes());
            return self.remove(index);
        }
        let Ok((writer, reader)) = link::memory::open(&memory) else { return self.remove(index) };
        let answer = Answer::Welcome(self.book_address());
        if unix::send_fds(socket, &answer.to_bytes(), &self.shown()).is_err() {
            return self.remove(index);
        }
        let mut traffic = Box::new(Traffic::new(writer, reader));
        traffic.reach = reach(socket, book.as_ref(), hello.book);
        traffic.bell = bell;
        self.open(index, hello.from, traffic);
    }

    /// They answer.
    fn hear(&mut self, index: usize, now: Instant) {
        let Some(lane) = &self.lanes[index] else { return };
        let (theirs, mut bytes) = (lane.theirs, [0; Answer::BYTES]);
        let socket = lane.socket.as_raw_fd();
        let (answer, bell, book) = match unix::receive_fds(socket, &mut bytes) {
            Ok((Answer::BYTES, [bell, book, _])) => (Answer::parse(bytes), bell, book),
            _ => (None, None, None),
        };
        let Some(Lane { stage, .. }) = &mut self.lanes[index] else { return };
        match (answer, std::mem::replace(stage, Stage::Invited)) {
            (Some(Answer::Welcome(address)), Stage::Asked(mut traffic)) => {
                traffic.reach = reach(socket, book.as_ref(), address);
                traffic.bell = bell;
                self.open(index, theirs, traffic);
            }
            // Theirs is on its way.
            (Some(Answer::Crossed), _) => self.remove(index),
            _ => {
                self.remove(index);
                self.refuse(theirs, now);
            }
        }
    }

    fn open(&mut self, index: usize, theirs: Slot, mut traffic: Box<Traffic>) {
        let Some(lane) = &mut self.lanes[index] else { return };
        lane.theirs = theirs;
        traffic.lane = index as u16 + 1;
        lane.stage = Stage::Open(traffic);
        self.open += 1;
        self.by_slots.entry((lane.ours, theirs)).or_insert(index as u16 + 1);
        self.show_files();
    }

    /// They woke us, or they are gone. What they sent before that still counts.
    fn drain_bell(&mut self, index: usize, rnic: &mut rnic::Device, now: Instant) -> bool {
        let Some(lane) = &mut self.lanes[index] else { return false };
        let mut bytes = [0; 8];
        let mut gone = false;
        for _ in 0..MESSAGES_MAX {
            match unix::receive(lane.socket.as_raw_fd(), &mut bytes) {
                Ok((0, _)) => gone = true,
                Ok((length, file)) => {
                    show(&mut lane.stage, &bytes[..length.min(bytes.len())], file);
                    continue;
                }
                Err(error) => gone = error.kind() != io::ErrorKind::WouldBlock,
            }
            break;
        }
        if gone {
            if let Stage::Open(traffic) = &mut lane.stage {
                traffic.receive_all(rnic, senders(lane.theirs), now);
            }
            self.close(index, rnic);
        }
        gone
    }

    fn close(&mut self, index: usize, rnic: &mut rnic::Device) {
        self.remove(index);
        rnic.close_lane(index as u16 + 1, clock::now());
    }

    fn remove(&mut self, index: usize) {
        let Some(lane) = self.lanes[index].take() else { return };
        if matches!(lane.stage, Stage::Open(_)) {
            self.open -= 1;
            self.by_slots.retain(|_, number| usize::from(*number) != index + 1);
            // Another one to the same place, made when both asked at once, takes its place.
            let same = |other: &Option<Lane>| {
                other.as_ref().is_some_and(|other| {
                    matches!(other.stage, Stage::Open(_))
                        && (other.ours, other.theirs) == (lane.ours, lane.theirs)
                })
            };
            if let Some(other) = self.lanes.iter().position(same) {
                self.by_slots.insert((lane.ours, lane.theirs), other as u16 + 1);
            }
        }
    }

    /// Asks for the lane that a datagram wanted.
    pub(crate) fn ask_wanted(&mut self, now: Instant) {
        let Some((ours, theirs)) = self.wanted.take() else { return };
        if !self.is_refused(theirs, now) && !self.has_asked(ours, theirs) && self.ask(ours, theirs).is_err() {
            self.refuse(theirs, now);
        }
    }

    /// Writes down what the device grants now. When this returns, no peer goes on with what it no longer may.
    pub(crate) fn publish(&mut self, rnic: &mut rnic::Device) {
        let (mut taken_back, mut shows) = (false, false);
        while let Some(change) = rnic.poll_change() {
            if let Some(book) = &self.book {
                let published = direct::publish(book, rnic, change);
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

    /// Waits until nobody is busy with our memory. A lane whose other side does not say ends.
    fn wait_while_busy(&mut self, rnic: &mut rnic::Device) {
        let broken: Vec<usize> = { self.open_lanes() }
            .filter_map(|(index, socket, _, traffic)| traffic.wait_while_busy(socket).err().map(|_| index))
            .collect();
        broken.into_iter().for_each(|index| self.close(index, rnic));
    }

    /// Shows peers the files that they have not seen. A message that does not fit leaves them to the usual
    /// ways, until the next one.
    fn show_files(&mut self) {
        let files = shares::files();
        for (_, socket, _, traffic) in self.open_lanes() {
            for (number, file) in files.iter().enumerate().skip(traffic.files_shown) {
                if show_file(socket, number as u8, *file).is_err() {
                    break;
                }
                traffic.files_shown = number + 1;
            }
        }
    }

    /// Whether there is no lane.
    pub(crate) fn is_empty(&self) -> bool {
        self.open == 0
    }

    fn open_lanes(&mut self) -> impl Iterator<Item = (usize, RawFd, Slot, &mut Traffic)> {
        self.lanes.iter_mut().enumerate().filter_map(|(index, lane)| match lane {
            Some(Lane { stage: Stage::Open(traffic), socket, theirs, .. }) => {
                Some((index, socket.as_raw_fd(), *theirs, &mut **traffic))
            }
            _ => None,
        })
    }

    /// Whether the first records of a lane wait. Datagrams go by packets until there is a lane: those packets
    /// are at our socket when the first record is in the lane, and are to be looked at before.
    pub(crate) fn sees_beginning(&mut self) -> bool {
        let mut sees = false;
        for (_, _, _, traffic) in self.open_lanes().filter(|(_, _, _, traffic)| traffic.begins()) {
            (traffic.beginning, sees) = (Beginning::Seen, true);
        }
        sees
    }

    /// The packets were looked at.
    pub(crate) fn begin(&mut self) {
        for (_, _, _, traffic) in self.open_lanes() {
            if traffic.beginning == Beginning::Seen {
                traffic.beginning = Beginning::Over;
            }
        }
    }

    /// Takes what arrived on all lanes, until it is enough or there is nothing more for now. Says how
    /// many records there were.
    pub(crate) fn receive(
        &mut self,
        rnic: &mut rnic::Device,
        now: Instant,
        is_enough: impl Fn(&rnic::Device) -> bool,
    ) -> usize {
        let (mut arrived, mut broken) = (0, None);
        for (index, _, theirs, traffic) in self.open_lanes() {
            if traffic.beginning != Beginning::Over {
                continue;
            }
            match traffic.receive(rnic, senders(theirs), now, &is_enough) {
                Ok(taken) => arrived += taken,
                Err(_) => broken = Some(index),
            }
        }
        if let Some(index) = broken {
            self.close(index, rnic);
        }
        arrived
    }

    /// Wakes those that sleep over what was sent to them, or that wait for room.
    pub(crate) fn ring_bells(&mut self) {
        for (_, socket, _, traffic) in self.open_lanes() {
            let (sleeper, room) = traffic.must_wake();
            // A bell that does not fit is one of many: they will wake.
            match (sleeper, &traffic.bell) {
                (Some(Sleeper::Program), Some(bell)) => drop(unix::send_now(bell.as_raw_fd(), &[1])),
                (Some(_), _) => drop(unix::send_now(socket, &[1])),
                (None, _) => {}
            }
            if room {
                let _ = unix::send_now(socket, &[1]);
            }
        }
    }

    /// We are about to sleep, and want to be woken. True when there is something to do already.
    pub(crate) fn sleep(&mut self, sleeper: Sleeper) -> bool {
        self.open_lanes().fold(false, |busy, (_, _, _, traffic)| busy | traffic.sleep(sleeper))
    }

    /// We look by ourselves.
    pub(crate) fn wake(&mut self) {
        self.open_lanes().for_each(|(_, _, _, traffic)| traffic.wake());
    }

    fn traffic(&mut self, lane: u16) -> Option<&mut Traffic> {
        match &mut self.lanes.get_mut(usize::from(lane).checked_sub(1)?)?.as_mut()?.stage {
            Stage::Open(traffic) => Some(traffic),
            _ => None,
        }
    }
}

fn show_file(socket: RawFd, number: u8, file: Source) -> io::Result<()> {
    match file {
        Source::File(fd) => unix::send_fds(socket, &[FILE, number], &[fd]),
        Source::Segment(id) => {
            let [a, b, c, d] = id.to_le_bytes();
            let namespace = shares::segment_namespace()?;
            unix::send_fds(socket, &[SEGMENT, number, a, b, c, d], &[namespace.as_raw_fd()])
        }
    }
}

/// Hears of a file, if that is what the message says.
fn show(stage: &mut Stage, message: &[u8], file: Option<OwnedFd>) {
    let Stage::Open(traffic) = stage else { return };
    match (message, file, &mut traffic.reach) {
        (&[FILE, number], Some(file), Some(reach)) => reach.show(number, file),
        (&[SEGMENT, number, a, b, c, d], Some(namespace), Some(reach)) => {
            reach.show_segment(number, i32::from_le_bytes([a, b, c, d]), &namespace);
        }
        _ => {}
    }
}

/// The memory of the process at the other end, if the kernel lets us and it has a book.
fn reach(socket: RawFd, book: Option<&OwnedFd>, address: u64) -> Option<Reach> {
    let process = unix::peer_process(socket).ok()?;
    Reach::open(process, book?, address).ok()
}

/// Only processes of our own user share memory with us; the kernel tells who it is.
fn check_user(socket: &OwnedFd) -> io::Result<()> {
    match unix::peer_user(socket.as_raw_fd())? {
        user if user == process::user() => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
