//! The configuration: transport, congestion control, marking and buffers, by the names of `config_doc.txt`.

use super::flows::dscp;
use crate::graph::{Graph, RoundTrip};
use crate::lines::{Line, Lines};
use crate::text::FabricText;
use crate::{ImportError, Input, quantity};
use fabric::{Rate, Span};
use std::collections::BTreeMap;
use units::{Bandwidth, Size, Timespan};

/// The values of `CC_MODE` that rockery simulates.
const DCQCN: u64 = 1;
const HPCC: u64 = 3;

/// Payloads of packets that adapters have.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Headers of a packet in the model, frame check sequence included.
const DATA_OVERHEAD: &str = "22B";
const CONTROL_OVERHEAD: &str = "40B";

/// Runs in the model end at a time that is often given as far away.
const STOP_MAX_S: f64 = 1000.0;

/// Times in microseconds, and bytes in kilobytes.
const US_MAX: u64 = 1 << 40;
const KB_MAX: u64 = 1 << 21;

/// Keys that name files or what is recorded, or that belong to what rockery refuses or leaves as it is.
const IRRELEVANT: &[&str] = &[
    "TOPOLOGY_FILE",
    "FLOW_FILE",
    "TRACE_FILE",
    "TRACE_OUTPUT_FILE",
    "FCT_OUTPUT_FILE",
    "PFC_OUTPUT_FILE",
    "ENABLE_TRACE",
    "QLEN_MON_FILE",
    "QLEN_MON_START",
    "QLEN_MON_END",
    "QLEN_MON_INTERVAL",
    "BW_MON_FILE",
    "BW_MON_INTERVAL",
    "RATE_MON_FILE",
    "CNP_MON_FILE",
    "QP_MON_INTERVAL",
    "MON_START",
    "MON_END",
    // Of congestion control that is refused: DCTCP and HPCC-PINT.
    "DCTCP_RATE_AI",
    "PINT_LOG_BASE",
    "PINT_PROB",
    // The length of what is sent again from the beginning, with L2_BACK_TO_ZERO.
    "L2_CHUNK_SIZE",
    // The unit of counters within telemetry.
    "INT_MULTI",
];

/// Keys with the one value that rockery has, and what another one would be.
const FIXED: &[(&str, &str, &str)] = &[
    (
        "L2_BACK_TO_ZERO",
        "0",
        "rockery sends again from the first missing packet on",
    ),
    ("MULTI_RATE", "0", "rockery has one rate for all hops"),
    (
        "SAMPLE_FEEDBACK",
        "0",
        "rockery's packets all carry telemetry",
    ),
    ("RATE_BOUND", "1", "rockery's adapters keep to their rates"),
];

/// ECN of a rate of ports.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    min_kb: Option<u64>,
    max_kb: Option<u64>,
    probability: Option<f64>,
}

/// A link that goes down.
#[derive(Clone, Debug)]
struct LinkDown {
    at: Span,
    ends: [u64; 2],
    error: ImportError,
}

/// What a configuration says.
#[derive(Debug)]
pub(crate) struct Config {
    congestion: u64,
    payload: u32,
    stop_s: Option<f64>,
    marks: BTreeMap<u64, Marks>,
    has_ecn: bool,
    dynamic_pfc: bool,
    buffer_mib: Option<u64>,
    has_window: bool,
    has_global_window: bool,
    has_variable_window: bool,
    ack_interval: Option<u64>,
    acks_first: bool,
    error_rate: f64,
    utilisation: Option<f64>,
    stages: Option<u64>,
    gain: Option<f64>,
    fast_recovery: Option<u64>,
    clamps_target: bool,
    alpha_us: Option<f64>,
    decrease_us: Option<f64>,
    increase_us: Option<f64>,
    additive: Option<Rate>,
    hyper: Option<Rate>,
    minimum: Option<Rate>,
    down: Option<LinkDown>,
}

impl Default for Config {
    /// The values of a run whose configuration leaves all out.
    fn default() -> Self {
        Self {
            congestion: DCQCN,
            payload: 1000,
            stop_s: None,
            marks: BTreeMap::new(),
            has_ecn: true,
            dynamic_pfc: true,
            buffer_mib: None,
            has_window: false,
            has_global_window: true,
            has_variable_window: false,
            ack_interval: None,
            acks_first: false,
            error_rate: 0.0,
            utilisation: None,
            stages: None,
            gain: None,
            fast_recovery: None,
            clamps_target: false,
            alpha_us: None,
            decrease_us: None,
            increase_us: None,
            additive: None,
            hyper: None,
            minimum: None,
            down: None,
        }
    }
}

