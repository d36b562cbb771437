//! The tables that RouterOS prints: the configuration as it came to be, and what the switch counted.

use super::model::{BLOCK_BYTES, MEMORY_BYTES};
use super::{Config, Schedule, TxQueue};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What one port counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PortCounters {
    /// Its name.
    pub name: String,
    /// By queue: packets and bytes sent.
    pub sent: [(u64, u64); 8],
    /// Packets that arrived here and were dropped.
    pub dropped_packets: u64,
    /// By queue: the most bytes that waited.
    pub peak_bytes: [u64; 8],
    /// Pause frames received.
    pub pfc_received: u64,
    /// Pause frames sent, those that let the other end go on included.
    pub pfc_sent: u64,
}

/// What the switch counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SwitchCounters {
    /// Most bytes of packet memory in use at once.
    pub total_bytes: u64,
    /// Most bytes of the shared pool in use at once.
    pub shared_bytes: u64,
    /// Ports in use.
    pub ports: Vec<PortCounters>,
}

/// A table: columns as wide as their widest cell.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        Self { rows: alloc::vec![columns.iter().map(|name| (*name).to_owned()).collect()] }
    }

    fn row(&mut self, cells: &[&str]) {
        self.rows.push(cells.iter().map(|cell| (*cell).to_owned()).collect());
    }

    fn text(&self, heading: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = format!("{heading}\n");
        for row in &self.rows {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = padded.collect::<Vec<_>>().join("  ");
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

impl Config {
    /// The `print` of every menu, and `monitor`, as the switch shows them.
    pub fn print(&self, counters: &SwitchCounters) -> String {
        let parts = [
            self.print_tx_managers(),
            self.print_queues(),
            self.print_profiles(),
            self.print_pfc(),
            self.print_ports(counters),
            self.print_stats(counters),
            self.print_port_pfc(counters),
            self.monitor(counters),
        ];
        parts.join("\n")
    }

    fn flag(&self) -> &'static str {
        if self.offloaded { "H" } else { "" }
    }

    fn print_tx_managers(&self) -> String {
        let mut table = Table::new(&["#", "", "NAME", "QUEUE-BUFFERS", "ECN"]);
        for (index, manager) in self.tx_managers.iter().enumerate() {
            table.row(&[&index.to_string(), self.flag(), &manager.name, "auto", yes(manager.ecn)]);
        }
        table.text("[tx-manager print]  Flags: H - HW-OFFLOADED")
    }

    fn print_queues(&self) -> String {
        let columns = ["#", "", "TX-MANAGER", "TRAFFIC-CLASS", "SCHEDULE", "WEIGHT", "QUEUE-BUFFERS"];
        let more = ["USE-SHARED-BUFFERS", "WRED-ACTUAL", "ECN-ACTUAL"];
        let mut table = Table::new(&[columns.as_slice(), more.as_slice()].concat());
        let Some(manager) = self.tx_managers.first() else { return String::new() };
        for (class, queue) in manager.queues.iter().enumerate() {
            let active = self.is_active(class);
            let ecn = active && queue.shared && (manager.ecn || queue.ecn);
            let flag = if active { self.flag() } else { "I" };
            let buffers = queue.buffers.map_or_else(|| "auto".to_owned(), |bytes| size(u64::from(bytes)));
            let (class, weight) = (class.to_string(), weight(queue));
            let cells = [&class, flag, &manager.name, &class, schedule(queue), &weight, &buffers];
            // The chip's early drop and its marking are one mechanism, and are reported alike.
            let last = [yes(queue.shared), yes(ecn || active && queue.wred), yes(ecn)];
            table.row(&[cells.as_slice(), last.as_slice()].concat());
        }
        table.text("[tx-manager queue print]  Flags: I - INACTIVE, H - HW-OFFLOADED")
    }

    fn print_profiles(&self) -> String {
        let mut table = Table::new(&["#", "", "NAME", "PCP", "DSCP", "TRAFFIC-CLASS"]);
        for (index, profile) in self.profiles.iter().enumerate() {
            let numbers = [profile.pcp, profile.dscp, profile.traffic_class].map(|number| number.to_string());
            let [pcp, dscp, class] = &numbers;
            table.row(&[&index.to_string(), self.flag(), &profile.name, pcp, dscp, class]);
        }
        table.text("[profile print]  Flags: H - HW-OFFLOADED")
    }

    fn print_pfc(&self) -> String {
        let columns = ["#", "", "NAME", "TRAFFIC-CLASS", "RX", "TX", "PAUSE-THRESHOLD", "RESUME-THRESHOLD"];
        let mut table = Table::new(&columns);
        for (index, pfc) in self.pfc.iter().enumerate() {
            let classes = (0..8).filter(|class| pfc.traffic_classes >> class & 1 == 1);
            let classes = classes.map(|class| class.to_string()).collect::<Vec<_>>().join(",");
            let threshold = |bytes: Option<u32>| match bytes {
                _ if index == 0 => String::new(),
                None => "auto".to_owned(),
                Some(bytes) => size(u64::from(bytes)),
            };
            let (pause, resume) = (threshold(pfc.pause_threshold), threshold(pfc.resume_threshold));
            let number = index.to_string();
            table.row(&[
                &number,
                self.flag(),
                &pfc.name,
                &classes,
                yes(pfc.rx),
                yes(pfc.tx),
                &pause,
                &resume,
            ]);
        }
        table.text("[priority-flow-control print]  Flags: H - HW-OFFLOADED")
    }

    fn print_ports(&self, counters: &SwitchCounters) -> String {
        let columns = ["", "NAME", "SWITCH", "PROFILE", "MAP", "TRUST-L2", "TRUST-L3", "TX-MANAGER", "PFC"];
        let mut table = Table::new(&[&["#"], columns.as_slice()].concat());
        for (index, (name, port)) in self.ports.iter().enumerate() {
            let running = counters.ports.iter().any(|counted| counted.name == *name);
            let flag = if running { "R" } else { "" };
            let number = index.to_string();
            let (l2, l3) = (port.trust_l2.name(), port.trust_l3.name());
            let pfc = if port.pfc == "disabled" { "" } else { &port.pfc };
            let first = [number.as_str(), flag, name, "switch1", &port.profile, "default"];
            table.row(&[first.as_slice(), &[l2, l3, &port.tx_manager, pfc]].concat());
        }
        let cpu = self.ports.len().to_string();
        let first = [cpu.as_str(), "", "switch1-cpu", "switch1", "default", "default"];
        table.row(&[first.as_slice(), &["ignore", "ignore", "default", ""]].concat());
        table.text("[port print]  Flags: R - RUNNING")
    }

    fn print_stats(&self, counters: &SwitchCounters) -> String {
        let mut text = "[port print stats]\n".to_owned();
        for port in &counters.ports {
            text += &format!("  name: {}\n", port.name);
            for class in 0..8 {
                let (packets, bytes) = port.sent[class];
                if packets > 0 {
                    text += &format!("  tx-queue{class}-packet: {}\n", grouped(packets));
                    text += &format!("  tx-queue{class}-byte: {}\n", grouped(bytes));
                }
            }
            if port.dropped_packets > 0 {
                text += &format!("  rx-drop: {}\n", grouped(port.dropped_packets));
            }
        }
        text
    }

    fn print_port_pfc(&self, counters: &SwitchCounters) -> String {
        let mut text = "[port print pfc]\n".to_owned();
        for counted in &counters.ports {
            let Some(pfc) = self.ports.get(&counted.name).and_then(|port| {
                self.pfc.iter().find(|pfc| pfc.name == port.pfc).filter(|pfc| pfc.traffic_classes != 0)
            }) else {
                continue;
            };
            let (pause, resume) = self.pause_bytes(pfc, counters.ports.len());
            text += &format!("  name: {}\n", counted.name);
            text += &format!("  pfc-rx: {}\n", grouped(counted.pfc_received));
            text += &format!("  pfc-tx: {}\n", grouped(counted.pfc_sent));
            for class in (0..8).filter(|class| pfc.traffic_classes >> class & 1 == 1) {
                text += &format!("  pfc{class}-pause-threshold: {}\n", size(u64::from(pause)));
                text += &format!("  pfc{class}-resume-threshold: {}\n", size(u64::from(resume)));
            }
        }
        text
    }

    fn monitor(&self, counters: &SwitchCounters) -> String {
        let mut text = "[monitor]\n".to_owned();
        let mut pool = |name: &str, cap: u32, used: u64| {
            let block = u64::from(BLOCK_BYTES);
            text += &format!("  {name}-packet-cap: {}\n", grouped(u64::from(cap / BLOCK_BYTES)));
            text += &format!("  {name}-packet-use: {}\n", grouped(used.div_ceil(block)));
            text += &format!("  {name}-byte-cap: {}\n", size(u64::from(cap)));
            text += &format!("  {name}-byte-use: {}\n", size(used));
        };
        pool("total", MEMORY_BYTES, counters.total_bytes);
        pool("multicast", self.multicast_bytes(), 0);
        pool("shared-pool0", self.shared_bytes(), counters.shared_bytes);
        for (name, bytes) in [("wred", self.wred_bytes()), ("wred-shared-pool", self.wred_bytes() / 2)] {
            text += &format!("  {name}-packet-cap: {}\n", grouped(u64::from(bytes / BLOCK_BYTES)));
            text += &format!("  {name}-byte-cap: {}\n", size(u64::from(bytes)));
        }
        text
    }
}

const fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

const fn schedule(queue: &TxQueue) -> &'static str {
    match queue.schedule {
        Schedule::Strict => "strict-priority",
        Schedule::High => "high-priority-group",
        Schedule::Low => "low-priority-group",
    }
}

fn weight(queue: &TxQueue) -> String {
    if queue.schedule == Schedule::Strict { String::new() } else { queue.weight.to_string() }
}

/// Digits in groups of three, parted by spaces.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// With one decimal, in KiB below 4 MiB.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        1..1024 => bytes.to_string(),
        1024..0x40_0000 => tenths(bytes, 1 << 10, "KiB"),
        _ => tenths(bytes, 1 << 20, "MiB"),
    }
}

fn tenths(bytes: u64, unit: u64, name: &str) -> String {
    let tenths = bytes * 10 / unit;
    format!("{}.{}{name}", tenths / 10, tenths % 10)
}
