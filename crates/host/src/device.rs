//! An open device, shared by all threads of a program.

use crate::agent::protocol::DomainRequest;
use crate::agent::{self, Lease};
use crate::attend::Attendant;
use crate::channel::{AsyncEvents, CompletionChannel};
use crate::clock;
use crate::counters::LinkCounters;
use crate::error::{DomainError, OpenError};
use crate::interface::{DeviceInfo, list};
use crate::lane::Found;
use crate::presence::Presence;
use crate::progress;
use crate::pump::Pump;
use crate::settings;
use crate::sys::epoll::Epoll;
use crate::sys::eventfd::EventFd;
use crate::sys::{fork, process};
use crate::wait::{self, Waiting};
use rnic::{
    Arm, AttrMask, Completion, Config, Cq, Data, DomainName, Error, Gid, Instant, Nanos, Operation, QpAttr,
    QpInit, QpType, ReceiveRequest, SendRequest, Srq, State, Xrcd,
};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Qpn;

/// How long a queue pair waits for the lane to its peer before it goes on with packets: another process has
/// to get a core, on a busy machine.
const LANE_PATIENCE: Nanos = Nanos::from_millis(200);
/// How often it looks, should nobody tell it.
const LANE_LOOK: Duration = Duration::from_millis(5);
/// For how long a queue pair that is about to stop tries to say what it owes. A peer that reads nothing for
/// so long, on a machine however busy, does not run.
const FAREWELL: Nanos = Nanos::from_millis(200);

/// What the program's threads and the progress thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pump: Mutex<Pump>,
    pub(crate) events: AsyncEvents,
    pub(crate) epoll: Arc<Epoll>,
    /// Lanes came or went.
    lane_news: Condvar,
    pub(crate) wake: EventFd,
    pub(crate) stop: AtomicBool,
    pub(crate) presence: Presence,
    pub(crate) waiting: Waiting,
    sockets: Mutex<Sockets>,
}

/// What the progress thread wakes for.
#[derive(Debug)]
struct Sockets {
    descriptors: Vec<RawFd>,
    watched: bool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pump> {
        self.pump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Pump>> {
        match self.pump.try_lock() {
            Ok(pump) => Some(pump),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// One socket more to wake for.
    fn add_socket(&self, socket: RawFd) -> io::Result<()> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if sockets.watched {
            self.epoll.add(socket)?;
        }
        sockets.descriptors.push(socket);
        Ok(())
    }

    /// One socket fewer, before it is closed.
    fn remove_socket(&self, socket: RawFd) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.descriptors.retain(|known| *known != socket);
        if sockets.watched {
            // Closing it would do the same.
            let _ = self.epoll.remove(socket);
        }
    }

    /// Whether the progress thread wakes for packets. An error would mean that the descriptor is closed,
    /// which it is not while we live; the thread then looks every millisecond.
    pub(crate) fn watch_socket(&self, wanted: bool) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let change = if wanted { Epoll::add } else { Epoll::remove };
        sockets.watched = wanted;
        for socket in &sockets.descriptors {
            let changed = change(&self.epoll, *socket);
            debug_assert!(changed.is_ok(), "{changed:?}");
        }
    }

    fn wait_for_lanes<'a>(&self, pump: MutexGuard<'a, Pump>) -> MutexGuard<'a, Pump> {
        let waited = self.lane_news.wait_timeout(pump, LANE_LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sees to a descriptor that is ready, if it is a lane's.
    pub(crate) fn attend_lane(&self, ready: RawFd) {
        let mut pump = self.lock();
        let now = clock::now();
        let Pump { lanes, rnic, .. } = &mut *pump;
        if lanes.attend(ready, rnic, now) {
            pump.pump_events(&self.events);
            drop(pump);
            self.lane_news.notify_all();
        }
    }

    /// Passes events on, and wakes the progress thread when it would sleep over what has to be done.
    fn finish(&self, mut pump: MutexGuard<'_, Pump>, now: Instant) {
        pump.pump_events(&self.events);
        if pump.oversleeps(now) {
            pump.wakes_at = now;
            drop(pump);
            self.wake.add();
        }
    }
}

/// How an XRC domain is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenDomain {
    /// Device and inode of the file that names it; without, nobody else can open it.
    pub file: Option<(u64, u64)>,
    /// It is made if nobody has it open.
    pub make: bool,
    /// Nobody may have it open.
    pub anew: bool,
}

