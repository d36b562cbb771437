//! Values of `[nic.NAME]` that do not go with its transport.

use crate::congestion::Congestion;
use crate::schema::{LinkLayer, NicTable};
use crate::uet::Transport;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use fabric::Span;
use units::Timespan;

/// Most entropy values of a flow.
const VALUES_MAX: u16 = 1 << 15;

/// The longest times that a network is given.
const SPAN_MAX: Span = Span(1_000_000_000_000);

/// What an adapter's table says about transports that it cannot have: the field below the table, the reason,
/// and what to write.
pub(super) fn mistakes(nic: &NicTable) -> Option<(&'static str, String, &'static str)> {
    let is_uet = nic.transport == Transport::Uet;
    let is_its_control = nic.congestion.is_of_uet();
    if !is_uet && is_its_control && nic.congestion != Congestion::Off {
        let what = "only transport = \"uet\" has it".to_owned();
        return Some(("congestion", what, "add transport = \"uet\""));
    }
    if !is_uet {
        return None;
    }
    let instead = "\"nscc\", \"rccc\", \"nscc-rccc\" or \"off\"";
    if !is_its_control {
        let what = format!("transport = \"uet\" has no \"{}\"", nic.congestion.name());
        return Some(("congestion", what, instead));
    }
    let other = "leave one of the two out";
    if nic.link_layer == LinkLayer::Infiniband {
        return Some((
            "link-layer",
            "transport = \"uet\" needs Ethernet".to_owned(),
            other,
        ));
    }
    if nic.pcie.is_some() {
        let what = "adapters with transport = \"uet\" are simulated without a PCIe link".to_owned();
        return Some(("pcie", what, other));
    }
    if nic.functions.is_some() {
        let what = "adapters with transport = \"uet\" are simulated without functions".to_owned();
        return Some(("functions", what, other));
    }
    let values = nic.uet.values;
    if !values.is_power_of_two() || values > VALUES_MAX {
        let what = format!("{values} is no power of two from 1 to {VALUES_MAX}");
        return Some(("uet.values", what, "such as 64 or 128"));
    }
    if nic.uet.ack_bytes.0 > u64::from(u32::MAX) {
        let what = format!("{} is more than 4 GiB", nic.uet.ack_bytes);
        return Some(("uet.ack-bytes", what, "a smaller size"));
    }
    let spans = [
        ("uet.timeout", Some(nic.uet.timeout)),
        ("nscc.base-rtt", nic.nscc.base_rtt),
        ("nscc.target", nic.nscc.target),
    ];
    let is_wrong = |span: Timespan| span.0 == Span::ZERO || span.0 > SPAN_MAX;
    let wrong = spans
        .into_iter()
        .find(|(_, span)| span.is_some_and(is_wrong));
    wrong.map(|(field, _)| {
        (
            field,
            "it is not from 1ps to 1s".to_owned(),
            "such as \"12us\"",
        )
    })
}
