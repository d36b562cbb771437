//! Corrections of a Junos switch.

use crate::names::interface;
use crate::remedy::Remedy;
use crate::text::{self, ranges};

/// The statements for a setting, where this system has them. Names in capitals are the site's.
pub(crate) fn command(remedy: &Remedy<'_>) -> Option<String> {
    let profile = "set class-of-service congestion-notification-profile PROFILE";
    Some(match remedy {
        Remedy::MapDscp { dscp, class, .. } => format!(
            "set class-of-service classifiers dscp NAME forwarding-class CLASS loss-priority low \
             code-points {dscp:06b}\n\
             {profile} input dscp code-point {dscp:06b} pfc   (CLASS: no-loss pfc-priority {class})"
        ),
        Remedy::Pfc { class } => format!(
            "set class-of-service forwarding-classes class CLASS queue-num QUEUE no-loss \
             pfc-priority {class}\n\
             {profile} input dscp code-point BITS pfc\n\
             {profile} output ieee-802.1 code-point {class:03b} flow-control-queue QUEUE\n\
             set class-of-service interfaces PORT congestion-notification-profile PROFILE"
        ),
        Remedy::PfcOfPort { port, .. } => format!(
            "set class-of-service interfaces {} congestion-notification-profile PROFILE",
            interface(port)
        ),
        Remedy::MarkEcn { .. } => {
            "set class-of-service schedulers NAME explicit-congestion-notification\n\
             set class-of-service schedulers NAME drop-profile-map loss-priority any protocol any \
             drop-profile PROFILE   (of class-of-service drop-profiles)"
                .to_owned()
        }
        Remedy::ObeyPauses { classes, .. } => format!(
            "{profile} output ieee-802.1 code-point BITS flow-control-queue QUEUE   (priorities {})",
            ranges(text::classes(*classes))
        ),
        Remedy::NoGlobalPause => "set interfaces PORT ether-options no-flow-control".to_owned(),
        Remedy::SpreadByFlow => "delete forwarding-options enhanced-hash-key ecmp-dlb per-packet\n\
             set forwarding-options enhanced-hash-key ecmp-dlb flowlet"
            .to_owned(),
        Remedy::Mtu => "set interfaces PORT mtu 9216".to_owned(),
        Remedy::MtuOfPort { port } => format!("set interfaces {} mtu 9216", interface(port)),
    })
}