/// An open device. All calls may come from any thread; one lock orders them.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    /// Opens a device that [`list`] found: gets a socket on port 4791 and a range of queue pair numbers, and
    /// starts the thread that makes progress while the program is away. Everything ends when the last
    /// reference goes.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way and what to do.
    pub fn open(info: &DeviceInfo) -> Result<Arc<Self>, OpenError> {
        let gone = || OpenError::Gone(info.interface.clone());
        let info = list().into_iter().find(|device| device.name == info.name).ok_or_else(gone)?;
        let Lease { socket, first, count, connection, .. } = agent::lease()?;
        let buffer = socket.receive_buffer().map_err(OpenError::Socket)?;
        let mut config = Config { window_bytes: window_bytes(buffer), ..Config::default() };
        settings::apply(&mut config);
        let token = u64::from_ne_bytes(random().map_err(OpenError::Thread)?);
        let mut rnic = rnic::Device::new(config, random().map_err(OpenError::Thread)?);
        for (index, gid) in info.gids.iter().enumerate() {
            rnic.set_gid(index as u8, Some(*gid));
        }
        rnic.set_active_mtu(info.active_mtu);
        rnic.add_qpn_range(first, count);
        rnic.set_srq_numbers(first, count);
        let descriptor = socket.raw();
        let pump = Pump::new(rnic, socket, connection, info.ifindex).map_err(OpenError::Socket)?;
        let shared = Arc::new(share(pump, descriptor).map_err(OpenError::Thread)?);
        {
            let Pump { lanes, rnic, .. } = &mut *shared.lock();
            lanes.keep_book(rnic, token);
            lanes.listen(first, &shared.epoll);
        }
        fork::register(&shared);
        let attendant = Attendant::new(&shared.epoll, &info);
        let worker = Arc::clone(&shared);
        let thread = process::spawn_quiet("rockery", move || progress::run(&worker, &attendant));
        let thread = Some(thread.map_err(OpenError::Thread)?);
        Ok(Arc::new(Self { info, shared, thread }))
    }

    /// What it was opened as.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Runs control verbs on the device: anything that is not on the data path. What they make the device
    /// send and report goes out before this returns.
    pub fn with<T>(&self, verbs: impl FnOnce(&mut rnic::Device, Instant) -> T) -> T {
        let now = clock::now();
        let mut pump = self.shared.lock();
        // Acknowledgements that wait for company must not be lost with a queue pair that is destroyed.
        pump.transmit(now);
        let result = verbs(&mut pump.rnic, now);
        pump.note_away();
        pump.transmit(now);
        self.shared.finish(pump, now);
        result
    }

    /// Creates a queue pair, with a further range of numbers from the agent when ours are used up.
    ///
    /// # Errors
    /// As [`rnic::Device::create_qp`].
    pub fn create_qp(&self, init: &QpInit) -> Result<Qpn, Error> {
        if self.with(|rnic, _| rnic.free_qpns()) == 0 {
            self.grow();
        }
        self.with(|rnic, _| rnic.create_qp(init))
    }

    /// Destroys a queue pair, when it has said what it owes.
    ///
    /// # Errors
    /// As [`rnic::Device::destroy_qp`].
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), Error> {
        self.say_what_is_owed(qpn);
        self.with(|rnic, _| rnic.destroy_qp(qpn))
    }

    /// Waits until a queue pair has sent the acknowledgements that it owes: to a peer on this host it can
    /// only where the lane has room, and one full of our own messages has none until the peer has read some.
    fn say_what_is_owed(&self, qpn: Qpn) {
        let start = clock::now();
        loop {
            let mut pump = self.shared.lock();
            let now = clock::now();
            pump.progress(now, false);
            let owes = pump.rnic.owes_acknowledgement(qpn);
            self.shared.finish(pump, now);
            if !owes || now - start > FAREWELL {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Changes attributes of a queue pair. One that learns who its peer is, and that it is on this host, gets
    /// a lane to it; one that stops says first what it owes.
    ///
    /// # Errors
    /// As [`rnic::Device::modify_qp`].
    pub fn modify_qp(&self, qpn: Qpn, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        if mask.contains(AttrMask::STATE) && matches!(attr.state, State::Reset | State::Error) {
            self.say_what_is_owed(qpn);
        }
        self.with(|rnic, now| rnic.modify_qp(qpn, attr, mask, now))?;
        if mask.contains(AttrMask::AV) {
            self.take_lane(qpn);
        }
        Ok(())
    }

    /// Waits for the lane to a queue pair's peer, if there can be one: the progress threads of both sides
    /// make it.
    fn take_lane(&self, qpn: Qpn) {
        let (mut pump, start) = (self.shared.lock(), clock::now());
        let Ok((attr, init)) = pump.rnic.query_qp(qpn) else { return };
        if init.kind == QpType::Ud {
            return;
        }
        loop {
            let now = clock::now();
            match pump.lanes.find(qpn, attr.destination, attr.vector.destination, now) {
                Found::Lane(lane) => {
                    // The queue pair was there a moment ago; if it is gone, it needs none.
                    let _ = pump.rnic.set_lane(qpn, lane);
                    return;
                }
                Found::None => return,
                Found::Asked if now > start + LANE_PATIENCE => {
                    return pump.lanes.give_up(attr.destination, now);
                }
                Found::Asked => pump = self.shared.wait_for_lanes(pump),
            }
        }
    }

    /// Opens an XRC domain. One that a file names, by its device and inode, is shared with the other devices
    /// of this interface that open it: see [`OpenDomain`].
    ///
    /// # Errors
    /// [`DomainError`].
    pub fn open_domain(&self, open: OpenDomain) -> Result<Xrcd, DomainError> {
        let OpenDomain { file, make, anew } = open;
        let Some(file) = file else { return Ok(self.with(|rnic, _| rnic.alloc_xrcd(None))?) };
        let name = DomainName { file, interface: self.info.ifindex };
        self.shared.lock().ask_agent(DomainRequest::Open { name, make, anew })?;
        self.with(|rnic, _| rnic.alloc_xrcd(Some(name))).map_err(|error| {
            // An agent that is gone has forgotten it.
            let _ = self.shared.lock().ask_agent(DomainRequest::Close(name));
            error.into()
        })
    }

    /// Closes it.
    ///
    /// # Errors
    /// As [`rnic::Device::dealloc_xrcd`].
    pub fn close_domain(&self, domain: Xrcd) -> Result<(), Error> {
        let name = self.with(|rnic, now| {
            let name = rnic.domain_name(domain);
            rnic.dealloc_xrcd(domain, now).map(|()| name)
        })?;
        if let Some(name) = name {
            // As above.
            let _ = self.shared.lock().ask_agent(DomainRequest::Close(name));
        }
        Ok(())
    }

    /// Makes a UD queue pair receive what is sent to a multicast group.
    ///
    /// # Errors
    /// As [`rnic::Device::attach_multicast`]; the kernel's limit of groups counts as one of the device.
    pub fn attach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let socket = self.shared.lock().attach(qpn, group, self.info.ifindex)?;
        if let Some(socket) = socket
            && self.shared.add_socket(socket).is_err()
        {
            self.detach_multicast(qpn, group)?;
            return Err(Error::Exhausted("descriptors that are waited for"));
        }
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`rnic::Device::detach_multicast`].
    pub fn detach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let left = self.shared.lock().detach(qpn, group)?;
        left.iter().for_each(|socket| self.shared.remove_socket(socket.raw()));
        Ok(())
    }

    /// Asks for one range more. When there is none, or no descriptor for its socket, numbers stay scarce.
    fn grow(&self) {
        let Ok(Lease { socket, first, count, connection, .. }) = agent::lease() else { return };
        let mut pump = self.shared.lock();
        if !pump.is_severed() && self.shared.add_socket(socket.raw()).is_ok() {
            pump.add_share(socket, connection, first, count);
            pump.lanes.listen(first, &self.shared.epoll);
        }
    }

    /// Posts any number of work requests under one lock, and sends what is worth sending now.
    pub fn post<T>(&self, requests: impl FnOnce(&mut Poster<'_>) -> T) -> T {
        let mut pump = self.shared.lock();
        self.shared.presence.note_call();
        let (idle, pending) = (pump.is_idle(), pump.rnic.pending());
        let mut poster = Poster { now: pump.read_at, pump: &mut pump, sends: false };
        let result = requests(&mut poster);
        if poster.sends {
            pump.transmit_posted(idle);
        } else if pending != pump.rnic.pending() {
            // A peer waits to hear of the receive.
            let now = pump.clock();
            pump.transmit(now);
        }
        let now = pump.read_at;
        self.shared.finish(pump, now);
        result
    }

    /// Posts one send work request.
    ///
    /// # Errors
    /// As [`rnic::Device::post_send`].
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.send(qpn, request))
    }

    /// Posts one receive work request.
    ///
    /// # Errors
    /// As [`rnic::Device::post_receive`].
    pub fn post_receive(&self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.receive(qpn, request))
    }

    /// Posts one work request to a shared receive queue.
    ///
    /// # Errors
    /// As [`rnic::Device::post_srq_receive`].
    pub fn post_srq_receive(&self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.srq_receive(srq, request))
    }

    /// Hands up to `most` completions to `take`, oldest first; returns how many. When none waits, looks at
    /// the network first.
    pub fn poll_cq(&self, cq: Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        let mut pump = self.shared.lock();
        self.shared.presence.note_call();
        let taken = pump.rnic.poll_cq(cq, most, &mut take);
        if taken > 0 || most == 0 {
            pump.note_taken();
            return taken;
        }
        let now = pump.clock();
        pump.poll_empty(now, cq, most);
        let taken = pump.rnic.poll_cq(cq, most, take);
        if taken > 0 {
            pump.note_taken();
        }
        let waits = pump.waits_long(now);
        self.shared.finish(pump, now);
        if waits {
            wait::step_aside(&self.shared, now);
        }
        taken
    }

    /// Asks for one event on the channel that the queue is attached to. The program is about to sleep, so
    /// what waits to be sent goes out, and the progress thread takes over.
    ///
    /// # Errors
    /// As [`rnic::Device::arm_cq`].
    pub fn arm_cq(&self, cq: Cq, arm: Arm) -> Result<(), Error> {
        let now = clock::now();
        let mut pump = self.shared.lock();
        pump.rnic.arm_cq(cq, arm)?;
        pump.note_away();
        pump.transmit(now);
        // A program that looks for a while when it waits has not left.
        if !self.shared.waiting.looks() && self.shared.presence.leave() {
            // The thread ticks, and does not look at the socket: it wakes now and sees that we are away.
            pump.wakes_at = now;
            self.shared.wake.add();
        }
        self.shared.finish(pump, now);
        Ok(())
    }

    /// Takes a channel's oldest event, waiting for one; the program serves the network meanwhile if it can.
    ///
    /// # Errors
    /// As [`CompletionChannel::next`].
    pub fn next_event(&self, channel: &CompletionChannel) -> io::Result<u64> {
        wait::next_event(&self.shared, channel)
    }

    /// Sends the queue's completion events to a channel, as `cookie`. A queue is attached to one channel.
    pub fn attach_cq(&self, cq: Cq, channel: &Arc<CompletionChannel>, cookie: u64) {
        self.shared.lock().attach_cq(cq, Arc::clone(channel), cookie);
    }

    /// Before a completion queue is destroyed: its events that nobody took are gone. `cookie` has to be this
    /// queue's alone.
    pub fn detach_cq(&self, cq: Cq) {
        self.shared.lock().detach_cq(cq);
    }

    /// Asynchronous events.
    pub fn async_events(&self) -> &AsyncEvents {
        &self.shared.events
    }

    /// Counters of the datapath.
    pub fn link_counters(&self) -> LinkCounters {
        *self.shared.lock().counters()
    }

    /// The device's clock, in nanoseconds: what completions are stamped with.
    pub fn now(&self) -> Instant {
        clock::now()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        if pump.is_severed() {
            // A fork's child has no such thread: waiting for it would take for ever.
            std::mem::forget(self.thread.take());
            return;
        }
        pump.transmit(clock::now());
        drop(pump);
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.add();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; had it panicked, there would be nothing left to do about it.
            let _ = thread.join();
        }
    }
}

