//! Corrections of a RouterOS switch.

use std::collections::BTreeMap;

use super::write::rate;
use crate::intent::Port;
use crate::names::routeros;
use crate::remedy::Remedy;
use crate::text;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "/interface ethernet switch qos map ip add dscp={dscp} profile=PROFILE-OF-CLASS-{class}"
        ),
        Remedy::PfcOfPort { class, port } => format!(
            "/interface/ethernet/switch/qos/port set {} pfc=PROFILE egress-rate-queue{class}=RATE   \
             # PROFILE: traffic-class={class} rx=yes tx=yes",
            routeros(port)
        ),
        Remedy::MarkEcn { class } => format!(
            "/interface ethernet switch qos tx-manager queue set {class} ecn=yes use-shared-buffers=yes"
        ),
        Remedy::ObeyPauses { classes, ports } => obey(*classes, ports),
        Remedy::NoGlobalPause => {
            "/interface ethernet set PORT rx-flow-control=off tx-flow-control=off".to_owned()
        }
        Remedy::Mtu => "/interface ethernet set [ find switch=switch1 ] l2mtu=9216".to_owned(),
        Remedy::MtuOfPort { port } => {
            format!("/interface ethernet set {} l2mtu=9216", routeros(port))
        }
        _ => return None,
    })
}

/// Received pauses are obeyed by queues with a rate, which is the speed of the port.
fn obey(classes: u8, ports: &[Port]) -> String {
    let mut by_rate: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
    for port in ports {
        let names = by_rate.entry(port.mbps).or_default();
        names.push(routeros(&port.name));
    }
    let commands = by_rate.iter().map(|(mbps, names)| {
        let rate = mbps.map_or_else(|| "RATE".to_owned(), rate);
        let rates: Vec<String> = text::classes(classes)
            .map(|class| format!("egress-rate-queue{class}={rate}"))
            .collect();
        format!(
            "/interface ethernet switch qos port set {} {}",
            names.join(","),
            rates.join(" ")
        )
    });
    let commands = commands.collect::<Vec<_>>().join("\n");
    let unknown = match by_rate.contains_key(&None) {
        true => "RATE: the speed of the port; ",
        false => "",
    };
    format!("{commands}   # {unknown}on every lane of a port, and rx=yes in its PFC profile")
}
