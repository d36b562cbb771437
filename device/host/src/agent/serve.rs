//! The agent itself: one loop over its connections and queue pair 1.
//!
//! It may run in a process that was forked from a multi-threaded program, so it allocates nothing: its tables
//! have a fixed size, and are on the stack or existed before the fork.

use super::dead_processes::DeadProcesses;
use super::domains::Domains;
use super::gsi::{self, Question, Recipient};
use super::journal::JournalReader;
use super::ports::Ports;
use super::protocol::{
    ANSWER_BYTES, Answer, Ask, DATAGRAM_BYTES, DomainRequest, MESSAGE_BYTES_MAX, REQUEST_BYTES,
    Request, wrap,
};
use super::ranges::Ranges;
use super::{REPLY_BYTES, Reply, SLOTS, VERSION};
use crate::gsi::{encode, route};
use crate::sys::Epoll;
use crate::sys::owners::{Owners, Writes};
use crate::sys::process;
use link::udp::Socket;
use link::unix;
use rnic::cm::IdSeries;
use rnic::{Instant, Nanos};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time that the agent stays without clients: long enough for the next program of a script, and short enough
/// not to keep a network namespace alive.
const IDLE: Nanos = Nanos::from_millis(500);
/// Time that the agent stays after connections were made: as long as peers may have their communication IDs
/// in TIMEWAIT (twice the packet lifetime and the adapter's delay, up to 2.1 s with Linux 6.1), because it
/// prevents the reuse of these IDs.
const IDLE_AFTER_CONNECTIONS: Nanos = Nanos::from_millis(3_000);
/// Limit of datagrams for the former user of a socket that are dropped before it is lent again: more than fit
/// its buffer.
const STALE_MAX: usize = 1 << 16;
/// Limit of datagrams for queue pair 1 that are handled before the next requests of clients.
const DATAGRAMS_MAX: usize = 64;

/// Time that a client whose buffer is full may delay others, in milliseconds.
const ROOM_MS: i32 = 50;
/// Send buffer of a client's connection in bytes: some thousand datagrams with the kernel's overhead.
const CLIENT_BUFFER_BYTES: i32 = 8 << 20;

/// The ports, which are too large for the stack. The process that starts the agent does not use its copy.
static PORTS: Mutex<Ports> = Mutex::new(Ports::new());
/// The XRC domains, which are too large for the stack as well.
static DOMAINS: Mutex<Domains> = Mutex::new(Domains::new());

/// A slot: a range of queue pair numbers and its client.
struct Slot {
    /// Created when first needed, never closed: the index in the group must not change.
    socket: Option<Socket>,
    /// The connection of the client that uses the slot.
    lease: Option<OwnedFd>,
    /// Whether the client receives datagrams for queue pair 1.
    attends: bool,
    /// The client's disconnect journal.
    journal: Option<OwnedFd>,
    /// Whether the client's buffer was full, and stayed full for [`ROOM_MS`].
    is_stuck: bool,
    /// Number of communication IDs that the slot's clients have used so far.
    ids_used: u32,
}

impl Slot {
    const FREE: Self = Self {
        socket: None,
        lease: None,
        attends: false,
        journal: None,
        is_stuck: false,
        ids_used: 0,
    };
}

/// Starts the agent with a listening socket.
pub(super) fn start(listener: OwnedFd) -> io::Result<()> {
    process::spawn_daemon(listener, run)
}

fn run(listener: OwnedFd) {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    let (Ok(epoll), Ok(secret)) = (Epoll::new(), crate::random::bytes::<16>()) else {
        return;
    };
    let Ok(order) = crate::random::bytes() else {
        return;
    };
    if epoll.add(listener.as_raw_fd()).is_ok() {
        let slots = [const { Slot::FREE }; SLOTS];
        let secret = u128::from_ne_bytes(secret);
        let (ids_key, dead_processes) =
            ([secret as u64, (secret >> 64) as u64], DeadProcesses::new());
        let owners = Owners::create().ok();
        let (start, ends) = (std::time::Instant::now(), Instant(0) + IDLE);
        let (ports, domains) = (&mut *ports, &mut *domains);
        let ranges = Ranges::new(u32::from_ne_bytes(order));
        let mut agent = Agent {
            slots,
            ranges,
            ports,
            domains,
            owners,
            epoll,
            ids_key,
            dead_processes,
            start,
            ends,
        };
        agent.serve(&listener);
    }
}

struct Agent<'a> {
    slots: [Slot; SLOTS],
    ranges: Ranges,
    ports: &'a mut Ports,
    domains: &'a mut Domains,
    /// The table of the process of each slot, and its descriptor for clients.
    owners: Option<(Owners<Writes>, OwnedFd)>,
    epoll: Epoll,
    /// The key that determines the order of all communication IDs.
    ids_key: [u64; 2],
    dead_processes: DeadProcesses,
    start: std::time::Instant,
    /// Time at which the agent ends if it has no clients.
    ends: Instant,
}

