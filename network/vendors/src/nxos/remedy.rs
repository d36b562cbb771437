//! Corrections of an NX-OS switch.

use crate::names::interface;
use crate::remedy::Remedy;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "class-map type qos match-all ROCE / match dscp {dscp}; in the policy: set qos-group {class}"
        ),
        Remedy::Pfc { class } => format!(
            "class type network-qos c-8q-nq{class} / pause pfc-cos {class}; priority-flow-control mode on"
        ),
        Remedy::PfcOfPort { port, .. } => {
            format!(
                "interface {}\n  priority-flow-control mode on",
                interface(port)
            )
        }
        Remedy::MarkEcn { class } => format!(
            "class type queuing c-out-8q-q{class} / random-detect minimum-threshold 150 kbytes \
             maximum-threshold 1500 kbytes drop-probability 100 weight 0 ecn"
        ),
        Remedy::SpreadByFlow => {
            "hardware profile dlb\n  mode flowlet\n   (then copy running-config startup-config, and \
             reload)"
                .to_owned()
        }
        Remedy::MtuOfPort { port } => format!("interface {}\n  mtu 9216", interface(port)),
        _ => return None,
    })
}
