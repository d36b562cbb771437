//! The table that `rockery lab show SWITCH dcbx` prints.

use super::status::{DcbxLink, DcbxSettings};
use std::fmt::Write;

/// A line for each port with a live host.
pub(super) fn text(links: &[DcbxLink]) -> String {
    let mut text = String::from("[lldp dcbx print]\n");
    let mut line = |columns: [&str; 7]| {
        let [port, neighbour, willing, local, remote, pfc, ets] = columns;
        let line = format!(
            "{port:<18} {neighbour:<30} {willing:<8} {local:<10} {remote:<10} {pfc:<10} {ets}"
        );
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line([
        "PORT",
        "NEIGHBOUR",
        "WILLING",
        "PFC",
        "PFC-PEER",
        "PFC-OPER",
        "ETS-OPER",
    ]);
    for DcbxLink { switch, .. } in links {
        let port = switch
            .name
            .split_once(':')
            .map_or(switch.name.as_str(), |(_, port)| port);
        let remote = switch.remote.as_ref().map_or_else(|| "-".to_owned(), pfc);
        line([
            port,
            switch.peer.as_deref().unwrap_or("-"),
            if switch.willing { "yes" } else { "no" },
            &pfc(&switch.local),
            &remote,
            &pfc(&switch.operational),
            &ets(&switch.operational),
        ]);
    }
    text
}

fn pfc(settings: &DcbxSettings) -> String {
    match &settings.pfc {
        None => "-".to_owned(),
        Some(none) if none.is_empty() => "none".to_owned(),
        Some(priorities) => priorities
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// Classes with their percentages, or `strict`.
fn ets(settings: &DcbxSettings) -> String {
    let Some(ets) = &settings.ets else {
        return "-".to_owned();
    };
    let class = |class: usize| match ets.algorithm[class].as_str() {
        "ets" => format!("{class}:{}%", ets.bandwidth[class]),
        other => format!("{class}:{other}"),
    };
    (0..8).map(class).collect::<Vec<_>>().join(" ")
}
