//! Texts of NVUE, read as intents.

use std::collections::BTreeMap;

use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::text::{Line, ReadError, lines, list, mask, number};

/// A port of a text, by name.
#[derive(Clone, Default)]
struct Link {
    mtu: Option<u32>,
    gbps: Option<u32>,
    dcbx: bool,
}

/// The settings read so far.
struct Reading<'a> {
    file: &'a str,
    intent: Intent,
    pfc: u8,
    tx: bool,
    rx: bool,
    strict: u8,
    percents: [u8; 8],
    ecn: u8,
    min: [u32; 8],
    max: [u32; 8],
    links: BTreeMap<String, Link>,
}

impl<'a> Reading<'a> {
    /// The settings of a switch before any command.
    fn new(file: &'a str) -> Self {
        let mut intent = Intent {
            trust: Trust::Pcp,
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            ..Intent::default()
        };
        (0_u8..)
            .zip(&mut intent.dscp)
            .for_each(|(value, class)| *class = value / 8);
        let (min, max) = ([150_000; 8], [1_500_000; 8]);
        let links = BTreeMap::new();
        let percents = [12, 13, 12, 13, 12, 13, 12, 13];
        Self {
            file,
            intent,
            pfc: 0,
            tx: true,
            rx: true,
            strict: 0,
            percents,
            ecn: 1,
            min,
            max,
            links,
        }
    }

    /// Applies `nv set qos roce`, in its lossless or lossy mode.
    fn roce(&mut self, lossless: bool) {
        self.intent.trust = Trust::Both;
        self.pfc = if lossless { 1 << 3 } else { 0 };
        (self.strict, self.ecn) = (1 << 6, 1 << 3 | 1);
        self.percents = [50, 0, 0, 50, 0, 0, 0, 0];
    }

    fn wrong(&self, line: &Line<'_>, what: &str) -> ReadError {
        let text = crate::text::shortened(line.text);
        ReadError::new(self.file, line.number, format!("\"{text}\": {what}"))
    }

    fn command(&mut self, line: &Line<'_>) -> Result<(), ReadError> {
        let words = line.words();
        let words: Vec<&str> = words
            .iter()
            .copied()
            .skip_while(|word| *word != "nv")
            .collect();
        match words.as_slice() {
            ["nv", "set", "qos", "roce", rest @ ..] => match rest {
                [] | ["mode", "lossless"] | ["enable", "on"] => self.roce(true),
                ["mode", "lossy"] => self.roce(false),
                _ => return Err(self.wrong(line, "this mode of RoCE is not known")),
            },
            ["nv", "set", "qos", area, "default-global", rest @ ..] => {
                self.qos(line, area, rest)?
            }
            ["nv", "set", "qos", ..] => {
                return Err(self.wrong(line, "profiles other than default-global are not known"));
            }
            ["nv", "set", "interface", names, rest @ ..] => self.interface(line, names, rest)?,
            ["nv", "set" | "config" | "show" | "unset", ..] => {}
            _ => return Err(self.wrong(line, "it is no command of NVUE")),
        }
        Ok(())
    }

    fn qos(&mut self, line: &Line<'_>, area: &str, rest: &[&str]) -> Result<(), ReadError> {
        let value = |word: &str, max| number(self.file, line.number, word, 0..=max);
        match (area, rest) {
            ("mapping", ["trust", word]) => {
                self.intent.trust = match *word {
                    "port" => Trust::None,
                    "l2" => Trust::Pcp,
                    "l3" => Trust::Dscp,
                    "both" => Trust::Both,
                    _ => return Err(self.wrong(line, "trust is l2, l3, both or port")),
                };
            }
            ("mapping", ["port-default-sp", word]) => {
                self.intent.default_class = value(word, 7)? as u8
            }
            ("mapping", ["dscp", values, "switch-priority", class]) => {
                let class = value(class, 7)? as u8;
                for dscp in list(self.file, line.number, values, 63)? {
                    self.intent.dscp[usize::from(dscp)] = class;
                }
            }
            ("mapping", ["pcp", values, "switch-priority", class]) => {
                let class = value(class, 7)? as u8;
                for pcp in list(self.file, line.number, values, 7)? {
                    self.intent.pcp[usize::from(pcp)] = class;
                }
            }
            ("egress-queue-mapping", ["switch-priority", from, "traffic-class", to])
                if from == to =>
            {
                value(from, 7)?;
            }
            ("egress-queue-mapping", _) => {
                return Err(self.wrong(
                    line,
                    "a switch priority in a traffic class of another number is not supported",
                ));
            }
            ("pfc", ["switch-priority", values]) => {
                self.pfc |= mask(&list(self.file, line.number, values, 7)?);
            }
            ("pfc", ["tx", word]) => self.tx = self.able(line, word)?,
            ("pfc", ["rx", word]) => self.rx = self.able(line, word)?,
            ("pfc", ["xoff-threshold", bytes]) => {
                self.intent.pause.xoff = Some(value(bytes, u32::MAX)?)
            }
            ("pfc", ["xon-threshold", bytes]) => {
                self.intent.pause.xon = Some(value(bytes, u32::MAX)?)
            }
            ("pfc", ["cable-length" | "port-buffer", bytes]) => {
                value(bytes, u32::MAX)?;
            }
            ("egress-scheduler" | "congestion-control", ["traffic-class", values, rest @ ..]) => {
                for class in list(self.file, line.number, values, 7)? {
                    self.queue(line, usize::from(class), rest)?;
                }
            }
            _ => return Err(self.wrong(line, "this QoS setting is not known")),
        }
        Ok(())
    }

