//! Corrections of an OS10 switch.

use crate::names::interface;
use crate::remedy::Remedy;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "trust dscp-map NAME / qos-group {class} dscp {dscp}\ntrust-map dscp NAME   (on the interfaces)"
        ),
        Remedy::Pfc { class } => format!(
            "policy-map type network-qos NAME / class NAME / pause / pfc-cos {class}; \
             priority-flow-control mode on"
        ),
        Remedy::MarkEcn { .. } => {
            "wred NAME / random-detect ecn, and random-detect NAME in the class of the queue"
                .to_owned()
        }
        Remedy::PfcOfPort { port, .. } => format!(
            "interface {}\n priority-flow-control mode on",
            interface(port)
        ),
        Remedy::MtuOfPort { port } => format!("interface {}\n mtu 9216", interface(port)),
        _ => return None,
    })
}
