//! Dynamic load balancing of NX-OS (Cisco Nexus 9000 Series NX-OS Unicast Routing Configuration Guide
//! 10.5(x), "Configure Dynamic Load Balancing"; layout of CiscoTestAutomation/genielibs' tests): one block of
//! the switch that names the ports.

use core::ops::RangeInclusive;
use std::fmt::Write;

use crate::blocks::{Block, interfaces};
use crate::intent::Port;
use crate::outcome::Outcomes;
use crate::path_spread::PathSpread;
use crate::text::{ReadError, number};

/// Breaks between flowlets in microseconds: what `flowlet-aging` is written with.
pub(super) const GAP_US: RangeInclusive<u32> = 1..=2_000_000;

/// The block `hardware profile dlb`.
#[derive(Default)]
pub(super) struct LoadBalancing {
    /// Whether there is such a block.
    is_there: bool,
    /// Whether each packet takes a path of its own. By default flowlets do.
    is_by_packet: bool,
    gap_us: Option<u32>,
    /// Whether all ports are in it, and those that are.
    has_all: bool,
    ports: Vec<String>,
}

impl LoadBalancing {
    /// Takes the commands below `hardware profile dlb`.
    pub(super) fn take(&mut self, file: &str, block: &Block<'_>, outcomes: &mut Outcomes) {
        outcomes.applied(block.line.number);
        self.is_there = true;
        block.each(outcomes, |line| self.line(file, line));
    }

    fn line(&mut self, file: &str, line: &Block<'_>) -> Result<(), ReadError> {
        if let Some(list) = line.after("dlb-interface") {
            match list.eq_ignore_ascii_case("all") {
                true => self.has_all = true,
                false => self
                    .ports
                    .extend(interfaces(list).into_iter().map(whole_name)),
            }
            return Ok(());
        }
        match line.line.words().as_slice() {
            ["mode", "flowlet"] => self.is_by_packet = false,
            // Policies choose the packets, and those that they choose are sprayed.
            ["mode", "per-packet"] | ["mode", "policy-driven", "per-packet"] => {
                self.is_by_packet = true;
            }
            ["mode", "policy-driven", "flowlet"] => self.is_by_packet = false,
            ["flowlet-aging", us] => {
                self.gap_us = Some(number(file, line.line.number, us, GAP_US)?);
            }
            // Addresses, thresholds of load, and pairs of ports without balancing.
            ["mac-address" | "dre-thresholds", ..] | ["static-pinning"] | ["exit"] => {}
            ["source", _, "destination", _] => {}
            _ => return Err(line.wrong(file, "this line of hardware profile dlb is not known")),
        }
        Ok(())
    }

    /// How packets that leave by a port are spread.
    pub(super) fn of_port(&self, name: &str) -> PathSpread {
        let has_port = self.has_all || self.ports.iter().any(|own| own == name);
        match (self.is_there && has_port, self.is_by_packet) {
            (false, _) => PathSpread::Flows,
            (true, true) => PathSpread::Packets,
            (true, false) => PathSpread::Flowlets(self.gap_us),
        }
    }
}

/// `Eth1/1` as the running configuration has it.
fn whole_name(name: String) -> String {
    match name.strip_prefix("Eth") {
        Some(number) if number.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("Ethernet{number}")
        }
        _ => name,
    }
}

/// Writes the block for some ports.
pub(super) fn write(text: &mut String, spread: PathSpread, ports: &[Port]) {
    let (mode, gap) = match spread {
        PathSpread::Flows => return,
        PathSpread::Flowlets(gap) => ("flowlet", gap),
        PathSpread::Packets => ("per-packet", None),
    };
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let _ = writeln!(
        text,
        "hardware profile dlb\n  mode {mode}\n  dlb-interface {}",
        names.join(" , ")
    );
    let _ = gap.map(|us| writeln!(text, "  flowlet-aging {us}"));
}