fn share(pump: Pump, socket: RawFd) -> io::Result<Shared> {
    let (epoll, wake) = (Arc::new(Epoll::new()?), EventFd::signal()?);
    epoll.add(socket)?;
    epoll.add(wake.raw())?;
    let events = AsyncEvents::new()?;
    let (stop, presence, waiting) = (AtomicBool::new(false), Presence::default(), Waiting::default());
    let sockets = Mutex::new(Sockets { descriptors: vec![socket], watched: true });
    let (pump, lane_news) = (Mutex::new(pump), Condvar::new());
    Ok(Shared { pump, events, epoll, lane_news, wake, stop, presence, waiting, sockets })
}

/// Unacknowledged bytes that may be on their way: what the peer's socket keeps, taken to be as large as ours.
/// The kernel charges about twice the bytes of a datagram.
fn window_bytes(receive_buffer: usize) -> u32 {
    const LEAST: usize = 64 << 10;
    let most = Config::default().window_bytes as usize;
    (receive_buffer / 4).clamp(LEAST, most.max(LEAST)) as u32
}

/// Posts work requests: see [`Device::post`].
#[derive(Debug)]
pub struct Poster<'a> {
    pump: &'a mut Pump,
    /// As of the last look at the clock: it counts only for what completes at once because it failed.
    now: Instant,
    sends: bool,
}

impl Poster<'_> {
    /// As [`rnic::Device::post_send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_send(qpn, request, self.now)?;
        self.sends = true;
        self.pump.note_posted(match request.data {
            _ if matches!(request.operation, Operation::Read { .. }) => 0,
            Data::Inline(bytes) => bytes.len() as u64,
            Data::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        });
        Ok(())
    }

    /// As [`rnic::Device::post_receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_receive(qpn, request, self.now)
    }

    /// As [`rnic::Device::post_srq_receive`].
    ///
    /// # Errors
    /// As there.
    pub fn srq_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_srq_receive(srq, request)
    }
}

/// From the system's random device: keys and numbers must be hard to guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