impl Agent<'_> {
    fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }

    fn serve(&mut self, listener: &OwnedFd) {
        loop {
            let now = self.now();
            if let Some(socket) = &self.slots[0].socket {
                self.dead_processes.repeat(socket, now);
            }
            let next = self.dead_processes.next_timeout();
            let idle = next.is_none() && self.slots.iter().all(|slot| slot.lease.is_none());
            if idle && self.ends <= now {
                return;
            }
            let next = if idle { Some(self.ends) } else { next };
            for fd in self
                .epoll
                .wait_fds(next.map(|next| Duration::from_nanos((next - now).0)))
            {
                if fd == listener.as_raw_fd() {
                    self.admit(listener);
                } else if self.slots[0]
                    .socket
                    .as_ref()
                    .is_some_and(|socket| socket.raw() == fd)
                {
                    self.pass_on();
                } else {
                    self.hear(fd);
                }
            }
        }
    }

    /// Handles a request of a client, or the end of its connection.
    fn hear(&mut self, fd: RawFd) {
        let is_its = |slot: &Slot| {
            slot.lease
                .as_ref()
                .is_some_and(|lease| lease.as_raw_fd() == fd)
        };
        let Some(index) = self.slots.iter().position(is_its) else {
            return;
        };
        let mut bytes = [0; REQUEST_BYTES];
        // Does not block: the descriptor was ready.
        let (request, file) = match unix::receive(fd, &mut bytes) {
            Ok((REQUEST_BYTES, file)) => match DomainRequest::parse(&bytes) {
                Some(request) => return self.answer_for_domain(index, fd, request),
                None => (Request::parse(&bytes), file),
            },
            _ => (None, None),
        };
        let Some(request) = request else {
            return self.end(index);
        };
        if request.ask == Ask::Attend {
            self.slots[index].attends = true;
            self.slots[index].journal = file;
        }
        let listed = match request.ask {
            Ask::List => Some(self.ports.nth_listener(request.count).ok_or(libc::ENOENT)),
            _ => None,
        };
        // A client that waits for its answer has room for it; the connection of one that does not read is
        // closed.
        let sent = match listed {
            Some(Ok(listener)) => unix::send_now(fd, &listener.to_bytes()),
            Some(Err(errno)) => unix::send_now(fd, &Answer(Err(errno)).to_bytes()),
            None => {
                let answer: [u8; ANSWER_BYTES] =
                    Answer(self.ports.answer(index as u16, &request)).to_bytes();
                unix::send_now(fd, &answer)
            }
        };
        if sent.is_err() {
            self.end(index);
        }
    }

    fn answer_for_domain(&mut self, index: usize, fd: RawFd, request: DomainRequest) {
        let slot = index as u16;
        let done = match request {
            DomainRequest::Open { name, make, anew } => self.domains.open(slot, name, make, anew),
            DomainRequest::Close(name) => self.domains.close(slot, name),
        };
        if unix::send_now(fd, &Answer(done.map(|()| 0)).to_bytes()).is_err() {
            self.end(index);
        }
    }

    /// Frees a client's slot.
    fn end(&mut self, index: usize) {
        // Closing the descriptor removes it from the epoll set.
        self.slots[index].lease = None;
        self.slots[index].attends = false;
        if let Some((owners, _)) = &self.owners {
            owners.clear(self.ranges.of_slot(index) as usize);
        }
        let now = self.now();
        self.ends = self.ends.max(now + IDLE);
        if let (Some(file), Some(socket)) =
            (self.slots[index].journal.take(), &self.slots[0].socket)
        {
            let journal = JournalReader::new(file);
            self.slots[index].ids_used = journal.used().unwrap_or(self.slots[index].ids_used);
            self.dead_processes.begin(journal, index, socket, now);
            self.ends = now + IDLE_AFTER_CONNECTIONS;
        }
        self.ports.forget(index as u16);
        self.domains.forget(index as u16);
    }

    /// Passes datagrams for queue pair 1 on to their clients.
    fn pass_on(&mut self) {
        let mut bytes = [0; DATAGRAM_BYTES];
        for _ in 0..DATAGRAMS_MAX {
            let Some(socket) = &self.slots[0].socket else {
                return;
            };
            let from = match socket.receive(&mut bytes) {
                Ok(Some(from)) => from,
                Ok(None) => return,
                // An earlier send failed (ICMP): the next call takes a datagram.
                Err(_) => continue,
            };
            let datagram = bytes.get(..from.length).unwrap_or_default();
            let Some((recipient, question)) = gsi::recipient(self.ports, &from, datagram) else {
                continue;
            };
            let mut message = [0; MESSAGE_BYTES_MAX];
            let Some(message) = wrap(&from, datagram, &mut message) else {
                continue;
            };
            let attended = match recipient {
                Recipient::Slot(index) if self.is_answer_to_dead_process(index, &question) => true,
                Recipient::Slot(index) => self.hand(index, message),
                Recipient::All => self.hand_to_all(message),
                Recipient::Nobody => false,
            };
            if !attended
                && let Some(mad) = question.refusal()
                && let Some(socket) = &self.slots[0].socket
            {
                let path = question.path();
                let datagram = encode(&path, &mad);
                // A lost answer is like one lost in the network: the peer repeats its message.
                let _ = socket.send(&route(&path, from.interface), &datagram, datagram.len());
            }
        }
    }

    /// Whether a datagram is the DREP to a pending DREQ of a dead process; that DREQ is then done.
    fn is_answer_to_dead_process(&mut self, index: usize, question: &Question) -> bool {
        let answer = question.as_drep();
        answer.is_some_and(|(peer, id, drep)| self.dead_processes.answered(index, peer, id, drep))
    }

    /// Sends a message to a client. One whose buffer is full gets a moment to make room, once: a message that
    /// it does not take is lost, as on a network, and the peer repeats it.
    fn hand(&mut self, index: usize, message: &[u8]) -> bool {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.attends) else {
            return false;
        };
        let Some(lease) = &slot.lease else {
            return false;
        };
        let fd = lease.as_raw_fd();
        let is_full = |result: io::Result<()>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        if !is_full(unix::send_now(fd, message)) {
            slot.is_stuck = false;
        } else if !slot.is_stuck {
            slot.is_stuck =
                !unix::wait_for_room(fd, ROOM_MS) || is_full(unix::send_now(fd, message));
        }
        true
    }

    fn hand_to_all(&mut self, message: &[u8]) -> bool {
        let handed = (1..SLOTS)
            .filter(|&index| self.hand(index, message))
            .count();
        handed > 0
    }

    /// Assigns a slot to a client.
    fn admit(&mut self, listener: &OwnedFd) {
        let Ok(client) = unix::accept(listener.as_raw_fd()) else {
            return;
        };
        match unix::peer_user(client.as_raw_fd()) {
            Ok(peer) if peer == os::user() || peer == 0 => {}
            _ => return,
        }
        // The first slot is the agent's, the range of the last contains the multicast number.
        let free = (1..SLOTS - 1).find(|&index| self.slots[index].lease.is_none());
        let made = free.map(|index| self.make_sockets(index));
        let errno = match &made {
            Some(Err(error)) => error.raw_os_error().unwrap_or(libc::EIO),
            _ => 0,
        };
        let index = free.filter(|_| errno == 0);
        let slot = index.unwrap_or(0);
        let ids = IdSeries {
            key: self.ids_key,
            used: self.slots[slot].ids_used,
        };
        let range = self.ranges.of_slot(slot);
        let reply = Reply {
            version: VERSION,
            errno: errno as u32,
            slot: slot as u32,
            range,
            ids,
        };
        let bytes: [u8; REPLY_BYTES] = reply.to_bytes();
        let sent = self.lend(&client, index, &bytes);
        if let Some(index) = index.filter(|_| sent.is_ok())
            && self.epoll.add(client.as_raw_fd()).is_ok()
        {
            unix::set_send_buffer(client.as_raw_fd(), CLIENT_BUFFER_BYTES);
            self.slots[index].lease = Some(client);
        }
    }

    /// Answers a client; with a slot, if there is one for it.
    fn lend(&self, client: &OwnedFd, index: Option<usize>, bytes: &[u8]) -> io::Result<()> {
        let slot = index.and_then(|index| Some((index, self.slots[index].socket.as_ref()?)));
        let Some((index, socket)) = slot else {
            return unix::send(client.as_raw_fd(), bytes, None);
        };
        match &self.owners {
            Some((owners, table)) => {
                let range = self.ranges.of_slot(index) as usize;
                owners.set(range, unix::peer_identity(client.as_raw_fd())?);
                unix::send_fds(
                    client.as_raw_fd(),
                    bytes,
                    &[socket.raw(), table.as_raw_fd()],
                )
            }
            None => unix::send(client.as_raw_fd(), bytes, Some(socket.raw())),
        }
    }

    /// Creates the sockets up to a slot: their index in the group is the order of creation.
    fn make_sockets(&mut self, index: usize) -> io::Result<()> {
        if self.slots[0].socket.is_none() {
            Socket::check_port_is_free()?;
        }
        for number in 0..=index {
            if self.slots[number].socket.is_none() {
                let socket = Socket::join_group(self.ranges.inverse())?;
                if number == 0 {
                    socket.receive_singly()?;
                    self.epoll.add(socket.raw())?;
                }
                self.slots[number].socket = Some(socket);
            }
        }
        let mut stale = [0; 16];
        if let Some(socket) = &self.slots[index].socket {
            for _ in 0..STALE_MAX {
                if !matches!(socket.receive(&mut stale), Ok(Some(_))) {
                    break;
                }
            }
        }
        Ok(())
    }
}
