//! One host's part in a live run: the ends of the flows of a fabric file, over verbs and RDMA-CM as any
//! program uses them. It reads commands and writes answers, one JSON object per line, on standard input and
//! output.

use crate::clock::Clock;
use crate::tracking::Outcome;
use buffer::Buffer;
use rdma::{
    Completion, Connection, Domain, Done, HalfOpen, Landing, Listener, ListenerEvent, Request,
    Sizes,
};
use serde::{Deserialize, Serialize};
use sim::world::Latency;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The port at which hosts listen.
const PORT: u16 = 18_515;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long connections of one host may take altogether, of the machine's time.
const CONNECT: Duration = Duration::from_secs(120);
/// Sleeps of a loop that found nothing to do.
const IDLE: Duration = Duration::from_micros(20);
/// READs of one queue pair that devices serve at once.
const READS_MAX: u32 = 16;
/// An accepted connection retries SENDs without limit while no receive is posted.
const RNR_RETRY: u8 = 7;

/// How a live flow moves data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moves {
    /// By RDMA WRITE, which the sender of the data posts.
    Write,
    /// By SEND, into receives that are posted again as soon as they complete.
    Send,
    /// By RDMA READ, which the receiver of the data posts.
    Read,
}

/// A flow with an end in a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LiveFlow {
    /// Number of the flow in the file.
    pub number: u32,
    /// Operation that moves the data.
    pub moves: Moves,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// How many there are.
    pub messages: u64,
    /// How many are posted at once.
    pub depth: u32,
    /// When the first is posted, in nanoseconds since the run began.
    pub start_ns: u64,
    /// The host to connect to, if this end posts the messages.
    pub peer: Option<Ipv4Addr>,
}

/// A command to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The flows that have an end in the host, and its address.
    Flows {
        /// Address at which the process listens.
        address: Ipv4Addr,
        /// The flows of this host.
        flows: Vec<LiveFlow>,
    },
    /// All hosts listen.
    Connect,
    /// When the run begins and ends, in nanoseconds of the lab's clock. Without an end, when all is sent.
    Begin {
        /// When the first messages may be posted.
        begin_ns: u64,
        /// From when on nothing is posted.
        end_ns: Option<u64>,
    },
}

/// An answer of a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// Peers may connect to it.
    Listens,
    /// Its flows are connected; with the numbers of its queue pairs by flow.
    Connected {
        /// Numbers of a flow and of its queue pair here.
        numbers: Vec<(u32, u32)>,
    },
    /// The results of the flows whose messages it posted.
    Done {
        /// One for each flow.
        outcomes: Vec<Outcome>,
    },
    /// The process cannot go on.
    Failed {
        /// The reason for the failure.
        why: String,
    },
}

/// Does a host's part, until standard input ends.
pub fn act() {
    if let Err(why) = parts() {
        say(&Said::Failed { why });
    }
}

fn say(what: &Said) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(what).unwrap_or_default());
    let _ = out.flush();
}

fn parts() -> Result<(), String> {
    let clock = environment::variable(host::settings::LAB_CLOCK)
        .and_then(|text| text.into_string().ok())
        .and_then(|text| Clock::parse(&text));
    let clock = clock.ok_or("this command runs in hosts of a lab only, whose clock it reads")?;
    let told = lines();
    let next = || {
        told.recv()
            .map_err(|_| "its input ended before the last command".to_owned())
    };
    let Told::Flows { address, flows } = next()? else {
        return Err("the first command has to be the list of flows".to_owned());
    };
    let (connects, accepts): (Vec<LiveFlow>, Vec<LiveFlow>) =
        flows.into_iter().partition(|flow| flow.peer.is_some());
    let listener = Listener::new(SocketAddr::new(address.into(), PORT), BACKLOG).map_err(text)?;
    say(&Said::Listens);
    let Told::Connect = next()? else {
        return Err("the second command has to be to connect".to_owned());
    };
    let connecting: JoinHandle<Result<Vec<End>, String>> =
        spawn(move || connects.into_iter().map(End::connect).collect());
    let mut ends = accept(&listener, accepts)?;
    ends.extend(
        connecting
            .join()
            .map_err(|_| "the thread that connects the flows has panicked".to_owned())??,
    );
    say(&Said::Connected {
        numbers: ends
            .iter()
            .map(|end| (end.flow.number, end.number))
            .collect(),
    });
    let Told::Begin { begin_ns, end_ns } = next()? else {
        return Err("the third command has to be to begin".to_owned());
    };
    run(
        &mut ends,
        clock,
        [begin_ns, end_ns.unwrap_or(u64::MAX)],
        &told,
    );
    Ok(())
}

