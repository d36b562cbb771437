//! An open device, shared by all threads of a program.

use crate::agent::enquiry::Enquiries;
use crate::agent::protocol::DomainRequest;
use crate::agent::{self, Lease};
use crate::channel::{AsyncEvents, CompletionChannel};
use crate::counters::LinkCounters;
use crate::error::{DomainError, OpenError};
use crate::faults;
use crate::interface::{DeviceInfo, try_list};
use crate::lab::LabPort;
use crate::log;
use crate::multicast;
use crate::progress::clock;
use crate::progress::completion_wait::{self, WaitEnd};
use crate::progress::core_yield;
use crate::progress::event_wait;
use crate::progress::housekeeping::Housekeeping;
use crate::progress::pump::Pump;
use crate::progress::shared::Shared;
use crate::progress::thread;
use crate::raised::Raisable;
use crate::random;
use crate::settings;
use crate::shm::Found;
use crate::subnet;
use crate::sys::{open_devices, probes, process};
use link::port_state::PortState;
use rnic::{
    Arm, AttrMask, Completion, Config, Cq, Data, DomainName, Error, Gid, Instant, Nanos, Operation,
    QpAttr, QpInit, QpType, ReceiveRequest, SendRequest, Srq, State, Xrcd,
};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Qpn;

/// Time for which a queue pair waits for the shared-memory channel to its peer before it uses packets: on a
/// busy machine the peer process has to wait for a core.
const CHANNEL_TIMEOUT: Nanos = Nanos::from_millis(200);
/// Drain timeout: time for which a queue pair that is about to stop tries to send its outstanding
/// acknowledgements. A peer that reads nothing for that time is stopped, even on a busy machine.
const DRAIN_TIMEOUT: Nanos = Nanos::from_millis(200);

/// Processes the packets that have arrived for a queue pair of this process, on any open device.
///
/// The end of a connection is reported by the connection manager, whose datagrams do not follow the data
/// path. Acknowledgements that the peer sent before have to complete the program's requests before the
/// program gets that report: a program that destroys its queue pair then would never learn that they were
/// executed.
pub fn take_arrived(qpn: Qpn) {
    let _ = open_devices::all()
        .iter()
        .any(|device| device.take_arrived(qpn));
}

/// Ends each open device on which a call has panicked: its queue pairs are flushed, and the program gets
/// `IBV_EVENT_DEVICE_FATAL`. For the C boundary, which calls it after it has caught a panic; without it the
/// next call on the device would do the same.
pub fn end_panicked() {
    open_devices::all()
        .iter()
        .for_each(|device| device.end_if_poisoned());
}

/// Parameters of opening an XRC domain.
#[derive(Clone, Copy, Debug)]
pub struct OpenDomain {
    /// Device and inode of the file that names it. Without a file, the domain belongs to this context alone.
    pub file: Option<(u64, u64)>,
    /// `O_CREAT`: creates the domain if no process has it open.
    pub make: bool,
    /// `O_EXCL`: fails if another process has it open.
    pub anew: bool,
}

/// Sets the port of a device that opens: as the lab has told it, for InfiniBand, or as the interface is.
fn begin_port(rnic: &mut rnic::Device, info: &DeviceInfo, told: Option<&PortState>) {
    if let Some(port) = told.or(info.subnet.as_ref()) {
        return subnet::begin(rnic, port);
    }
    for (index, gid) in info.gids.iter().enumerate() {
        rnic.port_mut().set_gid(index as u8, Some(*gid));
    }
    let mtu = faults::active_mtu(&info.name, info.active_mtu);
    rnic.port_mut().set_active_mtu(mtu);
}

/// An open device. All calls may come from any thread; one lock orders them.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    enquiries: Enquiries,
    _raisable: Option<Raisable>,
}

