//! One rule: point, action and conditions.

use crate::point::Field;
use crate::text::Words;
use crate::value::{Ratio, count, number, sizes, sizes_text, time, time_text};
use crate::{
    Action, CmKind, EventKind, Occasion, Opcode, PacketKind, Point, QpKind, RuleError, SendFilter,
};
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use core::time::Duration;

/// Names of conditions, each of which a value follows.
const CONDITIONS: &[&str] = &[
    "process",
    "device",
    "type",
    "qpn",
    "peer",
    "opcode",
    "size",
    "nth",
    "after",
    "every",
    "times",
    "probability",
    "seed",
    "from",
    "until",
];
/// Longest name of a process in the kernel (`TASK_COMM_LEN` without the zero).
const PROCESS_NAME_MAX: usize = 15;

/// A point, an action, and the conditions under which the action happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub(crate) point: Point,
    pub(crate) action: Action,
    process: Option<String>,
    device: Option<String>,
    kind: Option<QpKind>,
    qpn: Option<u32>,
    peer: Option<IpAddr>,
    opcode: Option<Opcode>,
    packet: Option<PacketKind>,
    message: Option<CmKind>,
    size: Option<(u64, u64)>,
    nth: Option<u64>,
    after: Option<u64>,
    every: Option<u64>,
    times: Option<u64>,
    probability: Option<Ratio>,
    seed: Option<u64>,
    from: Option<Duration>,
    until: Option<Duration>,
}

/// Sets a condition that was not given before.
fn once<T>(place: &mut Option<T>, name: &'static str, value: T) -> Result<(), RuleError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RuleError::Twice(name)),
    }
}

impl Rule {
    /// The rule without conditions.
    pub(crate) fn new(point: Point, action: Action) -> Self {
        Self {
            point,
            action,
            process: None,
            device: None,
            kind: None,
            qpn: None,
            peer: None,
            opcode: None,
            packet: None,
            message: None,
            size: None,
            nth: None,
            after: None,
            every: None,
            times: None,
            probability: None,
            seed: None,
            from: None,
            until: None,
        }
    }

    /// Where the fault happens.
    pub const fn point(&self) -> Point {
        self.point
    }

    /// What the rule makes happen.
    pub const fn action(&self) -> Action {
        self.action
    }

