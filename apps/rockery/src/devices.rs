//! `rockery devices`: devices, the programs that have them open, and their counters.

use std::collections::BTreeMap;

use ::sim::report::counted;
use host::report::{QueuePair, Report, Reports, Stream, collect};
use host::{DeviceInfo, PortHolder};
use serde_json::{Value, json};

use crate::args::Devices;
use crate::{Error, output};

/// Queue pairs that are listed per program without `--all`.
const QUEUE_PAIRS_SHOWN: usize = 8;

/// Lists the devices, once or at an interval.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn show(what: &Devices) -> Result<(), Error> {
    loop {
        // A pipe or a file gets one list after the other.
        if what.watch.is_some() && !what.json && output::is_terminal() {
            output::clear()?;
        }
        match what.json {
            true => output::json(now())?,
            false => output::print(as_text(&host::all(), &collect(), what.all))?,
        }
        let Some(interval) = what.watch else {
            return Ok(());
        };
        std::thread::sleep(interval);
    }
}

/// The devices, programs and counters of this moment, as `--json` prints them.
pub(crate) fn now() -> Value {
    as_json(&host::all(), &collect())
}

/// The warning that programs of this user get no device while another program holds the port.
pub(crate) fn port_is_taken(holder: &PortHolder) -> String {
    format!(
        "programs of this user get none of these devices: UDP port 4791 is taken by {holder}; rockery run \
         --private -- PROGRAM gives them a network namespace of their own, with loopback only"
    )
}

