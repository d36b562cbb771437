//! The survey of one host: one question at a time, and conclusions from the answers.

use core::fmt;
use std::net::IpAddr;

use super::datagram::udp_overhead;
use super::message::Seen;

/// Payloads of RoCE packets, the largest first.
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// How often a question is repeated until an answer arrives.
const TRIES: usize = 3;

/// The mark of a sender that takes part in ECN: ECT(0).
const ECT: u8 = 2;

/// Bytes of the IP packet of an RDMA WRITE with immediate data and this payload: BTH, RETH, immediate data
/// and ICRC are 36 bytes.
pub fn packet_bytes(mtu: u32, address: IpAddr) -> usize {
    mtu as usize + 36 + udp_overhead(address)
}

/// A packet that requests an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// A REQ to queue pair 1, which every RoCE stack answers.
    Request,
    /// A UDP datagram to a port without listener, with so many bytes of IP packet.
    Closed(usize),
    /// An ICMP echo request, with so many bytes of IP packet.
    Echo(usize),
    /// A packet that a cooperating end answers with a report of its arrival.
    Look {
        /// DSCP and ECN of the packet, and of the answer.
        traffic_class: u8,
        /// Bytes of the IP packet; 0 for the shortest.
        bytes: usize,
    },
}

/// The answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A message of connection management, or the answer to an echo request.
    Answered {
        /// The message in words.
        what: String,
        /// TTL or hop limit of the answer.
        hop_limit: u8,
    },
    /// The report of a cooperating end.
    Seen {
        /// The content of the report.
        seen: Seen,
        /// DSCP and ECN of the answer as it arrived here.
        traffic_class: u8,
    },
    /// The destination has no listener on the port (ICMP port unreachable).
    PortClosed(IpAddr),
    /// Another ICMP error, with the address that sent it.
    Unreachable(IpAddr, String),
    /// The packet is too long for a link: the router that reports it, and its MTU.
    TooLong(IpAddr, u32),
    /// The packet is too long for this machine's own interface.
    TooLongHere,
    /// No answer in time.
    Silent,
    /// This machine could not send it.
    NotSent(String),
}

/// Sends one packet and waits for the answer.
pub trait Ask {
    /// Sends the question once.
    fn ask(&mut self, question: Question) -> Answer;
}

/// Whether a RoCE stack was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The host answered the REQ.
    Answered,
    /// The host reports by ICMP that UDP port 4791 has no listener.
    NoStack,
    /// No answer to the REQ, and the host answers other packets.
    Blocked,
    /// No answer to anything.
    Nothing,
    /// This machine could not send the question.
    NotSent,
}

/// The cause that limits the packet size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeLimit {
    /// A router reports it: its address and MTU.
    Router(IpAddr, u32),
    /// Longer packets are dropped without an ICMP error, and shorter ones before and after them arrive.
    Vanish,
    /// The interface of this machine, so that nothing is known of longer packets.
    ThisMachine,
}

/// Sizes of payload of RoCE packets that get through.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sizes {
    /// The largest payload that got through.
    pub largest: Option<u32>,
    /// The reason why the next larger one did not.
    pub limit: Option<SizeLimit>,
}

/// Marks of a packet: as they were sent, as they arrived, and those of the answer as they arrived here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// DSCP and ECN of packet and answer, as they were sent.
    pub sent: u8,
    /// DSCP and ECN with which the packet arrived.
    pub arrived: u8,
    /// DSCP and ECN with which the answer arrived.
    pub returned: u8,
    /// The number of the line in the log.
    pub line: usize,
}

/// All observations of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// The host's name on the command line.
    pub host: String,
    /// The address that was probed.
    pub address: IpAddr,
    /// Each question with its answer.
    pub log: Vec<String>,
    /// Whether RoCE is reached.
    pub reach: Reach,
    /// The packet sizes that get through.
    pub sizes: Sizes,
    /// The report of a cooperating end; `None` where there is none.
    pub cooperates: Option<Seen>,
    /// The marks that arrive; empty without a cooperating end.
    pub marks: Vec<Mark>,
    /// Routers between this machine and the host, and whether that is exact: without a cooperating end the
    /// first TTL of the answer is guessed.
    pub hops: Option<(u8, bool)>,
}

/// Probes a host. `dscps` are the marks to try, that of data first.
pub fn survey(host: &str, address: IpAddr, dscps: &[u8], network: &mut dyn Ask) -> Observed {
    let observed = Observed {
        host: host.to_owned(),
        address,
        log: Vec::new(),
        reach: Reach::Nothing,
        sizes: Sizes::default(),
        cooperates: None,
        marks: Vec::new(),
        hops: None,
    };
    let mut survey = Survey { network, observed };
    survey.reach();
    if survey.observed.reach != Reach::Nothing && survey.observed.reach != Reach::NotSent {
        survey.marks(dscps);
        survey.sizes(dscps.first().copied().unwrap_or(0));
    }
    survey.observed
}

