//! Packet spraying between two hosts, as measured on ConnectX-6 Dx ("Nvidia's packet spraying and adaptive
//! routing, tried").

mod calibration;
mod prediction;

use super::{Ran, run};

/// 4,096 bytes and 98 of headers, preamble and gap at 100 Gb/s.
const PACKET_US: f64 = 0.33552;

const IN_ORDER: (&str, &str) = ("nic.default.out-of-order", "false");

fn gbps(ran: &Ran) -> f64 {
    // The steady state, as runs of ten minutes show it.
    let bytes = ran.experiment.scenario.flows[0].message_bytes;
    ran.results.flows[0].goodput_bps(bytes).unwrap() / 1e9
}