fn as_text(devices: &[DeviceInfo], found: &Reports, all: bool) -> String {
    if devices.is_empty() {
        return "no devices: no network interface is up and has an address (ip address)\n".into();
    }
    let mut lines = Vec::new();
    for device in devices {
        let DeviceInfo {
            name,
            interface,
            interface_mtu,
            active_mtu,
            ..
        } = device;
        lines.push(format!(
            "{name}  interface {interface}, MTU {interface_mtu}, path MTU {}, node GUID {}",
            active_mtu.bytes(),
            guid(device)
        ));
        for (index, gid) in device.gids.iter().enumerate() {
            lines.push(format!("    GID {index}  {gid}"));
        }
        for report in found
            .reports
            .iter()
            .filter(|report| report.device == device.own_name())
        {
            describe(report, all, &mut lines);
        }
    }
    if let Some(holder) = PortHolder::foreign() {
        lines.push(port_is_taken(&holder));
    }
    if found.unanswered > 0 {
        lines.push(format!(
            "{} gave no report: the programs are stopped, or busy",
            counted(found.unanswered as u64, "open device", "open devices")
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn describe(report: &Report, all: bool, lines: &mut Vec<String>) {
    let Report {
        program,
        pid,
        queue_pairs_total,
        ..
    } = report;
    let queue_pairs = counted(*queue_pairs_total, "queue pair", "queue pairs");
    lines.push(format!("    {program} (process {pid}): {queue_pairs}"));
    let counters = report
        .counters
        .iter()
        .filter(|(_, value)| all || *value > 0);
    lines.extend(counters.map(|(name, value)| format!("        {name:<28}{value:>18}")));
    let shown = if all {
        report.queue_pairs.len()
    } else {
        QUEUE_PAIRS_SHOWN
    };
    for pair in report.queue_pairs.iter().take(shown) {
        lines.push(format!("        {}", line_of(pair)));
    }
    let more = (*queue_pairs_total as usize).saturating_sub(shown.min(report.queue_pairs.len()));
    if more > 0 {
        lines.push(format!(
            "        and {} more",
            counted(more as u64, "queue pair", "queue pairs")
        ));
    }
    lines.extend(
        report
            .streams
            .iter()
            .map(|stream| format!("        {}", line_of_stream(stream))),
    );
}

fn line_of_stream(stream: &Stream) -> String {
    let Stream {
        channel,
        operation,
        bytes_max,
        method,
        rings_mb_per_s,
        kernel_mb_per_s,
    } = stream;
    let rate = |mb_per_s: u64| match mb_per_s {
        0 => "not measured".to_owned(),
        _ => format!("{:.1} GB/s", mb_per_s as f64 / 1e3),
    };
    format!(
        "{operation}s of up to {bytes_max} bytes through channel {channel} are copied by the {method} \
         (rings {}, kernel {})",
        rate(*rings_mb_per_s),
        rate(*kernel_mb_per_s)
    )
}

fn line_of(pair: &QueuePair) -> String {
    let QueuePair {
        qpn,
        transport,
        state,
        remote,
        remote_qpn,
        ..
    } = pair;
    let peer = if remote.is_empty() {
        String::new()
    } else {
        format!(" to {remote_qpn:#08x} at {remote}")
    };
    format!(
        "QP {qpn:#08x} {transport} {state}{peer} by {}: sent {} packets, {} bytes; received {}, {}; \
         sent again {}",
        pair.path,
        pair.sent_packets,
        pair.sent_bytes,
        pair.received_packets,
        pair.received_bytes,
        pair.retransmitted_packets
    )
}

fn guid(device: &DeviceInfo) -> String {
    let words: Vec<String> = device
        .guid
        .chunks(2)
        .map(|word| format!("{:02x}{:02x}", word[0], word[1]))
        .collect();
    words.join(":")
}

fn as_json(devices: &[DeviceInfo], found: &Reports) -> Value {
    let devices: Vec<Value> = devices
        .iter()
        .map(|device| {
            let programs = found
                .reports
                .iter()
                .filter(|report| report.device == device.own_name());
            json!({
                "name": device.name,
                "interface": device.interface,
                "interface_index": device.ifindex,
                "interface_mtu_bytes": device.interface_mtu,
                "active_mtu_bytes": device.active_mtu.bytes(),
                "node_guid": guid(device),
                "gids": device.gids.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "programs": programs.map(program).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "devices": devices, "unanswered": found.unanswered })
}

fn program(report: &Report) -> Value {
    let counters: BTreeMap<&str, u64> = report
        .counters
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    json!({
        "program": report.program,
        "pid": report.pid,
        "counters": counters,
        "queue_pairs_total": report.queue_pairs_total,
        "queue_pairs": report.queue_pairs.iter().map(queue_pair).collect::<Vec<_>>(),
        "streams": report.streams.iter().map(stream).collect::<Vec<_>>(),
    })
}

fn stream(stream: &Stream) -> Value {
    json!({
        "channel": stream.channel,
        "operation": stream.operation,
        "bytes_max": stream.bytes_max,
        "method": stream.method,
        "rings_mb_per_s": stream.rings_mb_per_s,
        "kernel_mb_per_s": stream.kernel_mb_per_s,
    })
}

fn queue_pair(pair: &QueuePair) -> Value {
    json!({
        "qpn": pair.qpn,
        "transport": pair.transport,
        "state": pair.state,
        "remote": pair.remote,
        "remote_qpn": pair.remote_qpn,
        "path": pair.path,
        "sent_packets": pair.sent_packets,
        "sent_bytes": pair.sent_bytes,
        "received_packets": pair.received_packets,
        "received_bytes": pair.received_bytes,
        "retransmitted_packets": pair.retransmitted_packets,
        "ack_timeouts": pair.timeouts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_stands_under_its_device() {
        let devices = host::all();
        let report = Report {
            device: "rk_lo".into(),
            pid: 7,
            program: "tab\"le".into(),
            counters: vec![("sent_packets".into(), 5), ("corrupt".into(), 0)],
            queue_pairs_total: 9,
            queue_pairs: vec![QueuePair {
                qpn: 0x4001,
                ..QueuePair::default()
            }],
            streams: vec![Stream {
                channel: 1,
                operation: "WRITE".into(),
                bytes_max: 65536,
                method: "kernel".into(),
                rings_mb_per_s: 5100,
                kernel_mb_per_s: 9400,
            }],
        };
        let found = Reports {
            reports: vec![report],
            unanswered: 2,
        };
        let text = as_text(&devices, &found, false);
        assert!(
            text.contains("sent_packets") && !text.contains("corrupt"),
            "{text}"
        );
        assert!(text.contains("and 8 queue pairs more"), "{text}");
        let stream = "WRITEs of up to 65536 bytes through channel 1 are copied by the kernel (rings \
                      5.1 GB/s, kernel 9.4 GB/s)";
        assert!(text.contains(stream), "{text}");
        assert!(text.contains("2 open devices gave no report"), "{text}");
        let json = as_json(&devices, &found);
        let last = json["devices"]
            .as_array()
            .and_then(|all| all.last())
            .unwrap();
        assert_eq!(
            (&last["name"], &last["programs"][0]["program"]),
            (&json!("rk_lo"), &json!("tab\"le"))
        );
    }

    #[test]
    fn without_devices_it_says_why() {
        assert!(as_text(&[], &Reports::default(), false).contains("no network interface is up"));
    }
}
