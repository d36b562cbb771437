//! One host's part in a test of a lab: it listens, and tries to reach the other hosts by TCP over both
//! versions of IP, and by RDMA. It reads commands and writes answers, one JSON object per line, on standard
//! input and output.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use rdma::{Connection, HalfOpen, Listener, ListenerEvent, Sizes};
use serde::{Deserialize, Serialize};

/// The port at which hosts listen.
const PORT: u16 = 18_516;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long a step may take, by the machine's clock.
const STEP: Duration = Duration::from_secs(10);
/// Peers that are tried at the same time.
const AT_ONCE: usize = 8;
/// Bytes of the message: a whole packet of the largest path MTU.
const MESSAGE_BYTES: usize = 4096;
/// Sleeps of a loop that found nothing to do.
const IDLE: Duration = Duration::from_millis(1);
const SIZES: Sizes = Sizes {
    send: 1,
    receive: 1,
    reads: 0,
    rnr_retry: 7,
};

/// A host that is to be reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The name of the host, as the lab has it.
    pub name: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// How a host is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Way {
    /// TCP over IPv4.
    #[serde(rename = "IPv4")]
    Ipv4,
    /// TCP over IPv6.
    #[serde(rename = "IPv6")]
    Ipv6,
    /// A connection by RDMA-CM and a SEND.
    #[serde(rename = "RDMA")]
    Rdma,
}

impl Way {
    /// All ways that are tried.
    pub const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Rdma];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Rdma => "RDMA",
        }
    }
}

/// A way that does not lead to a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unreached {
    /// How it was tried.
    pub by: Way,
    /// What was the matter.
    pub why: String,
}

/// A command to a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReachCommand {
    /// All hosts listen: try these.
    Reach(Vec<Peer>),
}

/// An answer of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReachAnswer {
    /// Peers may try to reach it.
    Listens,
    /// What became of a peer.
    Tried {
        /// The name of the peer, as it was in the command.
        peer: String,
        /// The ways that do not lead there.
        failed: Vec<Unreached>,
    },
    /// All peers were tried.
    Over,
}

/// Does a host's part, until standard input ends.
pub fn act() {
    listen();
    say(&ReachAnswer::Listens);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(ReachCommand::Reach(peers)) = serde_json::from_str(&line) else {
            return;
        };
        let peers = Mutex::new(VecDeque::from(peers));
        let next = || {
            peers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
        };
        scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(peer) = next() {
                        let failed = try_peer(&peer);
                        let peer = peer.name;
                        say(&ReachAnswer::Tried { peer, failed });
                    }
                });
            }
        });
        say(&ReachAnswer::Over);
    }
}

fn say(what: &ReachAnswer) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(what).unwrap_or_default());
    let _ = out.flush();
}

/// Listens in threads of their own. A host that cannot listen is one that the others do not reach.
fn listen() {
    for address in [
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
        SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT),
    ] {
        // A socket of IPv6 takes connections of IPv4 too, unless the system is told otherwise (bindv6only);
        // then there is no room for the second one.
        if let Ok(listener) = TcpListener::bind(address) {
            spawn(move || {
                for stream in listener.incoming().flatten() {
                    spawn(move || echo(stream));
                }
            });
        }
    }
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
    if let Ok(listener) = Listener::new(any, BACKLOG) {
        spawn(move || serve(&listener));
    }
}

fn echo(mut stream: TcpStream) {
    let mut byte = [0];
    let _ = stream.set_read_timeout(Some(STEP));
    if stream.read_exact(&mut byte).is_ok() {
        let _ = stream.write_all(&byte);
    }
}

/// Accepts connections, and takes a message of each.
fn serve(listener: &Listener) {
    let (mut waiting, mut open): (Vec<HalfOpen>, Vec<Connection>) = (Vec::new(), Vec::new());
    loop {
        let event = listener.next_event();
        let is_idle = matches!(event, Ok(None));
        match event {
            Ok(Some(ListenerEvent::Request(request))) => waiting.extend(accepted(request)),
            Ok(Some(ListenerEvent::Established(key))) => {
                if let Some(at) = waiting.iter().position(|half| half.key() == key) {
                    open.extend(waiting.swap_remove(at).establish());
                }
            }
            Ok(Some(ListenerEvent::Failed(key))) => waiting.retain(|half| half.key() != key),
            Ok(None) => {}
            Err(_) => return,
        }
        let mut found = Vec::new();
        open.retain_mut(|connection| {
            connection.poll(&mut found).is_ok() && connection.check_events().is_ok()
        });
        if is_idle {
            sleep(IDLE);
        }
    }
}

fn accepted(request: rdma::Request) -> Option<HalfOpen> {
    let domain = request.own_domain().ok()?;
    let mut half = request.prepare(&domain, SIZES).ok()?;
    let buffer = domain.registered(MESSAGE_BYTES).ok()?;
    half.receive(buffer, 0).ok()?;
    half.accept(&[]).ok()?;
    Some(half)
}

/// Tries all ways to a host; those that fail.
fn try_peer(peer: &Peer) -> Vec<Unreached> {
    let try_by = |by| match by {
        Way::Ipv4 => by_tcp(peer.v4.into()),
        Way::Ipv6 => by_tcp(peer.v6.into()),
        Way::Rdma => by_rdma(peer.v4.into()),
    };
    // At the same time: each may wait for its whole limit.
    scope(|scope| {
        let threads = Way::ALL.map(|by| (by, scope.spawn(move || try_by(by))));
        let ended = threads.map(|(by, thread)| {
            let result = thread
                .join()
                .unwrap_or_else(|_| Err("the thread of the test has panicked".to_owned()));
            result.err().map(|why| Unreached { by, why })
        });
        ended.into_iter().flatten().collect()
    })
}

fn by_tcp(peer: IpAddr) -> Result<(), String> {
    let text = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("no answer within {} s", STEP.as_secs())
        }
        _ => os_text(&error),
    };
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::new(peer, PORT), STEP).map_err(text)?;
    stream.set_read_timeout(Some(STEP)).map_err(text)?;
    stream.write_all(&[1]).map_err(text)?;
    stream.read_exact(&mut [0]).map_err(text)
}

/// The text of an error without the number that the standard library appends.
fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((before, _)) => before.to_lowercase(),
        None => text,
    }
}

fn by_rdma(peer: IpAddr) -> Result<(), String> {
    let text = |error: rdma::Error| error.to_string();
    let address = SocketAddr::new(peer, PORT);
    let mut message = None;
    let (mut connection, _) = Connection::connect(address, SIZES, &[], |_, domain| {
        message = Some(domain.registered(MESSAGE_BYTES)?);
        Ok(())
    })
    .map_err(text)?;
    let message = message.ok_or("the connection was made without a buffer for the message")?;
    connection.report_each();
    connection
        .send(message, MESSAGE_BYTES, None, 0)
        .map_err(|(error, _)| text(error))?;
    let deadline = Instant::now() + STEP;
    let mut found = Vec::new();
    while found.is_empty() {
        connection.poll(&mut found).map_err(text)?;
        if Instant::now() > deadline {
            return Err(format!(
                "connected, and a SEND of {MESSAGE_BYTES} bytes is not acknowledged within {} s",
                STEP.as_secs()
            ));
        }
        if found.is_empty() {
            sleep(IDLE);
        }
    }
    connection.disconnect();
    let failed = found
        .into_iter()
        .find_map(|completion| completion.done.err());
    match failed {
        Some(status) => Err(format!(
            "connected, and a SEND of {MESSAGE_BYTES} bytes ends with status {status}"
        )),
        None => Ok(()),
    }
}
