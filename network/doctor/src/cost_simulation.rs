//! The cost of a setting: the same small network is simulated with and without it. Three senders write to one
//! receiver, as storage clients do, and goodput and latency are compared.

use core::fmt;
use std::fmt::Write as _;

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::Report;

use vendors::intent::{Ecn, Intent, Schedule, Trust};
use vendors::text::{classes, ranges};

/// Virtual time of a run in microseconds: long enough for DCQCN to recover from the start.
const DURATION_US: u32 = 20_000;

/// Packet memory of the switch: little enough that three senders fill it.
const BUFFER: &str = "4MiB";

/// Queue pairs of each sender, in the two loads that are compared.
const LOADS: [u32; 2] = [1, 4];

/// Time that a signal takes for a metre of cable.
pub const NS_PER_METRE: u32 = 5;

/// Relative changes below this are noise of the model.
const NOTABLE: f64 = 0.02;

/// The settings of a host's adapter that have an effect here.
#[derive(Clone, PartialEq, Debug)]
pub struct Talk {
    /// DSCP of data.
    pub dscp: u8,
    /// Priority code point of data, where frames are tagged.
    pub pcp: Option<u8>,
    /// Whether data takes part in ECN, and senders reduce their rate on notifications.
    pub ecn: bool,
    /// Priority of data within the adapter.
    pub priority: u8,
    /// Priorities at whose pause frames the adapter stops, one bit each.
    pub pfc: u8,
    /// DSCP of notifications.
    pub cnp_dscp: u8,
    /// Priority of notifications within the adapter.
    pub cnp_priority: u8,
    /// Path MTU of RoCE.
    pub mtu: u32,
    /// Generation and width of the PCIe link, where it may be a limit.
    pub pcie: Option<(u8, u8)>,
    /// Payload bytes of a PCIe packet.
    pub pcie_payload: u32,
    /// Time that memory takes to answer the adapter, in nanoseconds.
    pub memory_ns: u32,
}

impl Default for Talk {
    fn default() -> Self {
        Self {
            dscp: 26,
            pcp: None,
            ecn: true,
            priority: 3,
            pfc: 1 << 3,
            cnp_dscp: 48,
            cnp_priority: 6,
            mtu: 4096,
            pcie: None,
            pcie_payload: 256,
            memory_ns: 550,
        }
    }
}

/// A network to be simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// How the switch treats its traffic.
    pub switch: Intent,
    /// Speed of the links in Gb/s.
    pub gbps: u32,
    /// The senders' adapters.
    pub senders: Talk,
    /// The receiver's adapter.
    pub receiver: Talk,
    /// How many hosts write to the receiver.
    pub count: u32,
    /// Queue pairs of each of them.
    pub qps: u32,
    /// Messages that a queue pair has under way.
    pub depth: u32,
    /// Bytes of a message.
    pub message: u32,
    /// Time that a packet takes on each cable, in nanoseconds.
    pub delay_ns: u32,
    /// A further host, which writes to the receiver in another class at the same time. Its goodput is not
    /// counted.
    pub beside: Option<Talk>,
    /// Each host writes to each other one, and not all to one.
    pub exchange: bool,
}

impl Case {
    /// Three storage senders and one receiver behind a switch.
    pub fn incast(switch: &Intent, gbps: u32) -> Self {
        let talk = Talk::default();
        let senders = talk.clone();
        Self {
            switch: switch.clone(),
            gbps,
            senders,
            receiver: talk,
            count: 3,
            qps: 4,
            depth: 8,
            message: 1 << 20,
            delay_ns: 500,
            beside: None,
            exchange: false,
        }
    }

    /// Gives all adapters the same settings.
    #[must_use]
    pub fn talking(mut self, talk: &Talk) -> Self {
        (self.senders, self.receiver) = (talk.clone(), talk.clone());
        self
    }
}

/// The results of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Payload of all senders in Gb/s.
    pub gbps: f64,
    /// Of a hundred messages, 99 took less than this, in microseconds.
    pub p99_us: f64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Pause frames that switches sent.
    pub pauses: u64,
}

impl Case {
    /// The case as a fabric file.
    pub fn fabric_file(&self) -> String {
        let mut text = format!(
            "title = \"consequence\"\nduration = \"{DURATION_US}us\"\n\
             topology = {{ kind = \"star\", hosts = {}, rate = \"{}Gb/s\", delay = \"{}ns\" }}\n\
             [[host]]\nname = \"h0\"\nnic = \"receiver\"\n",
            self.count + 1 + u32::from(self.beside.is_some()),
            self.gbps,
            self.delay_ns
        );
        if self.beside.is_some() {
            let _ = writeln!(
                text,
                "[[host]]\nname = \"h{}\"\nnic = \"beside\"",
                self.count + 1
            );
        }
        nic(&mut text, "receiver", &self.receiver);
        nic(&mut text, "default", &self.senders);
        if let Some(beside) = &self.beside {
            nic(&mut text, "beside", beside);
        }
        qos(&mut text, &self.switch);
        let (from, to) = if self.exchange {
            (0, format!("h[0-{}]", self.count))
        } else {
            (1, "h0".to_owned())
        };
        let _ = write!(
            text,
            "[[workload]]\nname = \"storage\"\npattern = \"each\"\n\
             from = [\"h[{from}-{}]\"]\nto = [\"{to}\"]\n\
             message = \"{}B\"\ndepth = {}\nqps = {}\n",
            self.count, self.message, self.depth, self.qps
        );
        if self.beside.is_some() {
            let _ = write!(
                text,
                "[[workload]]\nname = \"beside\"\npattern = \"each\"\nfrom = [\"h{}\"]\nto = [\"h0\"]\n\
                 message = \"{}B\"\ndepth = {}\nqps = {}\n",
                self.count + 1,
                self.message,
                self.depth,
                self.qps
            );
        }
        text
    }

