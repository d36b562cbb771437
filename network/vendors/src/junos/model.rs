//! Objects of `class-of-service` by their names: what interfaces refer to.

use std::collections::BTreeMap;

use super::settings::{Setting, settings};
use crate::highest_rate::HighestRate;
use crate::text::{ReadError, dscp_named, number};
use crate::watchdog::PauseWatchdog;

/// A forwarding class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ForwardingClass {
    /// The queue of its packets.
    pub(super) queue: u8,
    /// Whether it is lossless, if PFC pauses it.
    pub(super) is_lossless: bool,
    /// Whether it is in the text, and not one of a new switch.
    is_configured: bool,
    /// The priority of its pauses, where it is configured.
    pub(super) priority: Option<u8>,
}

/// A classifier of DSCPs or of priority code points.
#[derive(Clone, Default, Debug)]
pub(super) struct Classifier<'a> {
    /// Code points of each class, in order.
    pub(super) entries: Vec<(&'a str, u8)>,
    /// Whether code points that are not listed have the class of another classifier.
    pub(super) imports: bool,
}

/// A scheduler of a queue.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Scheduler {
    pub(super) percent: Option<u8>,
    pub(super) is_strict: bool,
    /// Whether packets are marked: without it a drop profile drops them.
    pub(super) marks: bool,
    /// Whether it has a drop profile, whose thresholds are percents of the queue's memory.
    pub(super) has_profile: bool,
    pub(super) rate: Option<HighestRate>,
}

/// A congestion notification profile.
#[derive(Clone, Default, Debug)]
pub(super) struct Profile {
    /// DSCPs, and priority code points, at which pauses are sent.
    pub(super) dscp: Vec<u8>,
    pub(super) pcp: Vec<u8>,
    /// Queues that pauses of a priority stop, where they are configured.
    pub(super) stops: Option<Vec<(u8, u8)>>,
    pub(super) watchdog: Option<Watchdog>,
}

/// The PFC watchdog of a profile, with Juniper's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watchdog {
    pub(super) interval_ms: u32,
    pub(super) intervals: u32,
    pub(super) recovery_ms: u32,
    pub(super) drops: bool,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            interval_ms: 100,
            intervals: 2,
            recovery_ms: 200,
            drops: true,
        }
    }
}

impl Watchdog {
    /// The times in which it results, where it drops packets.
    pub(super) fn running(self) -> Option<PauseWatchdog> {
        self.drops.then(|| PauseWatchdog {
            detect_ms: Some(self.interval_ms.saturating_mul(self.intervals)),
            restore_ms: Some(self.recovery_ms),
        })
    }
}

/// All objects of a configuration.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) classes: BTreeMap<&'a str, ForwardingClass>,
    /// Names of code points, of DSCP and of PCP.
    aliases: BTreeMap<(bool, &'a str), u8>,
    pub(super) dscp: BTreeMap<&'a str, Classifier<'a>>,
    pub(super) pcp: BTreeMap<&'a str, Classifier<'a>>,
    pub(super) schedulers: BTreeMap<&'a str, Scheduler>,
    /// Schedulers of classes.
    pub(super) maps: BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>,
    pub(super) profiles: BTreeMap<&'a str, Profile>,
    pub(super) rewrites: BTreeMap<&'a str, Vec<(&'a str, u8)>>,
    /// Percents of the buffer for lossless classes and for their headroom, of arriving packets.
    pub(super) lossless: Option<u8>,
    pub(super) headroom: Option<u8>,
}

impl Default for Model<'_> {
    /// The classes of a new switch (Juniper, "Understanding Default CoS Settings").
    fn default() -> Self {
        let class = |queue: u8, is_lossless: bool| ForwardingClass {
            queue,
            is_lossless,
            is_configured: false,
            priority: None,
        };
        let classes = [
            ("best-effort", class(0, false)),
            ("fcoe", class(3, true)),
            ("no-loss", class(4, true)),
            ("network-control", class(7, false)),
        ];
        Self {
            classes: BTreeMap::from(classes),
            aliases: BTreeMap::new(),
            dscp: BTreeMap::new(),
            pcp: BTreeMap::new(),
            schedulers: BTreeMap::new(),
            maps: BTreeMap::new(),
            profiles: BTreeMap::new(),
            rewrites: BTreeMap::new(),
            lossless: None,
            headroom: None,
        }
    }
}

