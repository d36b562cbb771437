//! Counters of faults, from sysfs, `ethtool -S` and `rdma statistic` (rdma-statistic(8)).

use super::adapter::interface;
use crate::counted_faults::CountedFault;
use crate::facts::{Adapter, HostFacts};
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

/// Takes a counter, if it counts a fault.
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
    Ok(())
}

/// `rdma statistic show [link DEVICE/PORT]`, plain or with `-p`: `link DEVICE/PORT NAME VALUE …`, over one
/// line or several. Names of irdma have blanks (`RNR sent`). Lines of single queue pairs (`cntn`) count parts
/// of the same.
pub(super) fn rdma(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut device: Option<String> = None;
    for line in &section.lines {
        if line.text.starts_with(['[', '{']) {
            let what =
                "JSON of rdma statistic is not read: rdma statistic show link prints it as text";
            return Err(section.wrong(line, what));
        }
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