impl Device {
    /// Opens a device that [`list`] found: gets a socket on port 4791 and a range of queue pair numbers, and
    /// starts the thread that makes progress while the program is away. Everything ends when the last
    /// reference goes.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way and what to do.
    pub fn open(info: &DeviceInfo) -> Result<Arc<Self>, OpenError> {
        settings::check_variables()?;
        let gone = || OpenError::Gone(info.interface.clone());
        let info = try_list()
            .map_err(OpenError::Interfaces)?
            .into_iter()
            .find(|device| device.name == info.name)
            .ok_or_else(gone)?;
        let Lease {
            socket,
            first,
            count,
            connection,
            owners,
            ..
        } = agent::lease()?;
        let buffer = socket.receive_buffer().map_err(OpenError::Socket)?;
        let mut config = Config {
            window_bytes: window_bytes(buffer),
            ..Config::default()
        };
        settings::apply(&mut config);
        if faults::is_on() {
            faults::lower(&info.name, &mut config);
        }
        let lab = LabPort::attach(first, count).map_err(OpenError::Lab)?;
        if lab.is_some() {
            // The lab keeps what the device has no room for: there is no receive buffer to overflow.
            config.window_bytes = Config::default().window_bytes;
        }
        let token = u64::from_ne_bytes(random::bytes().map_err(OpenError::Thread)?);
        let mut rnic =
            rnic::Device::new(config.clone(), random::bytes().map_err(OpenError::Thread)?);
        begin_port(&mut rnic, &info, lab.as_ref().and_then(LabPort::port_state));
        rnic.add_qpn_range(first, count);
        rnic.srqs().set_numbers(first, count);
        let descriptor = socket.raw();
        let mut pump = Pump::new(rnic, socket, connection, info.ifindex);
        let lab_socket = lab.as_ref().map(LabPort::raw);
        pump.lab = lab;
        let shared = Arc::new(Shared::new(pump, descriptor).map_err(OpenError::Thread)?);
        {
            let Pump { shm, rnic, .. } = &mut *shared.lock();
            shm.create_grant_table(rnic, token);
            shm.trust(owners);
            shm.listen(first, &shared.epoll);
        }
        lab_socket
            .map_or(Ok(()), |socket| shared.epoll.add(socket))
            .map_err(OpenError::Thread)?;
        open_devices::register(&shared);
        let housekeeping = Housekeeping::new(&shared.epoll, &info);
        crate::sys::memory::guard_this_process();
        let worker = Arc::clone(&shared);
        let thread = process::spawn_quiet("rockery", move || thread::run(&worker, &housekeeping));
        let thread = Some(thread.map_err(OpenError::Thread)?);
        let raisable = Raisable::register(&info, &shared);
        log_opened(&info, first, count, &config);
        Ok(Arc::new(Self {
            info,
            shared,
            thread,
            enquiries: Enquiries::default(),
            _raisable: raisable,
        }))
    }

    /// The description with which the device was opened.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The port's state in its InfiniBand subnet; `None` for RoCE.
    pub fn port_state(&self) -> Option<PortState> {
        let pump = self.shared.lock();
        let port = pump.lab.as_ref().and_then(LabPort::port_state);
        port.cloned().or_else(|| self.info.subnet.clone())
    }

    /// Runs control verbs on the device: all that are not on the data path. Their packets and events are sent
    /// and reported before this returns.
    pub fn with<T>(&self, verbs: impl FnOnce(&mut rnic::Device, Instant) -> T) -> T {
        let now = clock::now();
        let mut pump = self.shared.lock();
        // Acknowledgements that are held back for a full batch must not be lost with a queue pair.
        pump.transmit(now);
        let result = verbs(&mut pump.rnic, now);
        pump.schedule.batching.note_away();
        pump.transmit(now);
        self.shared.finish(pump, now);
        result
    }

    /// Creates a queue pair, with a further range of numbers from the agent when the device's are used up.
    ///
    /// # Errors
    /// As [`rnic::Device::create_qp`].
    pub fn create_qp(&self, init: &QpInit) -> Result<Qpn, Error> {
        if self.with(|rnic, _| rnic.free_qpns()) == 0 {
            self.grow();
        }
        self.with(|rnic, _| rnic.create_qp(init))
    }

