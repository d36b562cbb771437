//! Corrections of a Windows host.

use super::powershell::quoted;
use crate::facts::Adapter;
use crate::host_remedy::HostRemedy;

/// Gives a traffic class this priority.
pub fn traffic_class(name: &str, priority: u8) -> String {
    let name = quoted(name);
    format!("Set-NetQosTrafficClass -Name {name} -Priority {priority}")
}

/// The cmdlets for a setting, where they are known.
pub(crate) fn command(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let name = quoted(&adapter.device);
    let property = |keyword: &str, value: u32| {
        format!(
            "Set-NetAdapterAdvancedProperty -Name {name} -RegistryKeyword \"{keyword}\" -RegistryValue \
             {value}"
        )
    };
    Some(match remedy {
        HostRemedy::Pfc(mask) => {
            let list = crate::text::ranges(crate::text::classes(mask));
            format!("Enable-NetQosFlowControl -Priority {list}")
        }
        HostRemedy::NoGlobalPause => property("*FlowControl", 0),
        // Most drivers count the Ethernet header.
        HostRemedy::Mtu(bytes) => property("*JumboPacket", bytes + super::write::ETHERNET_HEADER),
        HostRemedy::RoceV2 | HostRemedy::Roce => property("*NetworkDirectTechnology", 4),
        HostRemedy::NotWilling => {
            "Set-NetQosDcbxSetting -Willing $false -Confirm:$false".to_owned()
        }
        HostRemedy::Up => format!("Enable-NetAdapter -Name {name}"),
        // 0 is automatic negotiation (standardized keywords of NDIS).
        HostRemedy::Speed => property("*SpeedDuplex", 0),
        HostRemedy::Address => {
            format!("New-NetIPAddress -InterfaceAlias {name} -IPAddress ADDRESS -PrefixLength 24")
        }
        HostRemedy::Qos => format!("Enable-NetAdapterQos -Name {name}"),
        HostRemedy::SmbPriority(priority) => format!(
            "New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action {priority}"
        ),
        HostRemedy::Rdma => format!("Enable-NetAdapterRdma -Name {name}"),
        HostRemedy::OfferRdma => property("*NetworkDirect", 1),
        HostRemedy::NetworkDirect => {
            "Set-NetOffloadGlobalSetting -NetworkDirect Enabled".to_owned()
        }
        HostRemedy::AcrossSubnets => {
            "Set-NetOffloadGlobalSetting -NetworkDirectAcrossIPSubnets Allowed".to_owned()
        }
        HostRemedy::SmbDirect => {
            "Enable-WindowsOptionalFeature -Online -FeatureName SMBDirect".to_owned()
        }
        HostRemedy::Multichannel => {
            "Set-SmbClientConfiguration -EnableMultiChannel $true; the same with \
                                     Set-SmbServerConfiguration"
                .to_owned()
        }
        HostRemedy::NoEncryption => "Set-SmbServerConfiguration -EncryptData $false \
                                     -RequireSecuritySignature $false, where the network is trusted"
            .to_owned(),
        HostRemedy::Functions(count) => {
            format!("Enable-NetAdapterSriov -Name {name} -NumVFs {count}")
        }
        _ => return None,
    })
}
