//! Questions to a host over real sockets.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use doctor::probe::{Answer, Ask, CLOSED_PORT, Ends, HOP_LIMIT, Heard, ProbeMessage, Question};
use wire::ROCE_PORT;
use wire::cm::{CmMessage, CommId};

use super::speaker::Speaker;
use crate::Error;
use crate::sys::datagrams::{self, Packet};

/// How long an answer may take. Linux limits ICMP errors to one a second for each host, after six.
const ANSWER_TIME: Duration = Duration::from_millis(1100);

/// The time between two packets: what one probe sends to a network in a second is nothing.
const INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of the largest packet that is received.
pub(super) const PACKET_MAX: usize = 9216;

/// The handler of other hosts' questions while this one waits for answers.
pub(super) trait Aside: std::fmt::Debug {
    /// Whether the packet is a question, which is answered then.
    fn takes(&mut self, packet: &Packet, heard: &Heard) -> bool;
}

/// The sockets at UDP port 4791, where answers arrive, and at the port of cooperating ends.
#[derive(Debug)]
pub(super) struct Receiver {
    sockets: Vec<(UdpSocket, u16)>,
    aside: Option<RefCell<Box<dyn Aside>>>,
}

impl Receiver {
    /// Takes the ports, of all addresses of this machine.
    ///
    /// # Errors
    /// When something else has a port.
    pub(super) fn open(port: u16) -> Result<Self, Error> {
        let mut sockets = vec![(bound(ROCE_PORT)?, ROCE_PORT)];
        if port != ROCE_PORT {
            sockets.push((bound(port)?, port));
        }
        Ok(Self {
            sockets,
            aside: None,
        })
    }

    /// The same, with questions of others answered by this whenever packets are received.
    pub(super) fn answering(self, aside: Box<dyn Aside>) -> Self {
        Self {
            aside: Some(RefCell::new(aside)),
            ..self
        }
    }

    /// The port of cooperating ends.
    pub(super) fn port(&self) -> u16 {
        self.sockets.last().map_or(ROCE_PORT, |(_, port)| *port)
    }

    /// Messages to one host.
    ///
    /// # Errors
    /// When there is no route to it.
    pub(super) fn to(&self, target: IpAddr) -> Result<Network<'_>, Error> {
        let failed = |error: io::Error| Error::Unread(format!("{target}: {error}"));
        let speaker =
            Speaker::new(own_address(target).map_err(failed)?, self.port()).map_err(failed)?;
        let number = std::process::id() << 8 | 1;
        Ok(Network {
            receiver: self,
            speaker,
            target,
            number,
        })
    }

    /// Waits for a packet.
    ///
    /// # Errors
    /// As poll(2).
    pub(super) fn wait(&self, also: &[RawFd], most: Duration) -> io::Result<()> {
        let own = self.sockets.iter().map(|(socket, _)| socket.as_raw_fd());
        let all: Vec<(RawFd, bool)> = own
            .chain(also.iter().copied())
            .map(|fd| (fd, false))
            .collect();
        datagrams::wait(&all, most)
    }

    /// The next packet, and what it holds if that is of a probe.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub(super) fn next(&self, buffer: &mut [u8]) -> io::Result<Option<(Packet, Option<Heard>)>> {
        loop {
            let found = self.any(buffer)?;
            match (&found, &self.aside) {
                (Some((packet, Some(heard))), Some(aside))
                    if aside.borrow_mut().takes(packet, heard) => {}
                _ => return Ok(found),
            }
        }
    }

    fn any(&self, buffer: &mut [u8]) -> io::Result<Option<(Packet, Option<Heard>)>> {
        for (socket, port) in &self.sockets {
            let Some(packet) = datagrams::receive(socket, buffer)? else {
                continue;
            };
            let ends = Ends {
                source: packet.source.ip(),
                destination: packet.destination,
                source_port: packet.source.port(),
                destination_port: *port,
            };
            let heard = buffer
                .get(..packet.length)
                .and_then(|bytes| ends.parse(bytes));
            return Ok(Some((packet, heard)));
        }
        Ok(None)
    }
}

fn bound(port: u16) -> Result<UdpSocket, Error> {
    let v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
    let (socket, is_v6) = match v6 {
        Ok(socket) => (Ok(socket), true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => (Err(error), true),
        Err(_) => (UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)), false),
    };
    let prepared =
        socket.and_then(|socket| datagrams::show_headers(&socket, is_v6).map(|()| socket));
    prepared.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::Unread(format!(
            "UDP port {port} of this machine is in use, by a program with a rockery device, rxe or another \
             probe: end it, or ask from another machine"
        )),
        _ => Error::Unread(format!("UDP port {port}: {error}")),
    })
}

