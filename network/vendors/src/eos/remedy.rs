//! Corrections of an EOS switch.

use crate::names::interface;
use crate::remedy::Remedy;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "qos map dscp {dscp} to traffic-class {class}\nqos trust dscp   (on the interfaces)"
        ),
        Remedy::Pfc { class } => {
            format!("priority-flow-control on\npriority-flow-control priority {class} no-drop")
        }
        Remedy::PfcOfPort { port, .. } => format!(
            "interface {}\n  priority-flow-control on\n  dcbx mode ieee   (or none at both ends)",
            interface(port)
        ),
        Remedy::MarkEcn { .. } => {
            "random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes \
             max-mark-probability 100 weight 0"
                .to_owned()
        }
        Remedy::Mtu => "mtu 9214".to_owned(),
        Remedy::MtuOfPort { port } => format!("interface {}\n  mtu 9214", interface(port)),
        _ => return None,
    })
}
