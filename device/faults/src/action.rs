//! What happens at a point.

use crate::text::Words;
use crate::value::{count, errno, errno_text, number, rate, rate_text, size, time, time_text};
use crate::{EventKind, Limit, Point, RuleError, WcStatus};
use core::fmt;
use core::time::Duration;

/// What a rule makes happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The call does nothing, and returns this error number.
    Fail(i32),
    /// The call takes longer.
    Slow(Duration),
    /// The call waits for this time, or until the rule is removed.
    Block(Option<Duration>),
    /// The call succeeds, and the event that it leads to reports this error number.
    Report(i32),
    /// An asynchronous event is raised, with what it means for its object.
    Raise(EventKind),
    /// The request is not executed, and completes with this status.
    Status(WcStatus),
    /// The completion is reported later, and those of its queue pair behind it.
    Late(Duration),
    /// The packet or message is lost.
    Drop,
    /// The packet or message leaves later.
    Delay(Duration),
    /// The packet or message leaves twice.
    Duplicate,
    /// The packet leaves behind so many others.
    Reorder(u64),
    /// A bit of the packet is wrong.
    Corrupt,
    /// The packet has the mark of congestion (ECN CE).
    Mark,
    /// Packets leave at this rate at most, in bits per second.
    Rate(u64),
    /// A request for a connection is rejected with this reason (IBTA 12.6.7.2).
    Reject(u16),
    /// A limit of the device is lower.
    Limit(Limit, u64),
    /// The message that arrives for a receive is refused so many times, as if the receive were not posted.
    Rnr(u32),
    /// The keys of memory are invalid after this time.
    Expire(Duration),
    /// The page at this offset of on-demand memory is not there when the device needs it.
    OdpFault(u64),
}

impl Action {
    /// Whether it happens when the call begins, and not to what the call makes.
    pub const fn is_of_call(self) -> bool {
        !matches!(
            self,
            Self::Report(_) | Self::Rnr(_) | Self::Expire(_) | Self::OdpFault(_)
        )
    }
}

/// Calls with an event that may report an error.
const REPORTING: &[&str] = &["rdma_resolve_addr", "rdma_resolve_route"];
/// Calls that post receives.
const RECEIVING: &[&str] = &["post_recv", "post_srq_recv"];
/// The call that registers memory.
const REGISTERING: &str = "reg_mr";

/// The words of one action, behind its verb.
struct Parser<'a, 'text> {
    words: &'a mut Words<'text>,
    verb: &'text str,
}