/// The address that packets to a host leave from.
pub(super) fn own_address(target: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if target.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((target, ROCE_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// Messages to one host, and its answers.
#[derive(Debug)]
pub(super) struct Network<'a> {
    receiver: &'a Receiver,
    speaker: Speaker,
    target: IpAddr,
    number: u32,
}

impl Ask for Network<'_> {
    fn ask(&mut self, question: Question) -> Answer {
        std::thread::sleep(INTERVAL);
        let asked = match question {
            Question::Echo(bytes) => self.echo(bytes),
            _ => self.ask_by_udp(question),
        };
        asked.unwrap_or_else(|error| match error.raw_os_error() {
            Some(libc::EMSGSIZE) => Answer::TooLongHere,
            _ => Answer::NotSent(error.to_string()),
        })
    }
}

impl Network<'_> {
    fn ask_by_udp(&mut self, question: Question) -> io::Result<Answer> {
        // Reports about an earlier question that arrived too late are no answer to this one.
        while self.speaker.report()?.is_some() {}
        let ends = Ends {
            destination_port: ROCE_PORT,
            ..self.speaker.ends(self.target)
        };
        let (class, port, bytes) = match question {
            // A REQ that is repeated has the number of the first one.
            Question::Request => (0, Some(ROCE_PORT), ends.request(self.number)),
            Question::Look {
                traffic_class,
                bytes,
            } => {
                self.number += 1;
                let look = ProbeMessage::Look {
                    question: self.number,
                    traffic_class,
                };
                (
                    traffic_class,
                    None,
                    self.speaker.ends(self.target).message(look, bytes),
                )
            }
            Question::Closed(bytes) | Question::Echo(bytes) => {
                let around = if self.target.is_ipv6() { 48 } else { 28 };
                (0, Some(CLOSED_PORT), vec![0; bytes.saturating_sub(around)])
            }
        };
        self.speaker.mark(class)?;
        self.speaker.send(self.target, port, &bytes)?;
        let until = Instant::now() + ANSWER_TIME;
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.receiver.wait(&[self.speaker.raw()], left)?;
            if let Some(report) = self.speaker.report()? {
                return Ok(meaning(report));
            }
            while let Some((packet, heard)) = self.receiver.next(&mut buffer)? {
                if let Some(answer) = heard.and_then(|heard| self.answer(&packet, &heard, question))
                {
                    return Ok(answer);
                }
            }
            if left.is_zero() {
                return Ok(Answer::Silent);
            }
        }
    }

    fn answer(&self, packet: &Packet, heard: &Heard, question: Question) -> Option<Answer> {
        // Questions to different hosts may have one number.
        if packet.source.ip() != self.target {
            return None;
        }
        match (heard, question) {
            (Heard::Management(mad), Question::Request) => {
                let own = CommId(self.number);
                let what = match &mad.message {
                    CmMessage::Rej(rej) if rej.remote_comm_id == own => {
                        format!("REJ with reason {}", rej.reason.0)
                    }
                    CmMessage::Rep(rep) if rep.remote_comm_id == own => "REP".to_owned(),
                    CmMessage::Mra(mra) if mra.remote_comm_id == own => "MRA".to_owned(),
                    _ => return None,
                };
                Some(Answer::Answered {
                    what,
                    hop_limit: packet.hop_limit,
                })
            }
            (Heard::Probe(ProbeMessage::Seen(seen)), Question::Look { .. })
                if seen.question == self.number =>
            {
                Some(Answer::Seen {
                    seen: *seen,
                    traffic_class: packet.traffic_class,
                })
            }
            _ => None,
        }
    }

    fn echo(&mut self, bytes: usize) -> io::Result<Answer> {
        let is_v6 = self.target.is_ipv6();
        let socket = UdpSocket::from(datagrams::echo_socket(is_v6)?);
        datagrams::ask_plainly(&socket, is_v6, HOP_LIMIT)?;
        socket.set_nonblocking(true)?;
        // Type, code, checksum and identifier: the kernel fills in the last two.
        let around = if is_v6 { 48 } else { 28 };
        let mut request = vec![0; 8 + bytes.saturating_sub(around)];
        request[0] = if is_v6 { 128 } else { 8 };
        request[7] = 1;
        socket.send_to(&request, (self.target, 0))?;
        let until = Instant::now() + ANSWER_TIME;
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.receiver.wait(&[socket.as_raw_fd()], left)?;
            // Questions of other hosts are answered meanwhile; what else arrives is late.
            while self.receiver.next(&mut buffer)?.is_some() {}
            if let Some(report) = datagrams::report(&socket)? {
                return Ok(meaning(report));
            }
            if let Some(packet) = datagrams::receive(&socket, &mut buffer)?
                && packet.source.ip() == self.target
            {
                let what = "echo reply".to_owned();
                return Ok(Answer::Answered {
                    what,
                    hop_limit: packet.hop_limit,
                });
            }
            if left.is_zero() {
                return Ok(Answer::Silent);
            }
        }
    }
}

/// The meaning of an ICMP error as an answer.
fn meaning(report: datagrams::Report) -> Answer {
    match (report.error, report.from) {
        (libc::EMSGSIZE, None) => Answer::TooLongHere,
        (libc::EMSGSIZE, Some(from)) => Answer::TooLong(from, report.mtu),
        (libc::ECONNREFUSED, Some(from)) => Answer::PortClosed(from),
        (error, Some(from)) => {
            Answer::Unreachable(from, io::Error::from_raw_os_error(error).to_string())
        }
        (error, None) => Answer::NotSent(io::Error::from_raw_os_error(error).to_string()),
    }
}