struct Survey<'a> {
    network: &'a mut dyn Ask,
    observed: Observed,
}

impl Survey<'_> {
    /// Sends a question until an answer arrives, and logs both.
    fn ask(&mut self, question: Question) -> Answer {
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            match self.network.ask(question) {
                Answer::Silent if tries < TRIES => {}
                answer => break answer,
            }
        };
        let often = if tries > 1 {
            format!(" ({tries} times)")
        } else {
            String::new()
        };
        self.observed
            .log
            .push(format!("{question}{often}: {answer}"));
        answer
    }

    fn reach(&mut self) {
        self.observed.reach = match self.ask(Question::Request) {
            Answer::Answered { hop_limit, .. } => {
                self.observed.hops = Some((guessed_hops(hop_limit), false));
                Reach::Answered
            }
            Answer::PortClosed(from) if from == self.observed.address => Reach::NoStack,
            Answer::NotSent(_) => Reach::NotSent,
            _ if self.is_up(Question::Closed(0)) || self.is_up(Question::Echo(0)) => Reach::Blocked,
            _ => Reach::Nothing,
        };
    }

    fn is_up(&mut self, question: Question) -> bool {
        let own = self.observed.address;
        match self.ask(question) {
            Answer::Answered { .. } => true,
            Answer::PortClosed(from) => from == own,
            _ => false,
        }
    }

    fn marks(&mut self, dscps: &[u8]) {
        for dscp in dscps {
            let sent = dscp << 2 | ECT;
            let question = Question::Look {
                traffic_class: sent,
                bytes: 0,
            };
            let Answer::Seen {
                seen,
                traffic_class,
            } = self.ask(question)
            else {
                // An end that does not cooperate does not answer further looks.
                if self.observed.cooperates.is_none() {
                    return;
                }
                continue;
            };
            self.observed.hops = Some((super::HOP_LIMIT.saturating_sub(seen.hop_limit), true));
            self.observed.cooperates = Some(seen);
            let line = self.observed.log.len();
            let (arrived, returned) = (seen.traffic_class, traffic_class);
            self.observed.marks.push(Mark {
                sent,
                arrived,
                returned,
                line,
            });
        }
    }

    fn sizes(&mut self, dscp: u8) {
        let look = |bytes| Question::Look {
            traffic_class: dscp << 2 | ECT,
            bytes,
        };
        let candidates: [&dyn Fn(usize) -> Question; 3] =
            [&look, &Question::Echo, &Question::Closed];
        let without_listener = usize::from(self.observed.cooperates.is_none());
        let smallest = packet_bytes(0, self.observed.address);
        for make in &candidates[without_listener..] {
            if self.got_through(make(smallest)).is_ok() {
                self.observed.sizes = self.sizes_by(make, smallest);
                return;
            }
        }
    }

    fn sizes_by(&mut self, make: &dyn Fn(usize) -> Question, smallest: usize) -> Sizes {
        let mut sizes = Sizes::default();
        for mtu in MTUS {
            match self.got_through(make(packet_bytes(mtu, self.observed.address))) {
                Ok(()) => {
                    sizes.largest = Some(mtu);
                    break;
                }
                Err(limit) => sizes.limit = Some(limit),
            }
        }
        // Silence is a limit only if short packets are still answered: else the host stopped answering.
        if sizes.limit == Some(SizeLimit::Vanish) && self.got_through(make(smallest)).is_err() {
            sizes = Sizes::default();
        }
        sizes
    }

    fn got_through(&mut self, question: Question) -> Result<(), SizeLimit> {
        match self.ask(question) {
            Answer::Seen { .. } | Answer::Answered { .. } => Ok(()),
            Answer::PortClosed(from) if from == self.observed.address => Ok(()),
            Answer::TooLong(router, mtu) => Err(SizeLimit::Router(router, mtu)),
            // A packet that this machine did not send shows nothing of the network.
            Answer::TooLongHere | Answer::NotSent(_) => Err(SizeLimit::ThisMachine),
            _ => Err(SizeLimit::Vanish),
        }
    }
}

