//! The counters of SONiC, as its `show` commands print them (sonic-net, `sonic-utilities`: `portstat`,
//! `pfcstat`, `queuestat`, `wredstat`, `pg-drop`, `watermarkstat`, `pfcwd`).

use super::SonicConfig;
use crate::counted::{CountedPort, CountedSwitch, grouped};
use fabric::Span;
use fabric::columns;
use fabric::config::CLASSES;
use fabric::{Drop, Incidents, QueueCounters, Tally};

/// Columns are this much wider than their heads at least, as the `tabulate` that SONiC prints with has it.
const HEAD_PADDING: usize = 2;

/// A counter that is not counted.
const NOT_COUNTED: &str = "N/A";

/// A table: right-aligned, a line under the heads.
struct SonicTable(Vec<Vec<String>>);

impl SonicTable {
    fn new<'a>(heads: impl IntoIterator<Item = &'a str>) -> Self {
        Self(vec![heads.into_iter().map(str::to_owned).collect()])
    }

    /// Columns for something of which there are eight.
    fn numbered(first: &str, name: &str) -> Self {
        let heads = (0..CLASSES).map(|number| format!("{name}{number}"));
        Self(vec![
            core::iter::once(first.to_owned()).chain(heads).collect(),
        ])
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    fn text(&self) -> String {
        let Some((heads, rows)) = self.0.split_first() else {
            return String::new();
        };
        let width = |(column, head): (usize, &String)| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(String::len);
            cells.max().unwrap_or(0).max(head.len() + HEAD_PADDING)
        };
        let widths: Vec<usize> = heads.iter().enumerate().map(width).collect();
        let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let line = |cells: &Vec<String>| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| columns::right(cell, *width));
            padded.collect::<Vec<_>>().join("  ") + "\n"
        };
        [heads, &dashes].into_iter().chain(rows).map(line).collect()
    }
}

impl SonicConfig {
    /// The output of the commands that show counters and watermarks: each command, then its table.
    pub fn print(&self, switch: &CountedSwitch) -> String {
        let (shared, headroom) = (
            switch.buffer.shared_peak_bytes,
            switch.buffer.headroom_peak_bytes,
        );
        let commands = [
            ("show interfaces counters", interfaces(switch)),
            ("show pfc counters", pfc(switch)),
            ("show queue counters", queues(switch)),
            ("show queue wredcounters", wred(switch)),
            ("show queue watermark unicast", queue_watermarks(switch)),
            ("show priority-group drop counters", group_drops(switch)),
            (
                "show priority-group watermark shared",
                group_watermarks(switch, true),
            ),
            (
                "show priority-group watermark headroom",
                group_watermarks(switch, false),
            ),
            (
                "show buffer_pool watermark",
                self.pool("Shared pool maximum occupancy:", shared),
            ),
            (
                "show headroom-pool watermark",
                self.pool("Headroom pool maximum occupancy:", headroom),
            ),
            ("show pfcwd stats", self.watchdog(switch)),
        ];
        commands
            .map(|(command, table)| format!("$ {command}\n{table}"))
            .join("\n")
    }

    fn pool(&self, title: &str, bytes: u32) -> String {
        let mut table = SonicTable::new(["Pool", "Bytes"]);
        table.row([self.pool.clone(), bytes.to_string()]);
        format!("{title}\n{}", table.text())
    }

    /// Queues that a watchdog has found in a storm, as SONiC lists them.
    fn watchdog(&self, switch: &CountedSwitch) -> String {
        let heads = [
            "QUEUE",
            "STATUS",
            "STORM DETECTED/RESTORED",
            "TX OK/DROP",
            "RX OK/DROP",
        ];
        let mut table = SonicTable::new(
            heads
                .into_iter()
                .chain(["TX LAST OK/DROP", "RX LAST OK/DROP"]),
        );
        for port in &switch.ports {
            let Some(incidents) = &port.counters.incidents else {
                continue;
            };
            for queue in (0..CLASSES).filter(|queue| incidents.storms_detected[*queue] > 0) {
                let (found, over) = (
                    incidents.storms_detected[queue],
                    incidents.storms_restored[queue],
                );
                let status = if found > over {
                    "stormed"
                } else {
                    "operational"
                };
                let dropped = incidents.dropped[queue][Drop::Storm as usize].packets;
                let sent = port.counters.queues[queue].sent_packets;
                let first = [
                    format!("{}:{queue}", port.name),
                    status.to_owned(),
                    format!("{found}/{over}"),
                ];
                let unknown = [NOT_COUNTED, NOT_COUNTED, NOT_COUNTED].map(str::to_owned);
                table.row(
                    first
                        .into_iter()
                        .chain([format!("{sent}/{dropped}")])
                        .chain(unknown),
                );
            }
        }
        table.text()
    }
}

