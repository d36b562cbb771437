//! Outputs that people have in their logs beside those of a snapshot: single files of sysfs, and lists of
//! RDMA devices with their interfaces.

use crate::facts::{Fact, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// The file in /sys or configfs that `cat` prints, and the line with its value, if it is one of these.
pub(super) fn file_of<'a, 's>(section: &'s Section<'a>) -> Option<(&'a str, &'s Line<'a>)> {
    let mut words = section.command.split_whitespace().skip(1);
    let path = words.next().filter(|path| path.starts_with("/sys/"))?;
    match (words.next(), section.lines.as_slice()) {
        (None, [line]) => Some((path, line)),
        _ => None,
    }
}

/// `rdma link`: `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0`.
pub(super) fn rdma_links(section: &Section<'_>, host: &mut HostFacts) {
    for line in &section.lines {
        let words = line.words();
        let ["link", name, ..] = words.as_slice() else {
            continue;
        };
        let after = |key: &str| words.iter().skip_while(|word| **word != key).nth(1);
        let Some(netdev) = after("netdev") else {
            continue;
        };
        let netdev = section.fact(line, (*netdev).to_owned());
        if name.starts_with("rxe") || name.starts_with("siw") {
            host.software_devices.push(netdev);
            continue;
        }
        let Some((device, port)) = name.split_once('/') else {
            continue;
        };
        let up = after("state").map(|state| section.fact(line, *state == "ACTIVE"));
        name_interface(host, &HostFacts::port_name(device, port), netdev, up);
    }
}

/// `ibdev2netdev`: `mlx5_0 port 1 ==> eth0 (Up)`.
pub(super) fn interfaces(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        // With -v the card and its firmware stand between the port and the arrow.
        let arrow = words.iter().position(|word| *word == "==>");
        let (&[device, "port", port, ..], Some(at)) = (words.as_slice(), arrow) else {
            return Err(section.wrong(line, "DEVICE port N ==> INTERFACE was expected"));
        };
        let Some(netdev) = words.get(at + 1) else {
            return Err(section.wrong(line, "an interface was expected"));
        };
        let netdev = section.fact(line, (*netdev).to_owned());
        let state = words.get(at + 2);
        let up = state.map(|state| section.fact(line, state.eq_ignore_ascii_case("(up)")));
        name_interface(host, &HostFacts::port_name(device, port), netdev, up);
    }
    Ok(())
}

/// Gives a device its interface and the state of its link, where no other output has.
fn name_interface(host: &mut HostFacts, name: &str, netdev: Fact<String>, up: Option<Fact<bool>>) {
    let adapter = host.device(name);
    adapter.netdev.get_or_insert(netdev);
    adapter.up = adapter.up.take().or(up);
    host.index_names(name);
}

/// `cma_roce_tos -d DEVICE`: the ToS byte alone. Whether it is an output of that form.
pub(super) fn tos(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let (device, port) = match words.as_slice() {
        [_, "-d", device] => (*device, "1"),
        [_, "-d", device, "-p", port] => (*device, *port),
        _ => return Ok(false),
    };
    let [line] = section.lines.as_slice() else {
        return Ok(false);
    };
    let tos = section.fact(line, section.number(line, line.text)?);
    host.device(&HostFacts::port_name(device, port)).tos = Some(tos);
    Ok(true)
}
