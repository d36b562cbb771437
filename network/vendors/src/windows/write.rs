//! Intents, written for Windows: what fits, and the text.

use std::fmt::Write;

use super::powershell::quoted;
use crate::intent::{Fit, HostSettings, Intent, Schedule, Trust};
use crate::text::classes;
use crate::version::Version;

/// Bytes that `*JumboPacket` counts besides the payload.
pub(super) const ETHERNET_HEADER: u32 = 14;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    fit.no_rates(intent);
    fit.in_order(intent);
    if intent.trust != Trust::Pcp {
        fit.add_note(
            "traffic is tagged with its priority; DSCP is trusted by a property of the adapter's driver",
        );
        intent.trust = Trust::Pcp;
    }
    if intent.queues[0].schedule == Schedule::Strict {
        fit.add_note("the default traffic class is weighted");
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
        fit.add_note("DSCP and ECN of RDMA are properties of the adapter's driver");
    }
    *host = plain;
}

/// Whether it is Windows 10 or 11, which are clients.
fn is_client(version: Version) -> bool {
    version.0 < 100
}

/// The features and switches of the system that SMB Direct needs.
fn features(version: Version, host: &HostSettings) -> String {
    let mut text = match is_client(version) {
        // Clients have no Install-WindowsFeature.
        true => "Enable-WindowsOptionalFeature -Online -FeatureName SMBDirect -NoRestart\n\
                 # The same as \"Data Center Bridging\" of optionalfeatures.exe, if this build has another \
                 name.\n\
                 Enable-WindowsOptionalFeature -Online -FeatureName DataCenterBridging -NoRestart\n"
            .to_owned(),
        false => "Install-WindowsFeature Data-Center-Bridging -IncludeManagementTools\n\
                  Enable-WindowsOptionalFeature -Online -FeatureName SMBDirect -NoRestart\n"
            .to_owned(),
    };
    text += "Set-NetOffloadGlobalSetting -NetworkDirect Enabled\n\
             Set-NetOffloadGlobalSetting -NetworkDirectAcrossIPSubnets Allowed\n";
    if host.willing {
        text += "# Willing: PFC, ETS and the priority of SMB Direct (an application entry) come from \
                 the switch's\n# DCBX, which has to send all three.\n";
    }
    let willing = if host.willing { "$true" } else { "$false" };
    let _ = writeln!(
        text,
        "Set-NetQosDcbxSetting -Willing {willing} -Confirm:$false"
    );
    text
}

/// Settings that others set and that RDMA does not need, as comments.
const NOT_NEEDED: &str = "\
# ECN of TCP, which RDMA does not use: the adapter has its own.
# netsh int tcp set global ecncapability=enabled
# Windows negotiates the newest dialect of SMB, and SMB Direct needs 3.0; these lock older servers out.
# Set-ItemProperty -Path \"HKLM:\\SYSTEM\\CurrentControlSet\\Services\\LanmanWorkstation\\Parameters\" \
-Name MinSMB2Dialect -Value 0x311
# Set-ItemProperty -Path \"HKLM:\\SYSTEM\\CurrentControlSet\\Services\\LanmanWorkstation\\Parameters\" \
-Name MaxSMB2Dialect -Value 0x311
# Connections for each RDMA interface, 1 to 16: Windows has 2, and Microsoft advises to keep them.
# Set-ItemProperty -Path \"HKLM:\\SYSTEM\\CurrentControlSet\\Services\\LanmanWorkstation\\Parameters\" \
-Name ConnectionCountPerRdmaNetworkInterface -Type DWORD -Value 4 -Force
";

pub(crate) fn write(intent: &Intent, version: Version) -> String {
    let host = intent.host.clone().unwrap_or_default();
    let plain = intent
        .ports
        .first()
        .map_or("RDMA", |port| port.name.as_str());
    let name = quoted(plain);
    let mut text = features(version, &host);
    let _ = write!(
        text,
        "New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action {}\n\
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
            "Set-NetAdapterAdvancedProperty -Name {name} -RegistryKeyword \"{keyword}\" -RegistryValue \
                {value}\n"
        )
    };
    text += &property("*JumboPacket", jumbo);
    text += &property("*FlowControl", 0);
    text += &property("*NetworkDirect", 1);
    // RoCEv2.
    text += &property("*NetworkDirectTechnology", 4);
    let _ = write!(
        text,
        "Enable-NetAdapterQos -Name {name}\nEnable-NetAdapterRdma -Name {name}\n\
         Set-SmbClientConfiguration -EnableMultiChannel $true -Confirm:$false\n\
         Set-SmbServerConfiguration -EnableMultiChannel $true -Confirm:$false\n"
    );
    if host.functions > 0 {
        let _ = write!(
            text,
            "Enable-NetAdapterSriov -Name {name} -NumVFs {}\n\
             New-VMSwitch -Name {} -NetAdapterName {name} -EnableIov $true\n",
            host.functions,
            quoted(&format!("{plain} SR-IOV"))
        );
    }
    text + NOT_NEEDED
}

/// Priorities of a mask: PowerShell takes lists, and no ranges.
fn ranges_spelled(mask: u8) -> String {
    classes(mask)
        .map(|class| class.to_string())
        .collect::<Vec<_>>()
        .join(",")
}