    /// Runs the case; `None` where the settings are not a valid network.
    pub fn run(&self) -> Option<Outcome> {
        run_file(&self.fabric_file(), "storage")
    }
}

/// The cost of a fault: results of the same load with and without it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// With the fault.
    pub now: Outcome,
    /// With the fault removed.
    pub fixed: Outcome,
    /// Hosts that write to one, and queue pairs of each.
    pub load: (u32, u32),
    /// The pattern of the load.
    pub shape: Shape,
}

/// The traffic pattern of a simulated network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Some hosts write to one.
    Incast,
    /// Some hosts write to one, and a further one writes to it in another class.
    Beside,
    /// Each host writes to each other one.
    Exchange,
    /// One host writes to another over two paths of unequal length.
    TwoPaths,
}

/// Compares a network with the fixed one under both loads; returns the comparison in which the fix gains
/// more.
pub fn compare(now: &Case, fixed: &Case) -> Option<Cost> {
    let mut worst: Option<Cost> = None;
    for qps in LOADS {
        let run = |case: &Case| {
            Case {
                qps,
                ..case.clone()
            }
            .run()
        };
        let shape = match (now.exchange, &now.beside) {
            (true, _) => Shape::Exchange,
            (false, Some(_)) => Shape::Beside,
            (false, None) => Shape::Incast,
        };
        let cost = Cost {
            now: run(now)?,
            fixed: run(fixed)?,
            load: (now.count, qps),
            shape,
        };
        if worst.is_none_or(|other| cost.weight() > other.weight()) {
            worst = Some(cost);
        }
    }
    worst
}

impl Cost {
    /// The gain of the fix: the part of goodput where it is notable, else the part of latency.
    fn weight(&self) -> f64 {
        let lost = 1.0 - self.now.gbps / self.fixed.gbps.max(1e-9);
        if lost > NOTABLE {
            1.0 + lost
        } else {
            1.0 - self.fixed.p99_us / self.now.p99_us.max(1e-9)
        }
    }

    /// Whether goodput or latency is notably worse now.
    pub fn is_notable(&self) -> bool {
        self.weight() > NOTABLE
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, fixed) = (self.now, self.fixed);
        let (hosts, qps) = self.load;
        let also = if self.shape == Shape::Beside {
            ", beside a host that writes in another class"
        } else {
            ""
        };
        let load = match (self.shape, hosts) {
            (Shape::TwoPaths, _) => {
                "one host writes to another over two paths, one of them 4.2 us longer".to_owned()
            }
            (Shape::Exchange, _) => format!("{} hosts write to each other", hosts + 1),
            (_, 1) => "one host writes to another".to_owned(),
            _ => format!("{hosts} hosts write to one"),
        };
        let pairs = if qps == 1 {
            "a queue pair each".to_owned()
        } else {
            format!("{qps} queue pairs each")
        };
        if self.shape == Shape::TwoPaths {
            // The cost of packets in any order is less than a percent.
            write!(f, "{:.2} Gb/s instead of {:.2}", now.gbps, fixed.gbps)?;
        } else if now.gbps < fixed.gbps * (1.0 - NOTABLE) {
            write!(f, "{:.1} Gb/s instead of {:.1}", now.gbps, fixed.gbps)?;
        } else if now.p99_us > fixed.p99_us * (1.0 + NOTABLE) && fixed.p99_us > 0.0 {
            write!(
                f,
                "{:.0} us instead of {:.0} for 99 of 100 messages",
                now.p99_us, fixed.p99_us
            )?;
        } else {
            write!(
                f,
                "no change of {:.1} Gb/s or {:.0} us",
                now.gbps, now.p99_us
            )?;
        }
        if now.dropped != fixed.dropped {
            write!(
                f,
                ", {} packets dropped instead of {}",
                now.dropped, fixed.dropped
            )?;
        }
        if now.pauses != fixed.pauses {
            write!(f, ", {} pauses instead of {}", now.pauses, fixed.pauses)?;
        }
        write!(f, " (simulated: {load}, {pairs}{also})")
    }
}

/// Runs a fabric file; goodput and latency are those of the workloads of this name. `None` where the text is
/// no valid network.
pub(crate) fn run_file(text: &str, workload: &str) -> Option<Outcome> {
    let document = Document::read("consequence", text, &mut |_| Err("no files".to_owned())).ok()?;
    let experiment = Experiment::new(&document, &mut |_| Err("no files".to_owned())).ok()?;
    outcome_of(&experiment, workload)
}

