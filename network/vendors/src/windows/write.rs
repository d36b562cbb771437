//! Intents, written for Windows: what fits, and the text.

use std::fmt::Write;

use crate::intent::{Fit, HostSettings, Intent, Schedule, Trust};
use crate::text::classes;

/// Bytes that `*JumboPacket` counts besides the payload.
pub(super) const ETHERNET_HEADER: u32 = 14;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    fit.no_rates(intent);
    if intent.trust != Trust::Pcp {
        fit.note(
            "traffic is tagged with its priority; DSCP is trusted by a property of the adapter's driver",
        );
        intent.trust = Trust::Pcp;
    }
    if intent.queues[0].schedule == Schedule::Strict {
        fit.note("the default traffic class is weighted");
        intent.queues[0].schedule = Schedule::Weighted(1);
    }
    fit.percents(intent);
    let functions = intent.host.as_ref().map_or(0, |host| host.functions);
    let Some(host) = &mut intent.host else { return };
    let name = intent
        .ports
        .first()
        .map(|port| port.name.clone())
        .unwrap_or_default();
    let plain = HostSettings {
        device: name,
        smb_priority: host.smb_priority & 7,
        willing: host.willing,
        functions,
        ..HostSettings::default()
    };
    if (host.dscp, host.cnp_dscp, host.cnp_priority, host.ecn) != (26, 48, 6, true) {
        fit.note("DSCP and ECN of RDMA are properties of the adapter's driver");
    }
    *host = plain;
}

pub(crate) fn write(intent: &Intent) -> String {
    let host = intent.host.clone().unwrap_or_default();
    let name = intent
        .ports
        .first()
        .map_or("RDMA", |port| port.name.as_str());
    let willing = if host.willing { "$true" } else { "$false" };
    let mut text = format!(
        "Install-WindowsFeature Data-Center-Bridging\nSet-NetQosDcbxSetting -Willing {willing} \
            -Confirm:$false\n\
         New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action {}\n\
         New-NetQosPolicy \"DEFAULT\" -Default -PriorityValue8021Action 0\n",
        host.smb_priority
    );
    for (verb, mask) in [("Enable", intent.pfc_send), ("Disable", !intent.pfc_send)] {
        if mask != 0 {
            let _ = writeln!(
                text,
                "{verb}-NetQosFlowControl -Priority {}",
                ranges_spelled(mask)
            );
        }
    }
    for (class, queue) in intent.queues.iter().enumerate().skip(1) {
        let _ = match queue.schedule {
            Schedule::Strict => {
                writeln!(
                    text,
                    "New-NetQosTrafficClass \"TC{class}\" -Priority {class} -Algorithm Strict"
                )
            }
            Schedule::Weighted(percent) | Schedule::Background(percent) => writeln!(
                text,
                "New-NetQosTrafficClass \"TC{class}\" -Priority {class} -BandwidthPercentage {percent} \
                    -Algorithm ETS"
            ),
        };
    }
    let jumbo = intent.mtu + ETHERNET_HEADER;
    let property = |keyword: &str, value: u32| {
        format!(
            "Set-NetAdapterAdvancedProperty -Name \"{name}\" -RegistryKeyword \"{keyword}\" -RegistryValue \
                {value}\n"
        )
    };
    text += &property("*JumboPacket", jumbo);
    text += &property("*FlowControl", 0);
    // RoCEv2.
    text += &property("*NetworkDirectTechnology", 4);
    let _ = write!(
        text,
        "Enable-NetAdapterQos -Name \"{name}\"\nEnable-NetAdapterRdma -Name \"{name}\"\n\
         Set-SmbClientConfiguration -EnableMultiChannel $true -Confirm:$false\n\
         Set-SmbServerConfiguration -EnableMultiChannel $true -Confirm:$false\n"
    );
    if host.functions > 0 {
        let _ = write!(
            text,
            "Enable-NetAdapterSriov -Name \"{name}\" -NumVFs {}\n\
             New-VMSwitch -Name \"{name} SR-IOV\" -NetAdapterName \"{name}\" -EnableIov $true\n",
            host.functions
        );
    }
    text
}

/// Priorities of a mask: PowerShell takes lists, and no ranges.
fn ranges_spelled(mask: u8) -> String {
    classes(mask)
        .map(|class| class.to_string())
        .collect::<Vec<_>>()
        .join(",")
}
