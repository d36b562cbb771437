//! Packets between subnets that a RouterOS switch forwards with its processor: `l3-hw-offloading` is off by
//! default (MikroTik, "L3 Hardware Offloading"). 454 Mb/s were measured on a CRS504 at 100 Gb/s.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{Consequence, Evidence, Finding, HostFacts, SwitchFacts, is_of_interest};
use vendors::Dialect;

/// A subnet of the switch, and its line.
struct Subnet<'a> {
    address: IpAddr,
    prefix: u8,
    line: usize,
    text: &'a str,
}

impl Subnet<'_> {
    fn has(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix.min(32));
                u64::from(own.to_bits()) >> shift == u64::from(other.to_bits()) >> shift
            }
            // IPv6 has an offload of its own, which no input of a CRS504 showed.
            _ => false,
        }
    }
}

/// Finds hosts of several subnets that this switch routes between without offload.
pub(super) fn check(hosts: &[HostFacts], switch: &SwitchFacts, found: &mut Vec<Finding>) {
    if switch.dialect != Dialect::RouterOs {
        return;
    }
    let (subnets, is_offloaded) = subnets(switch.text.as_str());
    let of_adapters = hosts.iter().flat_map(|host| {
        let own = host
            .adapters
            .iter()
            .filter(|adapter| is_of_interest(host, adapter));
        own.flat_map(|adapter| &adapter.addresses)
    });
    let used: BTreeSet<usize> = of_adapters
        .filter_map(|address| subnets.iter().position(|own| own.has(address.value)))
        .collect();
    if used.len() < 2 || is_offloaded {
        return;
    }
    let seen = used
        .iter()
        .filter_map(|index| subnets.get(*index))
        .map(|own| Evidence {
            file: switch.file.clone(),
            line: own.line,
            text: own.text.to_owned(),
        });
    found.push(Finding::new(
        "switch-routing",
        format!("{} ({})", switch.file, switch.dialect.name()),
        "the switch routes hosts of several subnets by its processor: l3-hw-offloading is not yes".to_owned(),
        seen.collect(),
        Consequence::NotSimulated(
            "the processor of a switch is not simulated; 454 Mb/s were measured on a CRS504 at 100 Gb/s",
        ),
        "/interface ethernet switch set 0 l3-hw-offloading=yes   # or the hosts in one subnet"
            .to_owned(),
    ));
}

/// The addresses of `/ip address` with their subnets, and whether the switch routes in hardware.
fn subnets(text: &str) -> (Vec<Subnet<'_>>, bool) {
    let (mut found, mut menu, mut is_offloaded) = (Vec::new(), "", false);
    for (line, own) in (1..).zip(text.lines().map(str::trim)) {
        if own.starts_with('/') {
            menu = own;
        }
        let value = |name: &str| {
            own.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        if menu.starts_with("/ip address") || menu.starts_with("/ip/address") {
            let address = value("address").and_then(|text| text.split_once('/'));
            let parsed = address
                .and_then(|(address, prefix)| Some((address.parse().ok()?, prefix.parse().ok()?)));
            let is_disabled = value("disabled") == Some("yes");
            if let Some((address, prefix)) = parsed.filter(|_| !is_disabled) {
                found.push(Subnet {
                    address,
                    prefix,
                    line,
                    text: own,
                });
            }
        }
        let path = menu.replace('/', " ");
        let is_of_ports = path.starts_with(" interface ethernet switch port");
        if path.starts_with(" interface ethernet switch") && !is_of_ports {
            match value("l3-hw-offloading") {
                Some("yes") => is_offloaded = true,
                Some(_) => is_offloaded = false,
                None => {}
            }
        }
    }
    (found, is_offloaded)
}
