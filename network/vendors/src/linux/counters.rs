//! Counters of faults, from sysfs, `ethtool -S` and `rdma statistic` (rdma-statistic(8)).

use serde_json::Value;

use super::adapter::interface;
use crate::counted_faults::{CountedFault, bytes_of_sent};
use crate::facts::{Adapter, HostFacts};
use crate::json;
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// `ethtool -S IF`: counters, one a line.
pub(super) fn ethtool(
    section: &Section<'_>,
    name: &str,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let Some(adapter) = interface(section, host, name)? else {
        return Ok(());
    };
    for line in &section.lines {
        if let Some((name, value)) = line.text.split_once(':')
            && !value.is_empty()
        {
            take(section, line, adapter, name.trim(), value.trim())?;
        }
    }
    Ok(())
}

/// Takes a counter, if it counts a fault or the data that were sent.
pub(super) fn take(
    section: &Section<'_>,
    line: &Line<'_>,
    adapter: &mut Adapter,
    name: &str,
    value: &str,
) -> Result<(), ReadError> {
    if let Some(kind) = CountedFault::of(name) {
        let number: u64 = section.number(line, value)?;
        if number > 0 {
            let counted = (kind, section.fact(line, number));
            adapter.counted.insert(name.to_owned(), counted);
        }
    }
    if let Some(unit) = bytes_of_sent(name) {
        let number: u64 = section.number(line, value)?;
        let bytes = section.fact(line, number.saturating_mul(unit));
        adapter.sent.insert(name.to_owned(), bytes);
    }
    Ok(())
}

/// `rdma -j statistic`: an object for each port, whose counters stand beside `ifname` and `port`. Objects of
/// queue pairs (`cntn`, `lqpn`) count parts of the same.
fn rdma_json(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let Some(all) = json::read(section)? else {
        return Ok(());
    };
    let objects = match all.value() {
        Value::Array(objects) => objects.as_slice(),
        one => core::slice::from_ref(one),
    };
    let lines = &section.lines;
    let starts = (0..lines.len()).filter(|at| lines[*at].text.contains("\"ifname\""));
    let starts: Vec<usize> = starts.collect();
    for (index, object) in objects.iter().enumerate() {
        let start = starts.get(index).or(starts.last()).copied().unwrap_or(0);
        let line_of = |key: &str| {
            let quoted = format!("\"{key}\"");
            let own = lines.iter().skip(start);
            let mut own = own.filter(|line| line.text.contains(&quoted));
            own.next().unwrap_or(&lines[start])
        };
        let counters = object.as_object();
        let Some((counters, device)) = counters.zip(object["ifname"].as_str()) else {
            let what = "objects with ifname, as rdma -j statistic prints them, were expected";
            return Err(section.wrong(&lines[start], what));
        };
        if ["cntn", "qpn", "lqpn", "mode"]
            .iter()
            .any(|key| counters.contains_key(*key))
        {
            continue;
        }
        let port = object["port"].as_u64().unwrap_or(1).to_string();
        let adapter = host.device(&HostFacts::port_name(device, &port));
        for (name, value) in counters {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            take(section, line_of(name), adapter, name, &value)?;
        }
    }
    Ok(())
}

/// `rdma statistic show [link DEVICE/PORT]`, plain or with `-p`: `link DEVICE/PORT NAME VALUE …`, over one
/// line or several. Names of irdma have blanks (`RNR sent`). Lines of single queue pairs (`cntn`) count parts
/// of the same.
pub(super) fn rdma(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let first = section.lines.first();
    if first.is_some_and(|line| line.text.starts_with(['[', '{'])) {
        return rdma_json(section, host);
    }
    let mut device: Option<String> = None;
    for line in &section.lines {
        let words = line.words();
        let rest = match words.as_slice() {
            ["link", name, "cntn" | "qpn" | "lqpn", ..] if name.contains('/') => {
                device = None;
                continue;
            }
            ["link", name, rest @ ..] if name.contains('/') => {
                let port = name.split_once('/');
                device = port.map(|(device, port)| HostFacts::port_name(device, port));
                rest
            }
            rest => rest,
        };
        let Some(device) = &device else { continue };
        let adapter = host.device(device);
        let mut name = String::new();
        for word in rest {
            match word.parse::<u64>() {
                Ok(_) if !name.is_empty() => {
                    take(section, line, adapter, &name, word)?;
                    name.clear();
                }
                _ => {
                    if !name.is_empty() {
                        name.push(' ');
                    }
                    name += word;
                }
            }
        }
    }
    Ok(())
}