    /// Destroys a queue pair, after it has sent its outstanding acknowledgements.
    ///
    /// # Errors
    /// As [`rnic::Device::destroy_qp`].
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), Error> {
        self.drain_acknowledgements(qpn);
        self.with(|rnic, _| rnic.destroy_qp(qpn))
    }

    /// Waits until a queue pair has sent its outstanding acknowledgements, for [`DRAIN_TIMEOUT`] at most. To
    /// a peer on this host it can send them only when the channel has room, and a channel that is full of our
    /// own messages has none until the peer has taken some.
    fn drain_acknowledgements(&self, qpn: Qpn) {
        let start = clock::now();
        loop {
            let mut pump = self.shared.lock();
            let now = clock::now();
            pump.progress(now, false);
            let owes = pump.rnic.owes_acknowledgement(qpn);
            self.shared.finish(pump, now);
            if !owes || now - start > DRAIN_TIMEOUT {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// The hop limit of packets to a peer, which is that of the route: as Linux does (`ib_resolve_eth_dmac`),
    /// so that programs which set 1 reach peers behind a router. Packets to a multicast group, and where no
    /// route can be looked up, keep the program's.
    ///
    /// # Errors
    /// As [`link::route::hop_limit`]: there is no route.
    pub fn hop_limit_to(&self, source_index: u8, destination: Gid) -> io::Result<Option<u8>> {
        let source = self.with(|rnic, _| rnic.port().gid(source_index));
        let Some(source) = source.filter(|_| !destination.is_multicast()) else {
            return Ok(None);
        };
        let [from, to] = [source, destination].map(|gid| IpAddr::from(gid.0).to_canonical());
        link::route::hop_limit(from, to, self.info.ifindex)
    }

    /// Changes attributes of a queue pair. One that gets the address of a peer on this host gets a
    /// shared-memory channel to it; one that goes to RESET or ERR sends its outstanding acknowledgements
    /// first.
    ///
    /// # Errors
    /// As [`rnic::Device::modify_qp`].
    pub fn modify_qp(&self, qpn: Qpn, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        if mask.contains(AttrMask::STATE) && matches!(attr.state, State::Reset | State::Error) {
            self.drain_acknowledgements(qpn);
        }
        self.with(|rnic, now| rnic.modify_qp(qpn, attr, mask, now))?;
        if mask.contains(AttrMask::AV) {
            self.select_transport(qpn);
        }
        Ok(())
    }

    /// Selects the transport of a queue pair: a shared-memory channel if its peer is on this host and one can
    /// be opened, otherwise packets. Waits for the progress threads of both processes to open the channel.
    fn select_transport(&self, qpn: Qpn) {
        let (mut pump, start) = (self.shared.lock(), clock::now());
        let Ok((attr, init)) = pump.rnic.query_qp(qpn) else {
            return;
        };
        if init.kind == QpType::Ud {
            return;
        }
        loop {
            let now = clock::now();
            match pump
                .shm
                .find(qpn, attr.destination, attr.vector.destination, now)
            {
                Found::Channel(channel) => {
                    log_transport(
                        qpn,
                        &attr,
                        "shared memory: the peer is on this host",
                        Some(channel),
                    );
                    // An error means that the queue pair was destroyed meanwhile.
                    let _ = pump.rnic.shm().set_channel(qpn, channel);
                    return;
                }
                Found::None => {
                    return log_transport(
                        qpn,
                        &attr,
                        pump.shm.why_packets(attr.vector.destination),
                        None,
                    );
                }
                Found::Pending if now > start + CHANNEL_TIMEOUT => {
                    log_transport(
                        qpn,
                        &attr,
                        "packets: the peer did not open a channel within 200 ms",
                        None,
                    );
                    return pump.shm.give_up(attr.destination, now);
                }
                Found::Pending => pump = self.shared.wait_for_channels(pump),
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
        let Some(file) = file else {
            return Ok(self.with(|rnic, _| rnic.alloc_xrcd(None))?);
        };
        let name = DomainName {
            file,
            interface: self.info.ifindex,
        };
        self.ask_agent(DomainRequest::Open { name, make, anew })?;
        self.with(|rnic, _| rnic.alloc_xrcd(Some(name)))
            .map_err(|error| {
                // An error means that the agent has ended, and with it the entry.
                let _ = self.ask_agent(DomainRequest::Close(name));
                error.into()
            })
    }

    /// Closes an XRC domain.
    ///
    /// # Errors
    /// As [`rnic::Device::dealloc_xrcd`].
    pub fn close_domain(&self, domain: Xrcd) -> Result<(), Error> {
        let name = self.with(|rnic, now| {
            let name = rnic.domain_name(domain);
            rnic.dealloc_xrcd(domain, now).map(|()| name)
        })?;
        if let Some(name) = name {
            // An error means that the agent has ended, and with it the entry.
            let _ = self.ask_agent(DomainRequest::Close(name));
        }
        Ok(())
    }

    fn ask_agent(&self, request: DomainRequest) -> io::Result<()> {
        let lease = self.shared.lock().leases.connection();
        self.enquiries.ask(lease, request)
    }

    /// Attaches a UD queue pair to a multicast group.
    ///
    /// # Errors
    /// As [`rnic::Multicast::attach`]; the kernel's limit of groups counts as one of the device.
    pub fn attach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let socket = multicast::attach_qp(&mut self.shared.lock(), qpn, group, self.info.ifindex)?;
        if let Some(socket) = socket
            && self.shared.add_socket(socket).is_err()
        {
            self.detach_multicast(qpn, group)?;
            return Err(Error::Exhausted("descriptors that are waited for"));
        }
        Ok(())
    }

    /// Detaches a UD queue pair from a multicast group.
    ///
    /// # Errors
    /// As [`rnic::Multicast::detach`].
    pub fn detach_multicast(&self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let left = multicast::detach_qp(&mut self.shared.lock(), qpn, group)?;
        left.iter()
            .for_each(|socket| self.shared.remove_socket(socket.raw()));
        Ok(())
    }

    /// Gets a further range of queue pair numbers from the agent. Where there is none, or no descriptor for
    /// its socket, creating a queue pair fails.
    fn grow(&self) {
        let lease = agent::lease().inspect_err(|error| {
            tracing::warn!(target: log::HOST, device = self.info.name, "no more queue pair numbers: {error}");
        });
        let Ok(Lease {
            socket,
            first,
            count,
            connection,
            ..
        }) = lease
        else {
            return;
        };
        let mut pump = self.shared.lock();
        if !pump.leases.is_severed() && self.shared.add_socket(socket.raw()).is_ok() {
            pump.lab.iter().for_each(|lab| lab.add_range(first, count));
            pump.add_share(socket, connection, first, count);
            pump.shm.listen(first, &self.shared.epoll);
        }
    }

    /// Posts any number of work requests under one lock, and sends what is worth sending now.
    pub fn post<T>(&self, requests: impl FnOnce(&mut Poster<'_>) -> T) -> T {
        let mut pump = self.shared.lock();
        self.shared.policy.polls.note_call();
        let (idle, pending) = (pump.is_idle(), pump.rnic.pending());
        let now = pump.clock.last();
        let mut poster = Poster {
            now,
            pump: &mut pump,
            sends: false,
            executed: 0,
        };
        let result = requests(&mut poster);
        let (sends, executed) = (poster.sends, poster.executed);
        if executed > 0 {
            pump.end_execution(executed);
        }
        if sends {
            pump.transmit_posted(idle);
            self.shared.policy.polls.note_copied(pump.take_copied());
        } else if pending != pump.rnic.pending() {
            // A peer waits for the announcement of this receive.
            let now = pump.clock.read();
            pump.transmit(now);
        }
        let now = pump.clock.last();
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
    /// As [`rnic::Srqs::post_receive`].
    pub fn post_srq_receive(&self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.srq_receive(srq, request))
    }

    /// Passes up to `most` completions to `take`, oldest first; returns how many. When there is none,
    /// processes the network first.
    ///
    /// After many polls that found nothing the thread yields the core before it processes the network, not
    /// afterwards: a program that finds no completion goes on to other events, and must not find the end of a
    /// connection there that is later than the completions that were just not found.
    pub fn poll_cq(&self, cq: Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        let mut take = |completion: &Completion| {
            probes::completion(completion);
            take(completion);
        };
        let alone = core_yield::polls_alone(&self.shared);
        let mut pump = self.shared.lock();
        self.shared.policy.polls.note_call();
        let taken = pump.rnic.cqs_mut().poll(cq, most, &mut take);
        if taken > 0 || most == 0 {
            pump.note_taken();
            return taken;
        }
        let mut now = pump.clock.read();
        if pump.waits_long(now) {
            drop(pump);
            core_yield::yield_core(&self.shared, now, alone);
            pump = self.shared.lock();
            now = pump.clock.read();
        }
        pump.poll_empty(now, cq, most);
        self.shared.policy.polls.note_copied(pump.take_copied());
        if pump.schedule.sleepers.postpones_tick(now) {
            self.shared.postpone_tick(&mut pump, now);
        }
        let taken = pump.rnic.cqs_mut().poll(cq, most, take);
        if taken > 0 {
            pump.note_taken();
        }
        self.shared.finish(pump, now);
        taken
    }

    /// Requests one event on the completion channel that the queue is attached to (`ibv_req_notify_cq`). The
    /// program is about to sleep, so packets that were held back are sent, and the progress thread takes
    /// over.
    ///
    /// # Errors
    /// As [`rnic::CompletionQueues::arm`].
    pub fn arm_cq(&self, cq: Cq, arm: Arm) -> Result<(), Error> {
        let now = clock::now();
        let mut pump = self.shared.lock();
        pump.rnic.cqs_mut().arm(cq, arm)?;
        pump.schedule.batching.note_away();
        pump.transmit(now);
        if self.shared.policy.leaves_for_event() {
            // The thread only ticks, and does not read the socket: it has to see now that the program sleeps.
            self.shared.wake_thread(&mut pump, now);
        }
        self.shared.finish(pump, now);
        Ok(())
    }

    /// Takes the oldest event of a completion channel, waiting for one. The calling thread serves the network
    /// meanwhile if it can.
    ///
    /// # Errors
    /// As [`CompletionChannel::next`].
    pub fn next_event(&self, channel: &CompletionChannel) -> io::Result<u64> {
        event_wait::next_event(&self.shared, channel)
    }

    /// Waits until a queue that is attached to a channel has completions, one of `others` is ready, or the
    /// time is over. Where that has helped lately, the thread polls for so long (`polls`) before it sleeps.
    /// The caller needs no notification of the queue: one that was requested may be cancelled. It calls this
    /// again soon, or requests a notification before it waits elsewhere: the progress thread takes over the
    /// work of this thread only some milliseconds later.
    ///
    /// # Errors
    /// Those of `poll(2)`; `EINVAL` for a queue without a channel.
    pub fn wait_cq(
        &self,
        cq: Cq,
        others: &mut [libc::pollfd],
        polls: Duration,
        most: Option<Duration>,
    ) -> io::Result<WaitEnd> {
        completion_wait::completions_or(&self.shared, cq, others, polls, most)
    }

    /// Sends the queue's completion events to a channel, as `cookie`. A queue is attached to one channel.
    pub fn attach_cq(&self, cq: Cq, channel: &Arc<CompletionChannel>, cookie: u64) {
        self.shared
            .lock()
            .routes
            .attach_cq(cq, Arc::clone(channel), cookie);
    }

    /// Detaches a completion queue from its channel before it is destroyed, and drops events that were not
    /// taken. No other queue has this queue's `cookie`.
    pub fn detach_cq(&self, cq: Cq) {
        self.shared.lock().routes.detach_cq(cq);
    }

    /// The queue of asynchronous events.
    pub fn async_events(&self) -> &AsyncEvents {
        &self.shared.events
    }

    /// Counters of the datapath.
    pub fn link_counters(&self) -> LinkCounters {
        *self.shared.lock().counters()
    }

    /// The device's clock, in nanoseconds: the time in completions.
    pub fn now(&self) -> Instant {
        clock::now()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        if pump.leases.is_severed() {
            // The child of a fork has no such thread: joining it would not return.
            std::mem::forget(self.thread.take());
            return;
        }
        pump.transmit(clock::now());
        drop(pump);
        self.shared.stop_thread();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked: nothing is left to do then.
            let _ = thread.join();
        }
    }
}

/// Limit of unacknowledged bytes: the capacity of the peer's receive buffer, which is assumed to be as large
/// as the local one. The kernel charges about twice the bytes of a datagram to it.
fn window_bytes(receive_buffer: usize) -> u32 {
    const LEAST: usize = 64 << 10;
    let most = Config::default().window_bytes as usize;
    (receive_buffer / 4).clamp(LEAST, most.max(LEAST)) as u32
}

/// Logs that a device was opened, and its settings.
fn log_opened(info: &DeviceInfo, first: Qpn, count: u32, config: &Config) {
    let (device, first, window) = (&info.name, first.value(), config.window_bytes);
    let (congestion, out_of_order) = (&config.congestion, config.out_of_order);
    tracing::info!(target: log::HOST, device, first_qpn = first, qpns = count, window_bytes = window,
        ?congestion, out_of_order, "device opened");
}

/// Logs the transport of a queue pair, and the reason for it.
fn log_transport(qpn: Qpn, attr: &QpAttr, transport: &str, channel: Option<u16>) {
    let (qpn, peer, address) = (
        qpn.value(),
        attr.destination.value(),
        attr.vector.destination,
    );
    tracing::info!(target: log::HOST, qpn, peer, %address, channel, "transport: {transport}");
}

/// Posts work requests: see [`Device::post`].
#[derive(Debug)]
pub struct Poster<'a> {
    pump: &'a mut Pump,
    /// The last clock reading: it is used only for requests that fail, and so complete, at once.
    now: Instant,
    sends: bool,
    /// Number of requests that were executed when they were posted.
    executed: u32,
}

impl Poster<'_> {
    /// Posts a send work request, as [`rnic::Device::post_send`].
    ///
    /// # Errors
    /// As [`rnic::Device::post_send`].
    pub fn send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), Error> {
        probes::post_send(qpn, request.id);
        if self.pump.execute_at_once(qpn, request) {
            self.executed += 1;
            return Ok(());
        }
        self.pump.rnic.post_send(qpn, request, self.now)?;
        self.sends = true;
        self.pump.schedule.batching.note_posted(match request.data {
            _ if matches!(request.operation, Operation::Read { .. }) => 0,
            Data::Inline(bytes) => bytes.len() as u64,
            Data::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        });
        Ok(())
    }

    /// Whether [`Self::send`] would accept the request after `before` others, as
    /// [`rnic::Device::check_send`].
    ///
    /// # Errors
    /// As [`rnic::Device::post_send`].
    pub fn check_send(
        &self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        before: usize,
    ) -> Result<(), Error> {
        self.pump.rnic.check_send(qpn, request, before)
    }

    /// Posts a receive work request, as [`rnic::Device::post_receive`].
    ///
    /// # Errors
    /// As [`rnic::Device::post_receive`].
    pub fn receive(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        probes::post_receive(qpn, request.id);
        self.pump.rnic.post_receive(qpn, request, self.now)
    }

    /// Posts a work request to a shared receive queue, as [`rnic::Srqs::post_receive`].
    ///
    /// # Errors
    /// As [`rnic::Srqs::post_receive`].
    pub fn srq_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.srqs().post_receive(srq, request)
    }

    /// Has the message for the receive that was posted last refused so many times, as
    /// [`rnic::Device::refuse_last_receive`].
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn refuse_last_receive(&mut self, qpn: Qpn, times: u32) -> Result<(), Error> {
        self.pump.rnic.refuse_last_receive(qpn, times)
    }

    /// Has the message for the last receive of a shared queue refused so many times, as
    /// [`rnic::Device::refuse_last_shared_receive`].
    ///
    /// # Errors
    /// There is no such queue.
    pub fn refuse_last_shared_receive(&mut self, srq: Srq, times: u32) -> Result<(), Error> {
        self.pump.rnic.refuse_last_shared_receive(srq, times)
    }
}