/// Rates are those of the whole run; `RX_ERR` are frames whose check sequence was wrong.
fn interfaces(switch: &CountedSwitch) -> String {
    let receive = ["RX_OK", "RX_BPS", "RX_UTIL", "RX_ERR", "RX_DRP", "RX_OVR"];
    let send = ["TX_OK", "TX_BPS", "TX_UTIL", "TX_ERR", "TX_DRP", "TX_OVR"];
    let mut table = SonicTable::new(["IFACE", "STATE"].into_iter().chain(receive).chain(send));
    for port in &switch.ports {
        let (ingress, rate) = (&port.counters.ingress, port.rate.bps());
        let reasons = Drop::ALL
            .iter()
            .zip(ingress.dropped)
            .filter(|(why, _)| !why.is_of_queue());
        let refused = reasons.map(|(_, count)| count).sum();
        let sent: Tally = port.counters.queues.iter().map(sent).sum();
        let unsent: Tally = (0..CLASSES)
            .map(|queue| port.counters.dropped(queue, Drop::is_of_queue))
            .sum();
        let received = Tally {
            packets: ingress.packets,
            bytes: ingress.bytes,
        };
        let mut cells = vec![port.name.clone(), "U".to_owned()];
        for (tally, errors, dropped) in [
            (received, port.counters.link.damaged, refused),
            (sent, 0, unsent.packets),
        ] {
            let [bytes_per_s, part] = rates(tally, rate, switch.elapsed);
            let counts = [errors, dropped, 0].map(comma);
            cells.extend([comma(tally.packets), bytes_per_s, part]);
            cells.extend(counts);
        }
        table.row(cells);
    }
    table.text()
}

fn sent(queue: &QueueCounters) -> Tally {
    Tally {
        packets: queue.sent_packets,
        bytes: queue.sent_bytes,
    }
}

/// Bytes per second and part of the link, as `portstat` writes them.
fn rates(tally: Tally, rate_bps: u64, elapsed: Span) -> [String; 2] {
    let bytes_per_s = tally.bytes as f64 * 1e12 / elapsed.0.max(1) as f64;
    let speed = match bytes_per_s {
        fast if fast > 1e7 => format!("{:.2} MB/s", fast / 1e6),
        some if some > 1e4 => format!("{:.2} KB/s", some / 1e3),
        few => format!("{few:.2} B/s"),
    };
    [
        speed,
        format!("{:.2}%", bytes_per_s * 800.0 / rate_bps.max(1) as f64),
    ]
}

fn pfc(switch: &CountedSwitch) -> String {
    let none = Incidents::default();
    let of = |title: &str, counts: fn(&Incidents) -> [u64; CLASSES]| {
        let mut table = SonicTable::numbered(title, "PFC");
        for port in &switch.ports {
            let incidents = port.counters.incidents.as_deref().unwrap_or(&none);
            table.row(core::iter::once(port.name.clone()).chain(counts(incidents).map(comma)));
        }
        table.text()
    };
    let [received, sent] = [
        of("Port Rx", |incidents| incidents.pfc_received),
        of("Port Tx", |incidents| incidents.pfc_sent),
    ];
    format!("{received}\n{sent}")
}

/// One table per port, a row per queue.
fn by_queue(
    switch: &CountedSwitch,
    heads: &[&str],
    cells: fn(&CountedPort, usize) -> [u64; 4],
) -> String {
    let tables = switch.ports.iter().map(|port| {
        let mut table = SonicTable::new(["Port", "TxQ"].iter().chain(heads).copied());
        for queue in 0..CLASSES {
            let names = [port.name.clone(), format!("UC{queue}")];
            table.row(names.into_iter().chain(cells(port, queue).map(comma)));
        }
        table.text()
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn queues(switch: &CountedSwitch) -> String {
    by_queue(
        switch,
        &["Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes"],
        |port, queue| {
            let (sent, dropped) = (
                sent(&port.counters.queues[queue]),
                port.counters.dropped(queue, Drop::is_of_queue),
            );
            [sent.packets, sent.bytes, dropped.packets, dropped.bytes]
        },
    )
}

fn wred(switch: &CountedSwitch) -> String {
    let heads = [
        "WredDrp/pkts",
        "WredDrp/bytes",
        "EcnMarked/pkts",
        "EcnMarked/bytes",
    ];
    by_queue(switch, &heads, |port, queue| {
        let dropped = port.counters.dropped(queue, |why| why == Drop::Early);
        let QueueCounters {
            marked_packets,
            marked_bytes,
            ..
        } = port.counters.queues[queue];
        [dropped.packets, dropped.bytes, marked_packets, marked_bytes]
    })
}

/// A row per port, a column per number, under a title; numbers without commas, as these commands have them.
fn by_number(
    switch: &CountedSwitch,
    title: &str,
    column: &str,
    count: impl Fn(&CountedPort, usize) -> u64,
) -> String {
    let mut table = SonicTable::numbered("Port", column);
    for port in &switch.ports {
        let counts = (0..CLASSES).map(|number| count(port, number).to_string());
        table.row(core::iter::once(port.name.clone()).chain(counts));
    }
    format!("{title}\n{}", table.text())
}

fn queue_watermarks(switch: &CountedSwitch) -> String {
    let title = "Egress shared pool occupancy per unicast queue:";
    by_number(switch, title, "UC", |port, queue| {
        u64::from(port.counters.queues[queue].peak_bytes)
    })
}

fn group_drops(switch: &CountedSwitch) -> String {
    by_number(
        switch,
        "Ingress PG dropped packets:",
        "PG",
        |port, group| {
            port.counters
                .incidents
                .as_ref()
                .map_or(0, |incidents| incidents.refused[group].packets)
        },
    )
}

fn group_watermarks(switch: &CountedSwitch, shared: bool) -> String {
    let title = if shared {
        "Ingress shared pool occupancy per PG:"
    } else {
        "Ingress headroom per PG:"
    };
    by_number(switch, title, "PG", |port, group| {
        let counted = port.counters.groups[group];
        u64::from(if shared {
            counted.shared_peak_bytes
        } else {
            counted.headroom_peak_bytes
        })
    })
}

fn comma(number: u64) -> String {
    grouped(number, ',')
}
