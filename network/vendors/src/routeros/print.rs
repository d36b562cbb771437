//! The tables that RouterOS prints: the resulting configuration, and the counters of the switch.

use super::model::{BLOCK_BYTES, MEMORY_BYTES};
use super::{QueueSchedule, RouterOsConfig, Threshold, TxQueue};
use crate::counted::{CountedPort, CountedSwitch};
use fabric::Tally;
use fabric::columns;

/// A table: columns as wide as their widest cell.
struct RouterOsTable {
    rows: Vec<Vec<String>>,
}

impl RouterOsTable {
    fn new(columns: &[&str]) -> Self {
        Self {
            rows: vec![columns.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    fn row(&mut self, cells: &[&str]) {
        self.rows
            .push(cells.iter().map(|cell| (*cell).to_owned()).collect());
    }

    fn text(&self, heading: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                cells(column)
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = format!("{heading}\n");
        for row in &self.rows {
            let padded = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| columns::left(cell, *width));
            let line = padded.collect::<Vec<_>>().join("  ");
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

impl RouterOsConfig {
    /// The `print` of every menu, and `monitor`, as the switch shows them.
    pub fn print(&self, counters: &CountedSwitch) -> String {
        let parts = [
            self.print_tx_managers(),
            self.print_queues(),
            self.print_profiles(),
            self.print_pfc(),
            self.print_ports(counters),
            Self::print_stats(counters),
            Self::print_usage(counters),
            self.print_port_pfc(counters),
            self.monitor(counters),
            Self::print_ethernet(counters),
        ];
        parts.join("\n")
    }

    fn flag(&self) -> &'static str {
        if self.offloaded { "H" } else { "" }
    }

    fn print_tx_managers(&self) -> String {
        let mut table = RouterOsTable::new(&["#", "", "NAME", "QUEUE-BUFFERS", "ECN"]);
        for (index, manager) in self.tx_managers.iter().enumerate() {
            table.row(&[
                &index.to_string(),
                self.flag(),
                &manager.name,
                "auto",
                yes(manager.ecn),
            ]);
        }
        table.text("[tx-manager print]  Flags: H - HW-OFFLOADED")
    }

    fn print_queues(&self) -> String {
        let columns = [
            "#",
            "",
            "TX-MANAGER",
            "TRAFFIC-CLASS",
            "SCHEDULE",
            "WEIGHT",
            "QUEUE-BUFFERS",
        ];
        let more = ["USE-SHARED-BUFFERS", "WRED-ACTUAL", "ECN-ACTUAL"];
        let mut table = RouterOsTable::new(&[columns.as_slice(), more.as_slice()].concat());
        let Some(manager) = self.tx_managers.first() else {
            return String::new();
        };
        for (class, queue) in manager.queues.iter().enumerate() {
            let active = self.is_active(class);
            let ecn = active && queue.shared && (manager.ecn || queue.ecn);
            let flag = if active { self.flag() } else { "I" };
            let buffers = queue
                .buffers
                .map_or_else(|| "auto".to_owned(), |bytes| size(u64::from(bytes)));
            let (class, weight) = (class.to_string(), weight(queue));
            let cells = [
                &class,
                flag,
                &manager.name,
                &class,
                schedule(queue),
                &weight,
                &buffers,
            ];
            // The chip's early drop and its marking are one mechanism, and are reported alike.
            let last = [
                yes(queue.shared),
                yes(ecn || active && queue.wred),
                yes(ecn),
            ];
            table.row(&[cells.as_slice(), last.as_slice()].concat());
        }
        table.text("[tx-manager queue print]  Flags: I - INACTIVE, H - HW-OFFLOADED")
    }

    fn print_profiles(&self) -> String {
        let mut table = RouterOsTable::new(&["#", "", "NAME", "PCP", "DSCP", "TRAFFIC-CLASS"]);
        for (index, profile) in self.profiles.iter().enumerate() {
            let numbers =
                [profile.pcp, profile.dscp, profile.traffic_class].map(|number| number.to_string());
            let [pcp, dscp, class] = &numbers;
            table.row(&[
                &index.to_string(),
                self.flag(),
                &profile.name,
                pcp,
                dscp,
                class,
            ]);
        }
        table.text("[profile print]  Flags: H - HW-OFFLOADED")
    }

    fn print_pfc(&self) -> String {
        let columns = [
            "#",
            "",
            "NAME",
            "TRAFFIC-CLASS",
            "RX",
            "TX",
            "PAUSE-THRESHOLD",
            "RESUME-THRESHOLD",
        ];
        let mut table = RouterOsTable::new(&columns);
        for (index, pfc) in self.pfc.iter().enumerate() {
            let classes = (0..8).filter(|class| pfc.traffic_classes >> class & 1 == 1);
            let classes = classes
                .map(|class| class.to_string())
                .collect::<Vec<_>>()
                .join(",");
            let threshold = |own: Option<Threshold>| match own {
                _ if index == 0 => String::new(),
                None => "auto".to_owned(),
                Some(Threshold::Bytes(bytes)) => size(u64::from(bytes)),
                Some(Threshold::Percent(percent)) => format!("{percent}%"),
            };
            let (pause, resume) = (
                threshold(pfc.pause_threshold),
                threshold(pfc.resume_threshold),
            );
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

    fn print_ports(&self, counters: &CountedSwitch) -> String {
        let columns = [
            "",
            "NAME",
            "SWITCH",
            "PROFILE",
            "MAP",
            "TRUST-L2",
            "TRUST-L3",
            "TX-MANAGER",
            "PFC",
        ];
        let mut table = RouterOsTable::new(&[&["#"], columns.as_slice()].concat());
        for (index, (name, port)) in self.ports.iter().enumerate() {
            let running = counters.ports.iter().any(|counted| counted.name == *name);
            let flag = if running { "R" } else { "" };
            let number = index.to_string();
            let (l2, l3) = (port.trust_l2.name(), port.trust_l3.name());
            let pfc = if port.pfc == "disabled" {
                ""
            } else {
                &port.pfc
            };
            let first = [
                number.as_str(),
                flag,
                name,
                "switch1",
                &port.profile,
                "default",
            ];
            table.row(&[first.as_slice(), &[l2, l3, &port.tx_manager, pfc]].concat());
        }
        let cpu = self.ports.len().to_string();
        let first = [
            cpu.as_str(),
            "",
            "switch1-cpu",
            "switch1",
            "default",
            "default",
        ];
        table.row(&[first.as_slice(), &["ignore", "ignore", "default", ""]].concat());
        table.text("[port print]  Flags: R - RUNNING")
    }

    fn print_stats(counters: &CountedSwitch) -> String {
        let entries = counters.ports.iter().map(|port| fields(&stats(port)));
        format!("[port print stats]\n{}", entries.collect::<String>())
    }

    /// Most bytes that queues held. `byte-use`, the bytes held now, is 0 once all packets have arrived.
    fn print_usage(counters: &CountedSwitch) -> String {
        let entry = |port: &CountedPort| {
            let queues = port
                .counters
                .queues
                .iter()
                .enumerate()
                .filter(|(_, queue)| queue.sent_packets > 0);
            let most = queues.map(|(queue, counted)| {
                field(
                    &format!("queue{queue}-byte-max"),
                    u64::from(counted.peak_bytes),
                )
            });
            fields(&named(port).into_iter().chain(most).collect::<Vec<_>>())
        };
        format!(
            "[port print usage]\n{}",
            counters.ports.iter().map(entry).collect::<String>()
        )
    }

    /// Counters of the MACs: `/interface ethernet print stats`.
    fn print_ethernet(counters: &CountedSwitch) -> String {
        let entry = |port: &CountedPort| {
            let (ingress, link) = (&port.counters.ingress, &port.counters.link);
            let sent = sent(port);
            let rows = [
                field("rx-bytes", ingress.bytes),
                field("rx-unicast", ingress.packets),
                field("rx-error-events", link.damaged),
                field("rx-fcs-error", link.damaged),
                field("tx-bytes", sent.bytes),
                field("tx-unicast", sent.packets),
            ];
            fields(&named(port).into_iter().chain(rows).collect::<Vec<_>>())
        };
        format!(
            "[ethernet print stats]\n{}",
            counters.ports.iter().map(entry).collect::<String>()
        )
    }

    fn print_port_pfc(&self, counters: &CountedSwitch) -> String {
        let mut text = "[port print pfc]\n".to_owned();
        for counted in &counters.ports {
            let Some(pfc) = self.ports.get(&counted.name).and_then(|port| {
                self.pfc
                    .iter()
                    .find(|pfc| pfc.name == port.pfc)
                    .filter(|pfc| pfc.traffic_classes != 0 && !pfc.disabled)
            }) else {
                continue;
            };
            let (pause, resume) = self.pause_bytes(pfc, counters.ports.len());
            text += &format!("  name: {}\n", counted.name);
            let ingress = &counted.counters.ingress;
            text += &format!("  pfc-rx: {}\n", grouped(ingress.pauses_received));
            text += &format!(
                "  pfc-tx: {}\n",
                grouped(ingress.pauses_sent + ingress.resumes_sent)
            );
            for class in (0..8).filter(|class| pfc.traffic_classes >> class & 1 == 1) {
                text += &format!("  pfc{class}-pause-threshold: {}\n", size(u64::from(pause)));
                text += &format!(
                    "  pfc{class}-resume-threshold: {}\n",
                    size(u64::from(resume))
                );
            }
        }
        text
    }

    fn monitor(&self, counters: &CountedSwitch) -> String {
        let mut text = "[monitor]\n".to_owned();
        let mut pool = |name: &str, cap: u32, used: u64| {
            let block = u64::from(BLOCK_BYTES);
            text += &format!(
                "  {name}-packet-cap: {}\n",
                grouped(u64::from(cap / BLOCK_BYTES))
            );
            text += &format!("  {name}-packet-use: {}\n", grouped(used.div_ceil(block)));
            text += &format!("  {name}-byte-cap: {}\n", size(u64::from(cap)));
            text += &format!("  {name}-byte-use: {}\n", size(used));
        };
        pool("total", MEMORY_BYTES, u64::from(counters.buffer.peak_bytes));
        pool("multicast", self.multicast_bytes(), 0);
        pool(
            "shared-pool0",
            self.shared_bytes(),
            u64::from(counters.buffer.shared_peak_bytes),
        );
        for (name, bytes) in [
            ("wred", self.wred_bytes()),
            ("wred-shared-pool", self.wred_bytes() / 2),
        ] {
            text += &format!(
                "  {name}-packet-cap: {}\n",
                grouped(u64::from(bytes / BLOCK_BYTES))
            );
            text += &format!("  {name}-byte-cap: {}\n", size(u64::from(bytes)));
        }
        text
    }
}

fn named(port: &CountedPort) -> [(String, String); 1] {
    [("name".to_owned(), port.name.clone())]
}

fn sent(port: &CountedPort) -> Tally {
    let of = |queue: &fabric::QueueCounters| Tally {
        packets: queue.sent_packets,
        bytes: queue.sent_bytes,
    };
    port.counters.queues.iter().map(of).sum()
}

/// Sent and dropped packets and bytes of a port: totals, and those of queues in use, as in the manual's
/// example.
fn stats(port: &CountedPort) -> Vec<(String, String)> {
    let queues = &port.counters.queues;
    let dropped: [Tally; 8] = core::array::from_fn(|queue| port.counters.dropped(queue, |_| true));
    let (all, lost) = (sent(port), dropped.iter().copied().sum::<Tally>());
    let mut rows = Vec::from(named(port));
    rows.extend([field("tx-packet", all.packets), field("tx-byte", all.bytes)]);
    rows.extend([
        field("drop-packet", lost.packets),
        field("drop-byte", lost.bytes),
    ]);
    let mut by_queue = |what: &str, count: &dyn Fn(usize) -> u64| {
        let used = (0..8).filter(|queue| count(*queue) > 0);
        rows.extend(used.map(|queue| field(&what.replace('N', &queue.to_string()), count(queue))));
    };
    by_queue("tx-queueN-packet", &|queue| queues[queue].sent_packets);
    by_queue("tx-queueN-byte", &|queue| queues[queue].sent_bytes);
    by_queue("drop-queueN-packet", &|queue| dropped[queue].packets);
    by_queue("drop-queueN-byte", &|queue| dropped[queue].bytes);
    rows
}

const fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

const fn schedule(queue: &TxQueue) -> &'static str {
    match queue.schedule {
        QueueSchedule::Strict => "strict-priority",
        QueueSchedule::High => "high-priority-group",
        QueueSchedule::Low => "low-priority-group",
    }
}

fn weight(queue: &TxQueue) -> String {
    if queue.schedule == QueueSchedule::Strict {
        String::new()
    } else {
        queue.weight.to_string()
    }
}

/// Digits in groups of three, parted by spaces.
fn grouped(number: u64) -> String {
    crate::counted::grouped(number, ' ')
}

/// Names and values, each right-aligned, as RouterOS prints entries that have no columns.
fn fields(rows: &[(String, String)]) -> String {
    let width = |of: fn(&(String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (names, values) = (width(|row| row.0.len()), width(|row| row.1.len()));
    let line = |(name, value): &(String, String)| {
        format!(
            "    {}:  {}\n",
            columns::right(name, names),
            columns::right(value, values)
        )
    };
    rows.iter().map(line).collect()
}

fn field(name: &str, value: u64) -> (String, String) {
    (name.to_owned(), grouped(value))
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