/// Values of a setting: one word, or a list between brackets.
pub(super) fn values<'a, 'b>(words: &'b [&'a str]) -> impl Iterator<Item = &'a str> + 'b {
    words
        .iter()
        .copied()
        .filter(|word| !matches!(*word, "[" | "]"))
}

impl<'a> Model<'a> {
    /// Takes a setting below `class-of-service`, but for those of interfaces; whether it matters.
    pub(super) fn take(&mut self, file: &str, setting: &Setting<'a>) -> Result<bool, ReadError> {
        let rest = setting.words.get(1..).unwrap_or_default();
        match rest {
            ["forwarding-classes", "class", name, options @ ..] => {
                self.class(file, setting, name, options)?;
            }
            ["forwarding-classes", "queue", queue, name, options @ ..] => {
                self.class(file, setting, name, &["queue-num", queue])?;
                self.class(file, setting, name, options)?;
            }
            [
                "code-point-aliases",
                kind @ ("dscp" | "ieee-802.1"),
                name,
                bits,
            ] => {
                let value = self.code_point(file, setting, *kind == "dscp", bits)?;
                self.aliases.insert((*kind == "dscp", name), value);
            }
            [
                "classifiers",
                kind @ ("dscp" | "ieee-802.1"),
                name,
                rest @ ..,
            ] => {
                self.classifier(file, setting, *kind == "dscp", name, rest)?;
            }
            ["rewrite-rules", "dscp", name, rest @ ..] => {
                self.rewrite(file, setting, name, rest)?;
            }
            ["congestion-notification-profile", name, rest @ ..] => {
                self.profile(file, setting, name, rest)?;
            }
            _ => return self.queueing(file, setting, rest),
        }
        Ok(true)
    }