    /// Whether the rule has to know the peer's address.
    pub const fn needs_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Sets a condition by its name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), RuleError> {
        match name {
            "process" => once(&mut self.process, "process", process(value)?),
            "device" => once(&mut self.device, "device", word(value, "name of a device")?),
            "type" => once(&mut self.kind, "type", QpKind::parse(value)?),
            "qpn" => once(&mut self.qpn, "qpn", qpn(value)?),
            "peer" => once(&mut self.peer, "peer", address(value)?),
            "opcode" => match self.point {
                Point::Packet => once(&mut self.packet, "opcode", PacketKind::parse(value)?),
                Point::Cm => once(&mut self.message, "opcode", CmKind::parse(value)?),
                _ => once(&mut self.opcode, "opcode", Opcode::parse(value)?),
            },
            "size" => once(&mut self.size, "size", sizes(value)?),
            "nth" => once(&mut self.nth, "nth", count(value, "number of an occasion")?),
            "after" => once(
                &mut self.after,
                "after",
                number(value, "number of occasions")?,
            ),
            "every" => once(
                &mut self.every,
                "every",
                count(value, "number of occasions")?,
            ),
            "times" => once(&mut self.times, "times", count(value, "number of faults")?),
            "probability" => once(&mut self.probability, "probability", Ratio::parse(value)?),
            "seed" => once(&mut self.seed, "seed", number(value, "seed")?),
            "from" => once(&mut self.from, "from", time(value)?),
            "until" => once(&mut self.until, "until", time(value)?),
            _ => {
                let remedy = match crate::names::closest(name, CONDITIONS.iter().copied()) {
                    Some(like) => format!("did you mean {like}?"),
                    None => format!("write one of {}", CONDITIONS.join(", ")),
                };
                Err(RuleError::wrong("condition", name, remedy))
            }
        }
    }

    /// Checks what no single condition shows.
    pub(crate) fn checked(self) -> Result<Self, RuleError> {
        for (field, is_given) in [
            (Field::Device, self.device.is_some()),
            (Field::Kind, self.kind.is_some()),
            (Field::Qpn, self.qpn.is_some()),
            (Field::Peer, self.peer.is_some()),
            (Field::Opcode, self.opcode.is_some()),
            (Field::Size, self.size.is_some()),
        ] {
            if is_given && !self.point.has(field) {
                return Err(RuleError::NoSuchField {
                    point: self.point.to_string(),
                    condition: field.name(),
                });
            }
        }
        if let (Some(from), Some(until)) = (self.from, self.until)
            && from >= until
        {
            let (from, until) = (time_text(from), time_text(until));
            return Err(RuleError::Never(format!(
                "no time is from {from} until {until}"
            )));
        }
        self.check_counts()?;
        self.check_reach()?;
        Ok(self)
    }

    /// Conditions on numbers, times and chance, which some points do not have.
    fn check_counts(&self) -> Result<(), RuleError> {
        let others = [self.after, self.every, self.times];
        let is_counted = others.iter().any(Option::is_some);
        if self.nth.is_some() && is_counted {
            let what = "nth is one occasion: leave out after, every and times";
            return Err(RuleError::Never(what.to_owned()));
        }
        let is_chosen = is_counted || self.nth.is_some() || self.probability.is_some();
        let is_timed = self.from.is_some() || self.until.is_some();
        match self.point {
            Point::Time if is_chosen || self.until.is_some() => Err(RuleError::Never(
                "a time is one occasion: write `from TIME`, and neither numbers, chance nor until"
                    .to_owned(),
            )),
            Point::Limit if is_chosen || is_timed => Err(RuleError::Never(
                "a limit holds for as long as a device is open: leave out numbers, chance and times"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// When a rule of [`Point::Time`] applies, since the beginning.
    pub fn time(&self) -> Duration {
        self.from.unwrap_or_default()
    }

    /// The queue pair that the rule is for, if it is for one.
    pub const fn queue_pair(&self) -> Option<u32> {
        self.qpn
    }

    /// Whether the rule is for a device of this name.
    pub fn is_for_device(&self, device: &str) -> bool {
        self.device.as_deref().is_none_or(|name| name == device)
    }

    /// Whether the rule needs packets to leave by the network, also to programs on the same host.
    pub fn needs_packets(&self) -> bool {
        // A peer on the host would find the page where this process has it.
        let needs = matches!(
            self.action,
            Action::Raise(EventKind::PortErr) | Action::OdpFault(_)
        );
        self.point == Point::Packet || needs
    }

    /// Whether any request can be meant: not, for example, a datagram with the status of an acknowledgement.
    fn check_reach(&self) -> Result<(), RuleError> {
        let never = |what: &dyn fmt::Display| {
            Err(RuleError::Never(format!(
                "{what} cannot have `{}`",
                self.action
            )))
        };
        if let Some(opcode) = self.opcode {
            if self.point.opcodes() & opcode.bit() == 0 {
                return Err(RuleError::Never(format!("{} has no {opcode}", self.point)));
            }
            if let Action::Status(status) = self.action
                && status.opcodes() & opcode.bit() == 0
            {
                return never(&opcode);
            }
        }
        let is_refused = |kind: QpKind| match self.action {
            Action::Status(status) => status.kinds() & kind.bit() == 0,
            Action::Rnr(_) => !has_rnr(kind),
            _ => false,
        };
        match self.kind.filter(|kind| is_refused(*kind)) {
            Some(kind) => never(&format_args!("a queue pair of type {kind}")),
            None => Ok(()),
        }
    }

    /// Whether the rule is one for a process of this name.
    pub(crate) fn is_for(&self, process: &str) -> bool {
        self.process.as_deref().is_none_or(|name| name == process)
    }

    /// Operations that the rule can match, as [`Opcode::bit`]s.
    pub(crate) fn opcodes(&self) -> u32 {
        let of_status = match self.action {
            Action::Status(status) => status.opcodes(),
            _ => u32::MAX,
        };
        self.opcode.map_or(self.point.opcodes(), Opcode::bit) & of_status
    }

    /// Whether the conditions on what happens are met; those on numbers and times are the plan's.
    pub(crate) fn matches(&self, occasion: &Occasion<'_>) -> bool {
        fn is<T: PartialEq>(wanted: Option<T>, there: Option<T>) -> bool {
            wanted.is_none() || wanted == there
        }
        let of_status = match self.action {
            Action::Status(status) => {
                let has = |bits: u32, bit: Option<u32>| bit.is_some_and(|bit| bits & bit != 0);
                has(status.opcodes(), occasion.opcode.map(Opcode::bit))
                    && has(status.kinds(), occasion.kind.map(QpKind::bit))
            }
            Action::Rnr(_) => occasion.kind.is_some_and(has_rnr),
            _ => true,
        };
        let in_size = |(from, to)| {
            occasion
                .size
                .is_some_and(|size| (from..=to).contains(&size))
        };
        self.point == occasion.point
            && of_status
            && is(self.device.as_deref(), occasion.device)
            && is(self.kind, occasion.kind)
            && is(self.qpn, occasion.qpn)
            && is(self.peer, occasion.peer)
            && is(self.opcode, occasion.opcode)
            && is(self.packet, occasion.packet)
            && is(self.message, occasion.message)
            && self.size.is_none_or(in_size)
    }

    /// What the rule needs of a send request.
    pub(crate) fn send_filter(&self) -> SendFilter {
        let (from, to) = self.size.unwrap_or((0, u64::MAX));
        SendFilter {
            opcodes: self.opcodes() & !Opcode::Recv.bit(),
            qpn: self.qpn,
            from,
            to,
        }
    }

    /// Whether the fault happens on the occasion of this number, from 1 on, `done` faults after the first.
    /// `random` is for this occasion alone.
    pub(crate) fn is_due(&self, number: u64, done: u64, at: Duration, random: u64) -> bool {
        let behind = number.saturating_sub(self.after.unwrap_or(0));
        self.nth.is_none_or(|nth| number == nth)
            && behind > 0
            && (behind - 1).is_multiple_of(self.every.unwrap_or(1))
            && self.times.is_none_or(|times| done < times)
            && self.from.is_none_or(|from| at >= from)
            && self.until.is_none_or(|until| at < until)
            && self.probability.is_none_or(|ratio| ratio.includes(random))
    }

    /// The seed of the rule's own, if it has one.
    pub(crate) const fn seed(&self) -> Option<u64> {
        self.seed
    }
}

/// Whether a message is refused with an RNR NAK where no receive is posted: others are lost.
const fn has_rnr(kind: QpKind) -> bool {
    matches!(kind, QpKind::Rc | QpKind::Xrc)
}

/// A name that can stand in the line of a rule.
fn word(text: &str, what: &'static str) -> Result<String, RuleError> {
    let is_plain = |one: char| !one.is_whitespace() && !one.is_control() && one != ';';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(RuleError::wrong(
            what,
            text,
            "write it without spaces and semicolons",
        )),
    }
}

fn process(text: &str) -> Result<String, RuleError> {
    if text.len() > PROCESS_NAME_MAX {
        let short: String = text.chars().take(PROCESS_NAME_MAX).collect();
        let remedy = format!("the kernel keeps 15 bytes of a name: write {short}");
        return Err(RuleError::wrong("name of a process", text, remedy));
    }
    word(text, "name of a process")
}

fn qpn(text: &str) -> Result<u32, RuleError> {
    const LAST: u64 = 0xff_ffff;
    let value = number(text, "queue pair number")?;
    let wrong = || {
        RuleError::wrong(
            "queue pair number",
            text,
            "it has 24 bits: write 1 to 0xffffff",
        )
    };
    u32::try_from(value)
        .ok()
        .filter(|_| (1..=LAST).contains(&value))
        .ok_or_else(wrong)
}

fn address(text: &str) -> Result<IpAddr, RuleError> {
    let wrong = || RuleError::wrong("IP address", text, "write one, as in 10.0.0.2 or fe80::1");
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_| wrong())
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let Some((point, rest)) = text.split_once(':') else {
            return Err(RuleError::Missing {
                after: format!("`{}`", text.trim()),
                what: "a colon and what happens",
                example: "post_send: fail ENOMEM after 100",
            });
        };
        let point = Point::parse(point.trim())?;
        let mut words = Words::of(rest);
        let mut rule = Self::new(point, Action::parse(point, &mut words)?);
        while let Some(name) = words.next() {
            // The name is judged first: `post_send: fail ENOMEM sometimes` lacks no value.
            if !CONDITIONS.contains(&name) {
                rule.set(name, "")?;
            }
            let value = words.next_or(name, "its value", "post_send: fail ENOMEM after 100")?;
            rule.set(name, value)?;
        }
        rule.checked()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn condition(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            value: Option<impl fmt::Display>,
        ) -> fmt::Result {
            value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
        }
        write!(f, "{}: {}", self.point, self.action)?;
        condition(f, "process", self.process.as_ref())?;
        condition(f, "device", self.device.as_ref())?;
        condition(f, "type", self.kind)?;
        condition(f, "qpn", self.qpn)?;
        condition(f, "peer", self.peer)?;
        condition(f, "opcode", self.opcode)?;
        condition(f, "opcode", self.packet)?;
        condition(f, "opcode", self.message)?;
        condition(f, "size", self.size.map(|(from, to)| sizes_text(from, to)))?;
        condition(f, "nth", self.nth)?;
        condition(f, "after", self.after)?;
        condition(f, "every", self.every)?;
        condition(f, "times", self.times)?;
        condition(f, "probability", self.probability)?;
        condition(f, "seed", self.seed)?;
        condition(f, "from", self.from.map(time_text))?;
        condition(f, "until", self.until.map(time_text))
    }
}

/// The rules of a process, in their order, and the seed of those without one of their own.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    /// Decides by chance for rules without a seed of their own.
    pub seed: u64,
    /// Earlier rules decide before later ones.
    pub rules: Vec<Rule>,
}

impl Rules {
    /// Adds the rules of others, each with the seed that it has there.
    pub fn append(&mut self, others: &Self) {
        self.rules.extend(others.rules.iter().map(|rule| Rule {
            seed: rule.seed.or(Some(others.seed)),
            ..rule.clone()
        }));
    }
}

impl FromStr for Rules {
    type Err = RuleError;

    /// Rules are separated by `;`. `seed NUMBER` in place of a rule sets the seed of all; `none` is no rule.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut all = Self::default();
        for part in text.split([';', '\n']).map(str::trim) {
            let mut words = Words::of(part);
            match (words.next(), words.next(), words.next()) {
                (None, ..) | (Some("none"), None, None) => {}
                (Some("seed"), Some(value), None) => all.seed = number(value, "seed")?,
                _ => all.rules.push(part.parse()?),
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        self.rules.iter().try_for_each(|rule| write!(f, "; {rule}"))
    }
}