impl<'text> Parser<'_, 'text> {
    fn word(&mut self, what: &'static str, example: &'static str) -> Result<&'text str, RuleError> {
        self.words.next_or(self.verb, what, example)
    }

    fn time(&mut self, example: &'static str) -> Result<Duration, RuleError> {
        time(self.word("a time", example)?)
    }

    fn of_call(&mut self, name: &str) -> Result<Action, RuleError> {
        match self.verb {
            "fail" => errno(self.word("an error number", "reg_mr: fail ENOMEM")?).map(Action::Fail),
            "slow" => self.time("post_send: slow 10us").map(Action::Slow),
            "block" => match self.words.peek() {
                Some(word) if word.starts_with(|first: char| first.is_ascii_digit()) => {
                    self.words.skip();
                    time(word).map(Some).map(Action::Block)
                }
                _ => Ok(Action::Block(None)),
            },
            "report" if REPORTING.contains(&name) => {
                errno(self.word("an error number", "rdma_resolve_addr: report ETIMEDOUT")?)
                    .map(Action::Report)
            }
            "report" => Err(RuleError::Never(format!(
                "{name} leads to no event with an error number; {} do",
                REPORTING.join(" and ")
            ))),
            "raise" if !name.starts_with("rdma_") => self.event(),
            "rnr" if RECEIVING.contains(&name) => self.refusals(),
            "rnr" => Err(RuleError::Never(format!(
                "{name} posts no receive, for which a message could be refused; {} do",
                RECEIVING.join(" and ")
            ))),
            "expire" if name == REGISTERING => self.time("reg_mr: expire 2s").map(Action::Expire),
            "odp_fault" if name == REGISTERING => {
                let text = self.word("an offset", "reg_mr: odp_fault 4096")?;
                size(text).map(Action::OdpFault)
            }
            "expire" | "odp_fault" => Err(RuleError::Never(format!(
                "{name} registers no memory; {REGISTERING} does"
            ))),
            verb => Err(RuleError::wrong(
                "fault of a call",
                verb,
                match name {
                    REGISTERING => {
                        "write fail ERRNO, slow TIME, block [TIME], raise EVENT, expire TIME or \
                         odp_fault OFFSET"
                    }
                    _ if RECEIVING.contains(&name) => {
                        "write fail ERRNO, slow TIME, block [TIME], raise EVENT or rnr TIMES"
                    }
                    _ => "write fail ERRNO, slow TIME, block [TIME] or raise EVENT",
                },
            )),
        }
    }

    /// How often a message is refused.
    fn refusals(&mut self) -> Result<Action, RuleError> {
        let text = self.word("a number of RNR NAKs", "post_recv: rnr 3")?;
        let times = u32::try_from(count(text, "number of RNR NAKs")?);
        times
            .map(Action::Rnr)
            .map_err(|_| RuleError::wrong("number of RNR NAKs", text, "write 4294967295 or less"))
    }

    fn event(&mut self) -> Result<Action, RuleError> {
        let event = self.word("an event", "time: raise port_err from 2s")?;
        EventKind::parse_event(event).map(Action::Raise)
    }

    fn of_completion(&mut self) -> Result<Action, RuleError> {
        match self.verb {
            "status" => {
                let status = self.word("a status", "completion: status RETRY_EXC_ERR")?;
                WcStatus::parse(status).map(Action::Status)
            }
            "late" => self.time("completion: late 5ms").map(Action::Late),
            "double" | "duplicate" | "twice" => Err(RuleError::Impossible(
                "a work request completes once, so that its wr_id can be used again".to_owned(),
            )),
            "drop" | "lose" | "never" => Err(RuleError::Impossible(
                "each signaled request completes, in error if need be; write `late` with a long time, or \
                 a status"
                    .to_owned(),
            )),
            verb => Err(RuleError::wrong(
                "fault of a completion",
                verb,
                "write status STATUS or late TIME",
            )),
        }
    }

    fn of_packet(&mut self) -> Result<Action, RuleError> {
        match self.verb {
            "drop" => Ok(Action::Drop),
            "delay" => self.time("packet: delay 1ms").map(Action::Delay),
            "duplicate" => Ok(Action::Duplicate),
            "reorder" => {
                let packets = self.word("a number of packets", "packet: reorder 3 every 100")?;
                count(packets, "number of packets").map(Action::Reorder)
            }
            "corrupt" => Ok(Action::Corrupt),
            "mark" => Ok(Action::Mark),
            "rate" => rate(self.word("a rate", "packet: rate 1Gb/s")?).map(Action::Rate),
            "pause" => Err(RuleError::Impossible(
                "PFC pauses ports, and not programs: run a lab with PFC, or write `rate`"
                    .to_owned(),
            )),
            verb => Err(RuleError::wrong(
                "fault of a packet",
                verb,
                "write drop, delay TIME, duplicate, reorder PACKETS, corrupt, mark or rate RATE",
            )),
        }
    }

    fn of_message(&mut self) -> Result<Action, RuleError> {
        match self.verb {
            "drop" => Ok(Action::Drop),
            "delay" => self.time("cm: delay 2s opcode rtu").map(Action::Delay),
            "duplicate" => Ok(Action::Duplicate),
            "reject" => {
                const REASON_MAX: u64 = 35;
                let reason = self.word("a reason", "cm: reject 28")?;
                let value = number(reason, "reason of a reject")?;
                let known = u16::try_from(value).ok();
                known
                    .filter(|_| (1..=REASON_MAX).contains(&value))
                    .map(Action::Reject)
                    .ok_or_else(|| {
                        let remedy = "write 1 to 35, as in IBTA 12.6.7.2: 28 is the consumer's";
                        RuleError::wrong("reason of a reject", reason, remedy)
                    })
            }
            verb => Err(RuleError::wrong(
                "fault of the connection manager",
                verb,
                "write drop, delay TIME, duplicate or reject REASON",
            )),
        }
    }

    fn of_device(&mut self) -> Result<Action, RuleError> {
        const MTUS: [u64; 5] = [256, 512, 1024, 2048, 4096];
        let limit = Limit::parse(self.verb)?;
        let text = self.word("a number", "limit: max_qp 8")?;
        let value = match limit {
            Limit::RegisteredBytes => size(text)?,
            _ => number(text, "limit of a device")?,
        };
        if limit == Limit::ActiveMtu && !MTUS.contains(&value) {
            let remedy = "write 256, 512, 1024, 2048 or 4096";
            return Err(RuleError::wrong("MTU", text, remedy));
        }
        Ok(Action::Limit(limit, value))
    }
}

impl Action {
    pub(crate) fn parse(point: Point, words: &mut Words<'_>) -> Result<Self, RuleError> {
        let example = match point {
            Point::Call(_) => "reg_mr: fail ENOMEM",
            Point::Completion => "completion: status RETRY_EXC_ERR",
            Point::Packet => "packet: drop probability 1%",
            Point::Cm => "cm: drop opcode rep times 1",
            Point::Time => "time: raise port_err from 2s",
            Point::Limit => "limit: max_qp 8",
        };
        let verb = words.next_or(&format!("{point}:"), "what happens", example)?;
        let mut parser = Parser { words, verb };
        match point {
            Point::Call(name) => parser.of_call(name),
            Point::Completion => parser.of_completion(),
            Point::Packet => parser.of_packet(),
            Point::Cm => parser.of_message(),
            Point::Time if verb == "raise" => parser.event(),
            Point::Time => {
                let remedy = "write raise EVENT, as in `time: raise port_err from 2s`";
                Err(RuleError::wrong("fault at a time", verb, remedy))
            }
            Point::Limit => parser.of_device(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(number) => write!(f, "fail {}", errno_text(*number)),
            Self::Slow(time) => write!(f, "slow {}", time_text(*time)),
            Self::Block(None) => f.write_str("block"),
            Self::Block(Some(time)) => write!(f, "block {}", time_text(*time)),
            Self::Report(number) => write!(f, "report {}", errno_text(*number)),
            Self::Raise(event) => write!(f, "raise {event}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Late(time) => write!(f, "late {}", time_text(*time)),
            Self::Drop => f.write_str("drop"),
            Self::Delay(time) => write!(f, "delay {}", time_text(*time)),
            Self::Duplicate => f.write_str("duplicate"),
            Self::Reorder(packets) => write!(f, "reorder {packets}"),
            Self::Corrupt => f.write_str("corrupt"),
            Self::Mark => f.write_str("mark"),
            Self::Rate(rate) => write!(f, "rate {}", rate_text(*rate)),
            Self::Reject(reason) => write!(f, "reject {reason}"),
            Self::Limit(limit, value) => write!(f, "{limit} {value}"),
            Self::Rnr(times) => write!(f, "rnr {times}"),
            Self::Expire(time) => write!(f, "expire {}", time_text(*time)),
            Self::OdpFault(offset) => write!(f, "odp_fault {offset}"),
        }
    }
}