impl Config {
    /// Reads the lines, each of which is a key and its values.
    pub(crate) fn read(input: Input<'_>, notes: &mut Vec<String>) -> Result<Self, ImportError> {
        let mut config = Self::default();
        for mut line in Lines::of(input) {
            // The commented configuration has what a key means in braces.
            if let Some(end) = line.words.iter().position(|word| word.starts_with('{')) {
                line.words.truncate(end);
            }
            match line.words.first() {
                Some(word) if !word.starts_with('#') => config.line(&line, notes)?,
                _ => {}
            }
        }
        Ok(config)
    }

    fn line(&mut self, line: &Line<'_>, notes: &mut Vec<String>) -> Result<(), ImportError> {
        let key = line.words[0];
        if IRRELEVANT.contains(&key) {
            return Ok(());
        }
        if let Some((_, value, meaning)) = FIXED.iter().find(|(name, _, _)| *name == key) {
            if line.word(1, "the value")? != *value {
                notes.push(line.note_about(&format!("{key} is not {value} here, and {meaning}")));
            }
            return Ok(());
        }
        match key {
            "KMIN_MAP" | "KMAX_MAP" | "PMAX_MAP" => self.marks(line),
            "LINK_DOWN" => self.link_down(line),
            "CC_MODE" => self.congestion(line),
            _ => match self.value(key, line)? {
                true => Ok(()),
                false => {
                    notes.push(
                        line.note_about(&format!("{key} is not understood, and is left out")),
                    );
                    Ok(())
                }
            },
        }
    }