    /// Takes a setting of queues and buffers; whether it matters.
    fn queueing(
        &mut self,
        file: &str,
        setting: &Setting<'a>,
        rest: &[&'a str],
    ) -> Result<bool, ReadError> {
        let percent =
            |word: &str| Ok::<_, ReadError>(number(file, setting.line, word, 0..=100)? as u8);
        match rest {
            ["drop-profiles", _, "interpolate", rest @ ..] => {
                for word in values(rest).filter(|word| !word.starts_with(['f', 'd'])) {
                    percent(word)?;
                }
            }
            ["schedulers", name, rest @ ..] => {
                let scheduler = self.schedulers.entry(name).or_default();
                of_scheduler(file, setting, rest, scheduler)?;
            }
            [
                "scheduler-maps",
                name,
                "forwarding-class",
                class,
                "scheduler",
                scheduler,
            ] => {
                self.maps.entry(name).or_default().insert(class, scheduler);
            }
            [
                "shared-buffer",
                "ingress",
                "buffer-partition",
                part,
                "percent",
                word,
            ] if part.starts_with("lossless") => {
                let percent = percent(word)?;
                match *part {
                    "lossless" => self.lossless = Some(percent),
                    _ => self.headroom = Some(percent),
                }
            }
            [first, kind, ..] if without_effect(first, kind) => return Ok(false),
            _ => {
                return Err(setting.wrong(file, "this statement of class-of-service is not known"));
            }
        }
        Ok(true)
    }

    fn rewrite(
        &mut self,
        file: &str,
        setting: &Setting<'a>,
        name: &'a str,
        rest: &[&'a str],
    ) -> Result<(), ReadError> {
        let [
            "forwarding-class",
            class,
            "loss-priority",
            _,
            "code-point",
            point,
        ] = rest
        else {
            return Err(setting.wrong(file, "this line of rewrite-rules is not known"));
        };
        let value = self.code_point(file, setting, true, point)?;
        self.rewrites.entry(name).or_default().push((class, value));
        Ok(())
    }

    fn class(
        &mut self,
        file: &str,
        setting: &Setting<'_>,
        name: &'a str,
        options: &[&str],
    ) -> Result<(), ReadError> {
        let mut own = self.classes.get(name).copied();
        let mut rest = options;
        loop {
            let class = own.get_or_insert(ForwardingClass {
                queue: 0,
                is_lossless: false,
                is_configured: true,
                priority: None,
            });
            class.is_configured = true;
            rest = match rest {
                [] => break,
                ["queue-num", queue, rest @ ..] => {
                    class.queue = number(file, setting.line, queue, 0..=11)? as u8;
                    rest
                }
                ["no-loss", rest @ ..] => {
                    class.is_lossless = true;
                    rest
                }
                ["pfc-priority", priority, rest @ ..] => {
                    class.priority = Some(number(file, setting.line, priority, 0..=7)? as u8);
                    rest
                }
                ["priority", "low" | "high", rest @ ..] => rest,
                _ => return Err(setting.wrong(file, "this option of a class is not known")),
            };
        }
        let Some(own) = own else { return Ok(()) };
        // A class takes its queue from a class of a new switch.
        let displaced = |other: &str, class: &ForwardingClass| {
            other != name
                && class.queue == own.queue
                && matches!(
                    other,
                    "best-effort" | "fcoe" | "no-loss" | "network-control"
                )
        };
        self.classes.retain(|other, class| !displaced(other, class));
        self.classes.insert(name, own);
        Ok(())
    }

    /// A code point as bits, `011010`, or by its name: `af31`.
    fn code_point(
        &self,
        file: &str,
        setting: &Setting<'_>,
        is_dscp: bool,
        text: &str,
    ) -> Result<u8, ReadError> {
        let bits = if is_dscp { 6 } else { 3 };
        let is_binary = text.len() == bits && text.bytes().all(|bit| matches!(bit, b'0' | b'1'));
        let value = match is_binary {
            true => u8::from_str_radix(text, 2).ok(),
            false => None,
        };
        let own = self.aliases.get(&(is_dscp, text)).copied();
        let named = match (is_dscp, text) {
            (true, "be") => Some(0),
            (true, "nc1") => Some(48),
            (true, "nc2") => Some(56),
            (true, _) => dscp_named(text),
            // Names of 802.1p code points (Juniper, "Default Code-Point Aliases").
            (false, "be") => Some(0),
            (false, "be1") => Some(1),
            (false, "ef") => Some(2),
            (false, "ef1") => Some(3),
            (false, "af11") => Some(4),
            (false, "af12") => Some(5),
            (false, "nc1") => Some(6),
            (false, "nc2") => Some(7),
            (false, _) => None,
        };
        value.or(own).or(named).ok_or_else(|| {
            let what = format!("\"{text}\" is no code point of {bits} bits, and no name of one");
            setting.wrong(file, &what)
        })
    }

    fn classifier(
        &mut self,
        file: &str,
        setting: &Setting<'a>,
        is_dscp: bool,
        name: &'a str,
        rest: &[&'a str],
    ) -> Result<(), ReadError> {
        let mut own = Classifier::default();
        match rest {
            ["import", _] => own.imports = true,
            [
                "forwarding-class",
                class,
                "loss-priority",
                _,
                "code-points" | "code-point",
                points @ ..,
            ] => {
                for point in values(points) {
                    let value = self.code_point(file, setting, is_dscp, point)?;
                    own.entries.push((*class, value));
                }
            }
            _ => return Err(setting.wrong(file, "this line of a classifier is not known")),
        }
        let all = if is_dscp {
            &mut self.dscp
        } else {
            &mut self.pcp
        };
        let known = all.entry(name).or_default();
        known.entries.append(&mut own.entries);
        known.imports |= own.imports;
        Ok(())
    }

    fn profile(
        &mut self,
        file: &str,
        setting: &Setting<'a>,
        name: &'a str,
        rest: &[&'a str],
    ) -> Result<(), ReadError> {
        let point = |model: &Self, is_dscp: bool, text: &str| {
            model.code_point(file, setting, is_dscp, text)
        };
        let mut own = self.profiles.get(name).cloned().unwrap_or_default();
        match rest {
            ["input", "dscp", "code-point", bits, "pfc", ..] => {
                own.dscp.push(point(self, true, bits)?);
            }
            ["input", "ieee-802.1", "code-point", bits, "pfc", ..] => {
                own.pcp.push(point(self, false, bits)?);
            }
            // Without `pfc` a code point is not paused; lengths of cables size the headroom.
            ["input", "dscp" | "ieee-802.1", "code-point", _] | ["input", "cable-length", _] => {}
            [
                "output",
                "ieee-802.1",
                "code-point",
                bits,
                "flow-control-queue",
                queues @ ..,
            ] => {
                let priority = point(self, false, bits)?;
                for queue in values(queues) {
                    let queue = number(file, setting.line, queue, 0..=11)? as u8;
                    own.stops.get_or_insert_default().push((priority, queue));
                }
            }
            ["pfc-watchdog", options @ ..] => {
                of_watchdog(file, setting, options, own.watchdog.get_or_insert_default())?;
            }
            _ => return Err(setting.wrong(file, "this statement of the profile is not known")),
        }
        self.profiles.insert(name, own);
        Ok(())
    }

    /// The class of an intent by queue: the priority whose pauses stop it. That of a lossless class is the
    /// priority of its own pauses. The class that would have had this number takes the place of the queue.
    pub(super) fn class_of_queue(&self) -> [u8; 8] {
        let mut class: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
        let stops = self
            .profiles
            .values()
            .filter_map(|profile| profile.stops.as_ref())
            .flatten();
        for (priority, queue) in stops.filter(|(_, queue)| *queue < 8) {
            if let Some(other) = class.iter().position(|other| other == priority) {
                class.swap(usize::from(*queue), other);
            }
        }
        for own in self
            .classes
            .values()
            .filter(|own| own.is_lossless && own.is_configured && own.queue < 8)
        {
            let priority = own.priority.unwrap_or(own.queue) & 7;
            let queue = usize::from(own.queue);
            if let Some(other) = class.iter().position(|other| *other == priority) {
                class.swap(queue, other);
            }
        }
        class
    }
}

/// Statements that change no class here: the rest of the buffer, marks of tagged frames that leave, IPv6,
/// MPLS and packets of the switch itself.
fn without_effect(first: &str, kind: &str) -> bool {
    match first {
        "shared-buffer" | "dedicated-buffer" | "dedicated-buffer-profile" => true,
        "host-outbound-traffic" | "system-defaults" | "tri-color" | "forwarding-policy" => true,
        "rewrite-rules" if kind == "ieee-802.1" => true,
        "code-point-aliases" | "classifiers" | "rewrite-rules" => {
            matches!(kind, "exp" | "dscp-ipv6" | "inet-precedence")
        }
        _ => false,
    }
}

fn of_scheduler(
    file: &str,
    setting: &Setting<'_>,
    rest: &[&str],
    own: &mut Scheduler,
) -> Result<(), ReadError> {
    match rest {
        ["transmit-rate", "percent", word] => {
            own.percent = Some(number(file, setting.line, word, 0..=100)? as u8);
        }
        ["priority", "strict-high"] => own.is_strict = true,
        ["priority", "low" | "medium-low" | "medium-high" | "high"] => own.is_strict = false,
        ["shaping-rate", rate] => {
            let what = "a rate is a number of bits per second, with k, m or g";
            own.rate = Some(bits_per_second(rate).ok_or_else(|| setting.wrong(file, what))?);
        }
        ["explicit-congestion-notification"] => own.marks = true,
        [
            "drop-profile-map",
            "loss-priority",
            _,
            "protocol",
            _,
            "drop-profile",
            _,
        ] => {
            own.has_profile = true;
        }
        ["buffer-size", ..] => {}
        _ => return Err(setting.wrong(file, "this statement of a scheduler is not known")),
    }
    Ok(())
}

/// A rate: `10g`, `500m` or a number of bits per second.
fn bits_per_second(text: &str) -> Option<HighestRate> {
    let (digits, unit) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) => (digits, text.chars().last()?),
        None => (text, ' '),
    };
    let factor = match unit {
        'k' => 1000,
        'm' => 1_000_000,
        'g' => 1_000_000_000,
        _ => 1,
    };
    HighestRate::in_units(digits.parse().ok()?, factor)
}

fn of_watchdog(
    file: &str,
    setting: &Setting<'_>,
    options: &[&str],
    own: &mut Watchdog,
) -> Result<(), ReadError> {
    let value = |word: &str| number(file, setting.line, word, 1..=1_000_000);
    match options {
        [] => {}
        ["detection", word] => own.intervals = value(word)?,
        ["poll-interval", word] => own.interval_ms = value(word)?,
        ["recovery", word] => own.recovery_ms = value(word)?,
        ["watchdog-action", action @ ("drop" | "forward")] => own.drops = *action == "drop",
        _ => return Err(setting.wrong(file, "this option of the PFC watchdog is not known")),
    }
    Ok(())
}

/// The class of an intent by queue, of a configuration: queues and priorities are free of each other.
pub fn queue_classes(text: &str) -> [u8; 8] {
    let mut model = Model::default();
    if let Ok((settings, _)) = settings("", text) {
        let own = settings
            .iter()
            .filter(|own| own.words.first() == Some(&"class-of-service"));
        for setting in own {
            // What is not understood has been named where the configuration was read.
            let _ = model.take("", setting);
        }
    }
    model.class_of_queue()
}
