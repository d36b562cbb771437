//! Corrections of a SONiC switch.

use crate::remedy::Remedy;
use crate::shell::quoted;

/// The command or table for a setting, where this system has one.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "\"DSCP_TO_TC_MAP\": {{ \"NAME\": {{ \"{dscp}\": \"{class}\" }} }}, with the NAME of \
             PORT_QOS_MAP's \
             dscp_to_tc_map: sudo config apply-patch, and config save"
        ),
        Remedy::Pfc { class } => format!(
            "\"PORT_QOS_MAP\": {{ \"PORT\": {{ \"pfc_enable\": \"{class}\" }} }}, and a lossless BUFFER_PG"
        ),
        Remedy::PfcOfPort { class, port } => {
            let port = quoted(port);
            format!("config interface pfc priority {port} {class} on")
        }
        Remedy::MarkEcn { class } => format!(
            "\"QUEUE\": {{ \"PORT|{class}\": {{ \"wred_profile\": \"NAME\" }} }}, with \"ecn\": \"ecn_all\""
        ),
        Remedy::SpreadByFlow => {
            "\"ARS_OBJECT\": { \"NAME\": { \"assign_mode\": \"per_flowlet_quality\" } }, or no ARS_PROFILE"
                .to_owned()
        }
        Remedy::Mtu => "config interface mtu PORT 9216, and config save".to_owned(),
        Remedy::MtuOfPort { port } => format!("config interface mtu {} 9216", quoted(port)),
        _ => return None,
    })
}