    /// Takes the value of a key; false if there is no such key.
    fn value(&mut self, key: &str, line: &Line<'_>) -> Result<bool, ImportError> {
        let whole = |most: u64| line.number(1, "the value", most);
        let decimal = || line.decimal(1, "the value");
        let rate = || line.quantity(1, "a rate such as 50Mb/s", quantity::rate);
        let is_on = || Ok(whole(1)? == 1);
        match key {
            "ENABLE_QCN" => self.has_ecn = is_on()?,
            "USE_DYNAMIC_PFC_THRESHOLD" => self.dynamic_pfc = is_on()?,
            "PACKET_PAYLOAD_SIZE" => self.payload = whole(u64::from(u16::MAX))? as u32,
            "SIMULATOR_STOP_TIME" => self.stop_s = Some(decimal()?),
            "ALPHA_RESUME_INTERVAL" => self.alpha_us = Some(decimal()?),
            "RATE_DECREASE_INTERVAL" => self.decrease_us = Some(decimal()?),
            "CLAMP_TARGET_RATE" => self.clamps_target = is_on()?,
            "RP_TIMER" => self.increase_us = Some(decimal()?),
            "EWMA_GAIN" => self.gain = Some(decimal()?),
            "FAST_RECOVERY_TIMES" => self.fast_recovery = Some(whole(255)?),
            "RATE_AI" => self.additive = Some(rate()?),
            "RATE_HAI" => self.hyper = Some(rate()?),
            "MIN_RATE" => self.minimum = Some(rate()?),
            "ERROR_RATE_PER_LINK" => self.error_rate = decimal()?,
            "L2_ACK_INTERVAL" => self.ack_interval = Some(whole(u64::from(u32::MAX))?),
            "HAS_WIN" => self.has_window = is_on()?,
            "GLOBAL_T" => self.has_global_window = is_on()?,
            "VAR_WIN" => self.has_variable_window = is_on()?,
            // Both are how often a sender of HPCC acts, which each acknowledgement decides here too.
            "FAST_REACT" => _ = whole(1)?,
            "U_TARGET" => self.utilisation = Some(decimal()?),
            "MI_THRESH" => self.stages = Some(whole(255)?),
            "ACK_HIGH_PRIO" => self.acks_first = is_on()?,
            "BUFFER_SIZE" => self.buffer_mib = Some(whole(1 << 20)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn congestion(&mut self, line: &Line<'_>) -> Result<(), ImportError> {
        self.congestion = line.number(1, "CC_MODE", u64::from(u8::MAX))?;
        let name = match self.congestion {
            DCQCN | HPCC => return Ok(()),
            7 => "TIMELY",
            8 => "DCTCP",
            10 => "HPCC-PINT",
            _ => return Err(line.error("CC_MODE is 1 (DCQCN) or 3 (HPCC)")),
        };
        Err(line.error(format!(
            "CC_MODE {} is {name}, which is not imported: set 1 (DCQCN) or 3 (HPCC)",
            self.congestion
        )))
    }

    /// A number of pairs of a rate in bits per second and a value.
    fn marks(&mut self, line: &Line<'_>) -> Result<(), ImportError> {
        let count = line.number(1, "the number of rates", 1024)? as usize;
        for pair in 0..count {
            let rate = line.number(2 + 2 * pair, "a rate in bits per second", u64::MAX)?;
            let marks = self.marks.entry(rate).or_default();
            let at = 3 + 2 * pair;
            match line.words[0] {
                "KMIN_MAP" => marks.min_kb = Some(line.number(at, "kilobytes", KB_MAX)?),
                "KMAX_MAP" => marks.max_kb = Some(line.number(at, "kilobytes", KB_MAX)?),
                _ => marks.probability = Some(line.decimal(at, "a probability")?.min(1.0)),
            }
        }
        Ok(())
    }

    fn link_down(&mut self, line: &Line<'_>) -> Result<(), ImportError> {
        let at = line.number(1, "the time in microseconds", US_MAX)?;
        let ends = [
            line.number(2, "a node", u64::MAX)?,
            line.number(3, "a node", u64::MAX)?,
        ];
        // `0 0 0` is none.
        if at != 0 || ends != [0, 0] {
            let error = line.error(format!(
                "there is no link between {} and {}",
                ends[0], ends[1]
            ));
            let at = Span::from_us(at);
            self.down = Some(LinkDown { at, ends, error });
        }
        Ok(())
    }

    /// Changes links as the configuration says.
    pub(crate) fn change_links(
        &self,
        graph: &mut Graph,
        notes: &mut Vec<String>,
    ) -> Result<(), ImportError> {
        if self.error_rate > 0.0 {
            // Above one in a hundred million; smaller ones are rounded to it.
            let loss = (self.error_rate.min(0.999_999_999) * 1e9).ceil() as u64;
            for link in &mut graph.links {
                link.loss = link.loss.max(loss);
            }
        }
        let Some(down) = &self.down else {
            return Ok(());
        };
        let is_it = |ends: [usize; 2]| {
            let ends = ends.map(|end| end as u64);
            ends == down.ends || ends == [down.ends[1], down.ends[0]]
        };
        let index = graph.links.iter().position(|link| is_it(link.ends));
        let index = index.ok_or_else(|| down.error.clone())?;
        graph.fails.insert(index, down.at);
        notes.push(
            "LINK_DOWN: switches of the model route around the link at once; set routing.reaction"
                .to_owned(),
        );
        Ok(())
    }

    /// Writes the tables of adapters and switches.
    pub(crate) fn write(
        &self,
        text: &mut FabricText,
        graph: &Graph,
        classes: &[u8],
        notes: &mut Vec<String>,
    ) {
        match self.stop_s {
            Some(stop) if stop <= STOP_MAX_S => {
                // Written above the tables.
                text.quoted("duration", Timespan(Span((stop * 1e12) as u64)));
            }
            _ => {}
        }
        let trip = graph.longest_round_trip(self.payload);
        self.adapter(text, trip, notes);
        match self.congestion {
            HPCC => self.hpcc(text, trip),
            _ => self.dcqcn(text),
        }
        self.switch(text, graph, classes, notes);
    }

    fn adapter(&self, text: &mut FabricText, trip: RoundTrip, notes: &mut Vec<String>) {
        text.table("nic.default");
        let mtu = MTUS.into_iter().find(|mtu| *mtu >= self.payload);
        let mtu = mtu.unwrap_or(MTUS[MTUS.len() - 1]);
        text.field("mtu", mtu);
        if mtu != self.payload {
            let payload = self.payload;
            notes.push(format!(
                "PACKET_PAYLOAD_SIZE {payload}: adapters have {mtu} bytes, which is the nearest path MTU"
            ));
        }
        match self.has_window {
            true => text.quoted("window", Size(trip.bytes.max(u64::from(mtu)))),
            false => text.quoted("window", "1GiB"),
        }
        if self.has_window && !self.has_global_window {
            notes.push(
                "GLOBAL_T 0: each pair of hosts has a window of its own there; here all have the \
                 largest"
                    .to_owned(),
            );
        }
        if self.has_window && self.has_variable_window && self.congestion == DCQCN {
            notes.push(
                "VAR_WIN 1: the window shrinks with the rate there; here it stays".to_owned(),
            );
        }
        if let Some(interval) = self.ack_interval {
            text.field("ack-interval", interval.max(1));
        }
        if self.acks_first {
            text.field("ack-priority", 6);
        }
        if self.congestion == DCQCN {
            // Marks travel with acknowledgements there.
            text.field("cnp-dscp", dscp(super::CLASS));
        }
        text.quoted("data-overhead", DATA_OVERHEAD);
        text.quoted("control-overhead", CONTROL_OVERHEAD);
        let name = if self.congestion == HPCC {
            "hpcc"
        } else {
            "dcqcn"
        };
        text.quoted("congestion", name);
    }

    fn hpcc(&self, text: &mut FabricText, trip: RoundTrip) {
        text.table("nic.default.hpcc");
        text.quoted("base-rtt", Timespan(trip.time));
        if let Some(utilisation) = self.utilisation {
            text.field("utilisation", decimal(utilisation));
        }
        if let Some(stages) = self.stages {
            text.field("stages", stages);
        }
        if let Some(rate) = self.additive {
            text.quoted("additive", Size(rate.bytes_in(trip.time).max(1)));
        }
    }

    fn dcqcn(&self, text: &mut FabricText) {
        text.table("nic.default.dcqcn");
        // Each acknowledgement has its packet's mark, and there is no counter of bytes.
        text.quoted("cnp-interval", "0s");
        text.quoted("increase-bytes", "1TiB");
        if let Some(gain) = self.gain {
            text.field("g", decimal(gain));
        }
        let times = [
            ("cut-interval", self.decrease_us),
            ("alpha-interval", self.alpha_us),
            ("increase-interval", self.increase_us),
        ];
        for (name, us) in times {
            if let Some(us) = us {
                text.quoted(name, Timespan(Span((us * 1e6) as u64)));
            }
        }
        if let Some(times) = self.fast_recovery {
            text.field("fast-recovery-steps", times);
        }
        let rates = [
            ("additive-rate", self.additive),
            ("hyper-rate", self.hyper),
            ("minimum-rate", self.minimum),
        ];
        for (name, rate) in rates {
            if let Some(rate) = rate {
                text.quoted(name, Bandwidth(rate));
            }
        }
        if self.clamps_target {
            text.field("clamp-target", true);
        }
    }

    fn switch(
        &self,
        text: &mut FabricText,
        graph: &Graph,
        classes: &[u8],
        notes: &mut Vec<String>,
    ) {
        let classes = if classes.is_empty() {
            &[super::CLASS]
        } else {
            classes
        };
        text.table("qos.default");
        if let Some(buffer) = self.buffer_mib {
            text.quoted("buffer", format_args!("{buffer}MiB"));
        }
        text.quoted("cell", "1B");
        text.quoted("trust", "dscp");
        let map: Vec<String> = classes
            .iter()
            .map(|class| format!("{} = {class}", dscp(*class)))
            .collect();
        text.field("dscp", format_args!("{{ {} }}", map.join(", ")));
        if let Some(ecn) = self.ecn(graph, notes) {
            for class in classes {
                text.table(format_args!("qos.default.queue.{class}"));
                text.field("ecn", &ecn);
            }
        }
        text.table("qos.default.pfc");
        text.field("classes", format_args!("{classes:?}"));
        match self.dynamic_pfc {
            true => text.quoted("xoff", "alpha 1/8"),
            false => notes.push(
                "USE_DYNAMIC_PFC_THRESHOLD 0: the threshold of the model is not taken over; set \
                 qos.default.pfc.xoff"
                    .to_owned(),
            ),
        }
    }

    /// The thresholds of the most frequent rate of links that has some.
    fn ecn(&self, graph: &Graph, notes: &mut Vec<String>) -> Option<String> {
        if !self.has_ecn {
            return None;
        }
        let rates = graph.rates();
        let mut found = None;
        for rate in &rates {
            let Some(marks) = self.marks.get(&rate.bps()) else {
                continue;
            };
            let (Some(min), Some(max)) = (marks.min_kb, marks.max_kb) else {
                continue;
            };
            let probability = decimal(marks.probability.unwrap_or(1.0));
            let ecn =
                format!("{{ min = \"{min}kB\", max = \"{max}kB\", probability = {probability} }}");
            match &found {
                None => found = Some(ecn),
                Some(first) if *first != ecn => {
                    let rate = Bandwidth(*rate);
                    notes.push(format!(
                        "KMIN_MAP, KMAX_MAP, PMAX_MAP: ports of {rate} have thresholds of their own there \
                         ({ecn}); here all have those of the most frequent rate ({first})"
                    ));
                }
                Some(_) => {}
            }
        }
        if found.is_none() && !self.marks.is_empty() {
            let rates: Vec<String> = rates
                .iter()
                .map(|rate| Bandwidth(*rate).to_string())
                .collect();
            notes.push(format!(
                "KMIN_MAP and KMAX_MAP have no thresholds for {}: nothing is marked",
                rates.join(", ")
            ));
        }
        found
    }
}

/// A number as TOML has those with decimals.
fn decimal(value: f64) -> String {
    format!("{value:?}")
}