/// Runs an experiment; goodput and latency are those of the workloads of this name.
fn outcome_of(experiment: &Experiment, name: &str) -> Option<Outcome> {
    let ran = experiment.run(&mut |_| true).ok()?;
    let report = Report::new(experiment, &ran.results, ran.partial);
    let counted = || {
        report
            .workloads
            .iter()
            .filter(|workload| workload.name == name)
    };
    let gbps = counted().map(|workload| workload.goodput_bps).sum::<f64>() / 1e9;
    let latency = counted().filter_map(|workload| workload.latency_us.map(|found| found.p99));
    Some(Outcome {
        gbps,
        p99_us: latency.fold(0.0, f64::max),
        dropped: report.switches.iter().map(|switch| switch.dropped).sum(),
        pauses: report
            .switches
            .iter()
            .map(|switch| switch.pauses_sent)
            .sum(),
    })
}

fn nic(text: &mut String, name: &str, talk: &Talk) {
    let pfc: Vec<String> = classes(talk.pfc).map(|class| class.to_string()).collect();
    let congestion = if talk.ecn { "dcqcn" } else { "off" };
    let _ = write!(
        text,
        "[nic.{name}]\ndscp = {}\necn = {}\npriority = {}\npfc = [{}]\ncnp-dscp = {}\n\
         cnp-priority = {}\nmtu = {}\n\
         congestion = \"{congestion}\"\n",
        talk.dscp,
        talk.ecn,
        talk.priority,
        pfc.join(", "),
        talk.cnp_dscp,
        talk.cnp_priority,
        talk.mtu
    );
    if let Some(pcp) = talk.pcp {
        let _ = writeln!(text, "pcp = {pcp}");
    }
    if let Some((generation, width)) = talk.pcie {
        let _ = writeln!(
            text,
            "pcie = {{ generation = {generation}, width = {width}, payload = {}, read-latency = \"{}ns\" }}",
            talk.pcie_payload, talk.memory_ns
        );
    }
}

/// Entries of a table of the fabric file: ranges of values, with the class of each.
fn class_map(class_of: &[u8]) -> String {
    let values_of = |class: u8| {
        (0_u8..)
            .zip(class_of)
            .filter(move |(_, own)| **own == class)
            .map(|(value, _)| value)
    };
    let entries = (0..8).flat_map(|class| {
        let text = ranges(values_of(class));
        let keys: Vec<String> = text
            .split(',')
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect();
        keys.into_iter()
            .map(move |key| format!("\"{key}\" = {class}"))
    });
    entries.collect::<Vec<_>>().join(", ")
}

fn qos(text: &mut String, intent: &Intent) {
    let trust = match intent.trust {
        Trust::None => "none",
        Trust::Pcp => "pcp",
        Trust::Dscp => "dscp",
        Trust::Both => "both",
    };
    let _ = writeln!(
        text,
        "[qos.default]\nbuffer = \"{BUFFER}\"\ntrust = \"{trust}\"\ndefault-class = {}",
        intent.default_class
    );
    let _ = writeln!(
        text,
        "dscp = {{ {} }}\npcp = {{ {} }}",
        class_map(&intent.dscp),
        class_map(&intent.pcp)
    );
    let list: Vec<String> = classes(intent.pfc_send)
        .map(|class| class.to_string())
        .collect();
    let _ = writeln!(text, "pfc.classes = [{}]", list.join(", "));
    if let Some(xoff) = intent.pause.xoff {
        let _ = writeln!(text, "pfc.xoff = \"{xoff}B\"");
        if let Some(xon) = intent.pause.xon {
            let _ = writeln!(text, "pfc.xon = \"{}B\"", xoff.saturating_sub(xon));
        }
    }
    if let Some(headroom) = intent.pause.headroom {
        let _ = writeln!(text, "pfc.headroom = \"{headroom}B\"");
    }
    for (class, queue) in intent.queues.iter().enumerate() {
        let (level, weight) = match queue.schedule {
            Schedule::Background(weight) => (0, weight),
            Schedule::Weighted(weight) => (1, weight),
            Schedule::Strict => (2 + class, 1),
        };
        let _ = writeln!(
            text,
            "[qos.default.queue.{class}]\nlevel = {level}\nweight = {}",
            weight.max(1)
        );
        if let Some(rate) = queue.rate {
            let _ = writeln!(text, "rate = \"{}b/s\"", rate.bps);
            if let Some(burst) = rate.burst {
                let _ = writeln!(text, "burst = \"{burst}B\"");
            }
        }
        match queue.ecn {
            None => {}
            Some(Ecn::Automatic) => text.push_str("ecn = {}\n"),
            Some(Ecn::Thresholds { min, max, percent }) => {
                let max = max.max(min);
                let _ = writeln!(
                    text,
                    "ecn = {{ min = \"{min}B\", max = \"{max}B\", probability = \"{percent}%\" }}"
                );
            }
        }
    }
}
