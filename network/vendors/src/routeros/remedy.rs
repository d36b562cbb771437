//! Corrections of a RouterOS switch.

use crate::names::routeros;
use crate::remedy::Remedy;

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
        Remedy::ObeyPauses { classes } => format!(
            "/interface ethernet switch qos port set PORT egress-rate-queue{classes}=100.0Gbps, and rx=yes \
             in the PFC profile"
        ),
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
