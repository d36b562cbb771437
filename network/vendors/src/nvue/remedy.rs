//! Corrections of a switch with NVUE.

use crate::intent::Trust;
use crate::remedy::Remedy;
use crate::shell::quoted;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp {
            dscp,
            class,
            trusted,
        } => {
            let map = "nv set qos mapping default-global";
            let trust = match trusted {
                Trust::Dscp | Trust::Both => String::new(),
                // With l3 alone, tagged packets of other protocols would lose their priority.
                Trust::Pcp => format!("{map} trust both\n"),
                Trust::None => format!("{map} trust l3\n"),
            };
            format!("{trust}{map} dscp {dscp} switch-priority {class}")
        }
        Remedy::Pfc { class } => format!("nv set qos pfc default-global switch-priority {class}"),
        Remedy::PfcOfPort { class, .. } => {
            format!("nv set qos pfc default-global switch-priority {class}; nv config apply")
        }
        Remedy::MarkEcn { class } => {
            format!("nv set qos congestion-control default-global traffic-class {class} ecn enable")
        }
        Remedy::ObeyPauses { .. } => "nv set qos pfc default-global rx enable".to_owned(),
        Remedy::SpreadByFlow => {
            "nv set router adaptive-routing enable off; nv config apply   (switchd is reloaded)"
                .to_owned()
        }
        Remedy::Mtu => "nv set interface PORT link mtu 9216".to_owned(),
        Remedy::MtuOfPort { port } => {
            format!(
                "nv set interface {} link mtu 9216; nv config apply",
                quoted(port)
            )
        }
        _ => return None,
    })
}