    fn able(&self, line: &Line<'_>, word: &str) -> Result<bool, ReadError> {
        match word {
            "enable" | "enabled" | "on" => Ok(true),
            "disable" | "disabled" | "off" => Ok(false),
            _ => Err(self.wrong(line, "it is enable or disable")),
        }
    }

    fn queue(&mut self, line: &Line<'_>, class: usize, rest: &[&str]) -> Result<(), ReadError> {
        let bytes = |word: &str| number(self.file, line.number, word, 0..=u32::MAX);
        match rest {
            ["mode", "strict"] => self.strict |= 1 << class,
            ["mode", "dwrr"] => self.strict &= !(1 << class),
            ["bw-percent", percent] => {
                self.percents[class] = number(self.file, line.number, percent, 0..=100)? as u8;
            }
            ["min-threshold", word] => self.min[class] = bytes(word)?,
            ["max-threshold", word] => self.max[class] = bytes(word)?,
            ["ecn", word] => {
                let on = self.able(line, word)?;
                self.ecn = self.ecn & !(1 << class) | u8::from(on) << class;
            }
            ["red", word] => {
                self.able(line, word)?;
            }
            _ => return Err(self.wrong(line, "this setting of a queue is not known")),
        }
        Ok(())
    }

    fn interface(&mut self, line: &Line<'_>, names: &str, rest: &[&str]) -> Result<(), ReadError> {
        let number = |word: &str| number(self.file, line.number, word, 1..=65_535);
        let (mut mtu, mut gbps, mut dcbx) = (None, None, None);
        match rest {
            ["link", "mtu", word] => mtu = Some(number(word)?),
            ["link", "speed", word] => gbps = word.strip_suffix('G').map(number).transpose()?,
            ["lldp", "dcbx-pfc-tlv", word] => dcbx = Some(self.able(line, word)?),
            // Other settings of interfaces do not concern QoS.
            _ => return Ok(()),
        }
        for name in expanded(names) {
            let link = self.links.entry(name).or_default();
            (link.mtu, link.gbps) = (mtu.or(link.mtu), gbps.or(link.gbps));
            link.dcbx = dcbx.unwrap_or(link.dcbx);
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<Intent> {
        for class in 0..8 {
            let strict = self.strict >> class & 1 == 1;
            let schedule = if strict {
                Schedule::Strict
            } else {
                Schedule::Weighted(self.percents[class].max(1))
            };
            let (min, max) = (self.min[class], self.max[class]);
            let ecn = (self.ecn >> class & 1 == 1).then_some(Ecn::Thresholds {
                min,
                max,
                percent: 100,
            });
            self.intent.queues[class] = Queue { schedule, ecn };
        }
        self.intent.pfc_send = if self.tx { self.pfc } else { 0 };
        self.intent.pfc_obey = if self.rx { self.pfc } else { 0 };
        if self.pfc == 0 {
            self.intent.pause = Pause::default();
        }
        let one = |(name, link): (String, Link)| Intent {
            mtu: link.mtu.unwrap_or(9216),
            dcbx: link.dcbx,
            ports: vec![Port {
                name,
                gbps: link.gbps,
                metres: None,
            }],
            ..self.intent.clone()
        };
        self.links.into_iter().map(one).collect()
    }
}

/// `swp1-4,swp6` as single names; at most 1,024.
fn expanded(names: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in names.split(',') {
        let range = part.rsplit_once('-').and_then(|(head, to)| {
            let digits = head.len()
                - head
                    .trim_end_matches(|letter: char| letter.is_ascii_digit())
                    .len();
            let (base, from) = head.split_at(head.len() - digits);
            Some((base, from.parse::<u32>().ok()?, to.parse::<u32>().ok()?))
        });
        match range {
            Some((base, from, to)) => {
                found.extend((from..=to).take(1024).map(|port| format!("{base}{port}")))
            }
            None => found.push(part.to_owned()),
        }
    }
    found.truncate(1024);
    found
}

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let mut reading = Reading::new(file);
    let lines = lines(file, text, &['#'])?;
    for line in &lines {
        reading.command(line)?;
    }
    if reading.links.is_empty() && !lines.is_empty() {
        reading
            .links
            .insert("default-global".to_owned(), Link::default());
    }
    Ok(reading.finish())
}