/// Guesses the number of hops, assuming that systems send with a hop limit of 64, 128 or 255.
const fn guessed_hops(hop_limit: u8) -> u8 {
    match hop_limit {
        0..=64 => 64 - hop_limit,
        65..=128 => 128 - hop_limit,
        _ => 255 - hop_limit,
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Request => write!(f, "REQ to queue pair 1"),
            Self::Closed(0) => write!(f, "UDP to port {}", super::CLOSED_PORT),
            Self::Closed(bytes) => {
                write!(f, "UDP to port {}, {bytes} bytes, DF", super::CLOSED_PORT)
            }
            Self::Echo(0) => write!(f, "ICMP echo request"),
            Self::Echo(bytes) => write!(f, "ICMP echo request, {bytes} bytes, DF"),
            Self::Look {
                traffic_class,
                bytes: 0,
            } => write!(f, "RoCE packet, {}", marks(traffic_class)),
            Self::Look {
                traffic_class,
                bytes,
            } => {
                write!(
                    f,
                    "RoCE packet, {}, {bytes} bytes, DF",
                    marks(traffic_class)
                )
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { what, hop_limit } => write!(f, "{what}, TTL {hop_limit}"),
            Self::Seen {
                seen,
                traffic_class,
            } => write!(
                f,
                "arrived with {}, TTL {}; the answer with {}",
                marks(seen.traffic_class),
                seen.hop_limit,
                marks(*traffic_class)
            ),
            Self::PortClosed(from) => write!(f, "ICMP port unreachable of {from}"),
            Self::Unreachable(from, what) => write!(f, "ICMP {what} of {from}"),
            Self::TooLong(from, mtu) => write!(f, "ICMP fragmentation needed of {from}, MTU {mtu}"),
            Self::TooLongHere => write!(f, "longer than the MTU of this machine's interface"),
            Self::Silent => write!(f, "no answer"),
            Self::NotSent(why) => write!(f, "not sent: {why}"),
        }
    }
}

/// DSCP and ECN in words.
pub(super) fn marks(traffic_class: u8) -> String {
    let ecn = ["Not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(traffic_class & 3)];
    format!("DSCP {} {ecn}", traffic_class >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{
        LoadEnd, LoadOrder, LoadShape, StreamOutcome, load_findings, survey_findings,
    };

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// A host without a listener, that answers as `answer` says.
    struct Fake<F>(F);

    impl<F: FnMut(Question) -> Answer> Ask for Fake<F> {
        fn ask(&mut self, question: Question) -> Answer {
            match question {
                Question::Request => Answer::Answered {
                    what: "REJ".to_owned(),
                    hop_limit: 61,
                },
                Question::Look { .. } => Answer::Silent,
                _ => (self.0)(question),
            }
        }
    }

    fn surveyed(answer: impl FnMut(Question) -> Answer) -> Observed {
        survey("server", HOST, &[26, 48, 0], &mut Fake(answer))
    }

    #[test]
    fn without_a_listener_marks_are_unknown_and_sizes_are_not() {
        let observed = surveyed(|_| Answer::PortClosed(HOST));
        assert_eq!(
            (observed.hops, observed.sizes.largest),
            (Some((3, false)), Some(4096))
        );
        assert!(observed.marks.is_empty() && survey_findings(&observed, 100).is_empty());
        // One look, repeated three times, is enough to find that there is no listener.
        assert_eq!(
            observed
                .log
                .iter()
                .filter(|line| line.contains("RoCE packet"))
                .count(),
            1
        );
    }

    #[test]
    fn a_host_that_stops_to_answer_says_nothing_about_sizes() {
        let mut left = 1;
        let observed = surveyed(|question| match (question, left) {
            (Question::Echo(_), 1..) => {
                left -= 1;
                Answer::Answered {
                    what: "echo reply".to_owned(),
                    hop_limit: 64,
                }
            }
            _ => Answer::Silent,
        });
        assert_eq!(observed.sizes, Sizes::default(), "{:#?}", observed.log);
        assert!(survey_findings(&observed, 100).is_empty());
    }

    #[test]
    fn the_own_interface_is_no_fault_of_the_network() {
        for error in [
            Answer::TooLongHere,
            Answer::NotSent("No buffer space available".to_owned()),
        ] {
            let observed = surveyed(|question| match question {
                Question::Echo(bytes) | Question::Closed(bytes) if bytes > 1500 => error.clone(),
                _ => Answer::PortClosed(HOST),
            });
            let limit = Some(SizeLimit::ThisMachine);
            assert_eq!(
                observed.sizes,
                Sizes {
                    largest: Some(1024),
                    limit
                }
            );
            assert!(survey_findings(&observed, 100).is_empty());
        }
    }

    #[test]
    fn programs_that_are_too_slow_say_nothing_about_the_network() {
        let stream = |behind, overrun| StreamOutcome {
            host: "server".to_owned(),
            order: LoadOrder {
                kbps: 40_000,
                ..LoadOrder::default()
            },
            end: Some(LoadEnd {
                sent: 1000 - behind,
                behind,
                ..LoadEnd::default()
            }),
            refused: None,
            arrived: 500,
            marked: 0,
            slots: Vec::new(),
            overrun,
        };
        let shape = LoadShape {
            gbps: 100,
            dscp: 26,
        };
        let found = |stream: StreamOutcome| {
            load_findings(
                std::slice::from_ref(&stream),
                std::slice::from_ref(&stream),
                shape,
            )
        };
        assert!(found(stream(500, 0)).is_empty() && found(stream(0, 1)).is_empty());
        let rules: Vec<_> = found(stream(0, 0))
            .into_iter()
            .map(|finding| finding.rule)
            .collect();
        assert_eq!(rules, ["probe-slow-host", "probe-lossy-class"]);
    }
}