/// Lines of standard input, read by a thread so that nothing else waits for them.
fn lines() -> Receiver<Told> {
    let (sender, receiver) = channel();
    spawn(move || {
        for line in io::stdin().lock().lines() {
            let Some(told) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else {
                return;
            };
            if sender.send(told).is_err() {
                return;
            }
        }
    });
    receiver
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Posts and polls until the end; then goes on to serve peers until standard input ends.
fn run(ends: &mut [End], clock: Clock, [begin, until]: [u64; 2], told: &Receiver<Told>) {
    let mut is_said = false;
    while !matches!(told.try_recv(), Err(TryRecvError::Disconnected)) {
        let now = clock.now_ns();
        let ends_here = now >= until;
        let mut moved = false;
        for end in ends.iter_mut() {
            moved |= end.step(now.saturating_sub(begin), now >= begin && !ends_here);
        }
        if !is_said && now >= begin && (ends_here || ends.iter().all(End::is_over)) {
            is_said = true;
            let active = ends.iter().filter(|end| end.flow.peer.is_some());
            let timeouts = timeouts();
            let outcome = |end: &End| end.outcome(timeouts.get(&end.number).copied().unwrap_or(0));
            say(&Said::Done {
                outcomes: active.map(outcome).collect(),
            });
        }
        if !moved {
            sleep(IDLE);
        }
    }
}

/// ACK timeouts by queue pair number, as the device of this process has counted them.
fn timeouts() -> BTreeMap<u32, u64> {
    let reports = host::report::collect().reports;
    let own = reports
        .iter()
        .filter(|report| report.pid == std::process::id());
    own.flat_map(|report| &report.queue_pairs)
        .map(|pair| (pair.qpn, pair.timeouts))
        .collect()
}

/// One end of a flow.
struct End {
    flow: LiveFlow,
    connection: Connection,
    number: u32,
    memory: Memory,
    remote: rdma::RemoteMemory,
    posted: u64,
    completed: u64,
    /// When messages were posted that have not completed.
    times: VecDeque<u64>,
    started: Option<u64>,
    completions: Option<[u64; 2]>,
    latency: Latency,
    failed: bool,
    found: Vec<Completion>,
}

/// The memory of the messages of an end.
enum Memory {
    /// Memory that the peer reads or writes.
    Open { _buffer: Buffer },
    /// The data of WRITEs.
    Source(Arc<Buffer>),
    /// The place of the data of READs.
    Landing(Arc<Landing>),
    /// Buffers of SENDs that are not on their way.
    Free(Vec<Buffer>),
    /// Receives are posted.
    Receives,
}

impl LiveFlow {
    fn depth(&self) -> u32 {
        if self.moves == Moves::Read {
            self.depth.min(READS_MAX)
        } else {
            self.depth
        }
        .max(1)
    }

    fn sizes(&self) -> Sizes {
        let reads = if self.moves == Moves::Read && self.peer.is_some() {
            self.depth() as u8
        } else {
            0
        };
        Sizes {
            send: self.depth() + 1,
            receive: self.depth() + 1,
            reads,
            rnr_retry: RNR_RETRY,
        }
    }

    /// The memory of the end that posts messages.
    fn source(&self, domain: &Arc<Domain>) -> Result<Memory, rdma::Error> {
        let buffer = || domain.registered(self.message_bytes as usize);
        Ok(match self.moves {
            Moves::Write => Memory::Source(Arc::new(buffer()?)),
            Moves::Read => Memory::Landing(Landing::new(buffer()?)),
            Moves::Send => Memory::Free(
                (0..self.depth())
                    .map(|_| buffer())
                    .collect::<Result<_, _>>()?,
            ),
        })
    }
}

impl End {
    fn new(
        flow: LiveFlow,
        mut connection: Connection,
        memory: Memory,
        remote: rdma::RemoteMemory,
    ) -> Self {
        connection.report_each();
        let number = connection.number();
        Self {
            flow,
            connection,
            number,
            memory,
            remote,
            posted: 0,
            completed: 0,
            times: VecDeque::new(),
            started: None,
            completions: None,
            latency: Latency::default(),
            failed: false,
            found: Vec::new(),
        }
    }

    /// Connects to the peer, and gets the address of its memory.
    fn connect(flow: LiveFlow) -> Result<Self, String> {
        let peer = flow
            .peer
            .ok_or("a flow that connects has no address of its peer")?;
        let mut memory = Err(rdma::Error::Disconnected);
        let (connection, answer) = Connection::connect(
            SocketAddr::new(peer.into(), PORT),
            flow.sizes(),
            &flow.number.to_le_bytes(),
            |_, domain| {
                memory = flow.source(domain);
                Ok(())
            },
        )
        .map_err(text)?;
        let (address, rest) = answer
            .split_first_chunk()
            .ok_or("the answer of the peer has no address of memory")?;
        let key = rest
            .first_chunk()
            .ok_or("the answer of the peer has no key of memory")?;
        let remote = rdma::RemoteMemory {
            address: u64::from_le_bytes(*address),
            key: u32::from_le_bytes(*key),
        };
        Ok(Self::new(flow, connection, memory.map_err(text)?, remote))
    }

    /// Takes completions, and posts what may be posted; whether there was anything.
    fn step(&mut self, now: u64, posts: bool) -> bool {
        if self.failed {
            return false;
        }
        match self.connection.poll(&mut self.found) {
            Ok(0) => {}
            Ok(_) => self.take(now),
            Err(_) => self.failed = true,
        }
        let mut moved = false;
        while posts && !self.failed && self.may_post(now) {
            moved = true;
            match self.post() {
                Ok(()) => {
                    self.started.get_or_insert(now.max(self.flow.start_ns));
                    self.times.push_back(now);
                    self.posted += 1;
                }
                Err(_) => self.failed = true,
            }
        }
        moved
    }

    fn may_post(&self, now: u64) -> bool {
        let on_the_way = self.posted - self.completed;
        self.flow.peer.is_some()
            && now >= self.flow.start_ns
            && self.posted < self.flow.messages
            && on_the_way < u64::from(self.flow.depth())
    }

    fn post(&mut self) -> Result<(), rdma::Error> {
        let (length, remote) = (self.flow.message_bytes as usize, self.remote);
        let connection = &mut self.connection;
        match &mut self.memory {
            Memory::Source(buffer) => {
                if !connection.write_shared(buffer, 0..length, remote, 0)? {
                    return Err(rdma::Error::Disconnected);
                }
            }
            Memory::Landing(landing) => connection.read_part(landing, 0..length, remote, 0)?,
            Memory::Free(free) => {
                let buffer = free.pop().ok_or(rdma::Error::Full)?;
                connection
                    .send(buffer, length, None, 0)
                    .map_err(|(error, _)| error)?;
            }
            Memory::Open { .. } | Memory::Receives => return Err(rdma::Error::Disconnected),
        }
        // Each message leaves when it is posted, and not in a list with others.
        connection.flush()
    }

    fn take(&mut self, now: u64) {
        for Completion {
            done,
            buffer,
            token,
            ..
        } in std::mem::take(&mut self.found)
        {
            match (done, &mut self.memory, buffer) {
                (Ok(Done::Sent), memory, buffer) => {
                    if let (Memory::Free(free), Some(buffer)) = (memory, buffer) {
                        free.push(buffer);
                    }
                    self.completed += 1;
                    let posted = self.times.pop_front().unwrap_or(now);
                    self.latency.add(now - posted);
                    self.completions =
                        Some([self.completions.map_or(now, |[first, _]| first), now]);
                }
                (Ok(Done::Receive(_)), _, Some(buffer)) => {
                    self.failed |= self.connection.receive(buffer, token).is_err();
                }
                (Ok(Done::Receive(_)), _, None) | (Err(_), _, _) => self.failed = true,
            }
        }
    }

    /// Whether the flow has nothing more to post.
    fn is_over(&self) -> bool {
        self.flow.peer.is_none() || self.failed || self.completed >= self.flow.messages
    }

    fn outcome(&self, timeouts: u64) -> Outcome {
        let Latency {
            count,
            sum_ns,
            max_ns,
            buckets,
        } = self.latency.clone();
        Outcome {
            flow: self.flow.number,
            started_ns: self.started,
            completed_ns: self.completions,
            messages: self.completed,
            is_done: self.completed == self.flow.messages,
            failed: self.failed,
            timeouts,
            latency: (count, sum_ns, max_ns, buckets),
        }
    }
}

/// A connection that is accepted and not confirmed.
struct Accepted {
    flow: LiveFlow,
    half: HalfOpen,
    memory: Memory,
}

/// Accepts the connections of some flows.
fn accept(listener: &Listener, flows: Vec<LiveFlow>) -> Result<Vec<End>, String> {
    let deadline = Instant::now() + CONNECT;
    let (mut waiting, mut ends): (Vec<Accepted>, Vec<End>) = (Vec::new(), Vec::new());
    while ends.len() < flows.len() {
        match listener.next_event().map_err(text)? {
            Some(ListenerEvent::Request(request)) => waiting.push(prepare(request, &flows)?),
            Some(ListenerEvent::Established(key)) => {
                let Some(at) = waiting.iter().position(|one| one.half.key() == key) else {
                    continue;
                };
                let Accepted { flow, half, memory } = waiting.swap_remove(at);
                ends.push(End::new(
                    flow,
                    half.establish().map_err(text)?,
                    memory,
                    rdma::RemoteMemory { address: 0, key: 0 },
                ));
            }
            Some(ListenerEvent::Failed(_)) => {
                return Err("a peer ended its connection before it was established".to_owned());
            }
            None if Instant::now() > deadline => {
                return Err(format!(
                    "{} of {} connections were made in time",
                    ends.len(),
                    flows.len()
                ));
            }
            None => sleep(Duration::from_millis(1)),
        }
    }
    Ok(ends)
}

/// Answers a request, with the memory that the peer may read or write.
fn prepare(request: Request, flows: &[LiveFlow]) -> Result<Accepted, String> {
    let number = request
        .private_data
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes));
    let flow = flows
        .iter()
        .find(|flow| Some(flow.number) == number)
        .copied();
    let flow = flow.ok_or("a connection request has the number of no flow")?;
    let domain = request.own_domain().map_err(text)?;
    let mut half = request.prepare(&domain, flow.sizes()).map_err(text)?;
    let length = flow.message_bytes as usize;
    let (mut memory, mut remote) = (Memory::Receives, (0, 0));
    if flow.moves == Moves::Send {
        for token in 0..u64::from(flow.depth()) {
            let buffer = domain.registered(length).map_err(text)?;
            half.receive(buffer, token)
                .map_err(|(error, _)| text(error))?;
        }
    } else {
        let buffer = domain.open(length).map_err(text)?;
        remote = domain
            .remote(&buffer)
            .ok_or("the buffer is not open for remote access")?;
        memory = Memory::Open { _buffer: buffer };
    }
    let mut answer = remote.0.to_le_bytes().to_vec();
    answer.extend(remote.1.to_le_bytes());
    half.accept(&answer).map_err(text)?;
    Ok(Accepted { flow, half, memory })
}
