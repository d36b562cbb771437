//! What Windows says about SMB Direct as a whole: features, NetworkDirect, listeners, and events of its logs.

use core::net::IpAddr;

use super::{Adapter, Consequence, Say};
use vendors::HostRemedy;
use vendors::facts::{Feature, SmbEvent, WindowsFacts};

/// Dialect 3.0 as the protocol's revision: SMB Direct needs it ([MS-SMB2], 2.2.3).
const SMB_3_0: u16 = 0x300;

pub(super) fn check(adapter: &Adapter, windows: &WindowsFacts, is_off: bool, say: Say<'_>) {
    let own = SmbDirect { adapter, windows };
    let before = own.switched_off(say) || is_off;
    own.subnets(say);
    own.dialect(say);
    // What is off explains that nothing listens, and events of the past.
    if !before {
        own.listener(say);
        own.events(say);
    }
}

struct SmbDirect<'a> {
    adapter: &'a Adapter,
    windows: &'a WindowsFacts,
}

/// What an event tells of RDMA, its consequence and the repair; `None` of an event that is no fault.
fn fault(event: SmbEvent) -> Option<(&'static str, Consequence, &'static str)> {
    let tcp = Consequence::FallsBackToTcp;
    let again = Consequence::NotSimulated("how often it happens is in the log");
    let adapter = "firmware and driver of the adapter: SMB Direct needs more of it than they offer";
    Some(match event {
        SmbEvent::Client(30818) => (
            "the client failed to connect over RDMA, and took TCP",
            tcp,
            "Get-SmbClientNetworkInterface, at the server Get-SmbServerNetworkInterface, and netstat -xan \
             show which end has no RDMA; then PFC, VLAN and MTU of the path: rockery doctor probe",
        ),
        SmbEvent::Client(30822) => (
            "a further channel of SMB failed",
            again,
            "the address of the message is reached at port 445 (5445 with iWARP); firewalls let it pass",
        ),
        SmbEvent::Client(30904) => (
            "the server has no multichannel, by which SMB Direct is found",
            tcp,
            "at the server: Set-SmbServerConfiguration -EnableMultiChannel $true",
        ),
        SmbEvent::Client(30905) => (
            "a constraint of multichannel forbids the server's interfaces",
            tcp,
            "Get-SmbMultichannelConstraint, and Remove-SmbMultichannelConstraint where it is not meant so",
        ),
        SmbEvent::Client(30907) => (
            "DisableMultiChannel of the registry is set, and SMB Direct is found by multichannel",
            tcp,
            "Set-SmbClientConfiguration -EnableMultiChannel $true",
        ),
        SmbEvent::Direct(1..=3) => ("the adapter lacks what SMB Direct needs", tcp, adapter),
        SmbEvent::Direct(6) => (
            "a connection of SMB Direct ended: no request was completed in time",
            again,
            "losses of the path: rockery doctor probe, and counters of the adapter and the switch",
        ),
        SmbEvent::Direct(10) => (
            "the adapter registers too few pages at once for SMB Direct",
            tcp,
            adapter,
        ),
        SmbEvent::Direct(300 | 301) => (
            "the NetworkDirect interface of the driver is too old for SMB Direct",
            tcp,
            "a newer driver of the adapter",
        ),
        SmbEvent::Client(_) | SmbEvent::Direct(_) => return None,
    })
}

/// The name of an event in a message.
fn name(event: SmbEvent) -> String {
    match event {
        SmbEvent::Client(number) => format!("SMBClient {number}"),
        SmbEvent::Direct(number) => format!("SMBDirect {number}"),
    }
}

impl SmbDirect<'_> {
    /// Switches of the whole system; whether one is off.
    fn switched_off(&self, say: Say<'_>) -> bool {
        let tcp = Consequence::FallsBackToTcp;
        let feature = self.windows.smb_direct.as_ref();
        let feature = feature.filter(|own| own.value != Feature::Enabled);
        if let Some(own) = feature {
            let fix = HostRemedy::SmbDirect.of(self.adapter, true);
            let (what, fix) = match own.value {
                Feature::Pending => (
                    "the feature SMB Direct is on after the next start",
                    "Restart-Computer",
                ),
                _ => ("the feature SMB Direct is off", fix.as_str()),
            };
            say("smb-feature", what, &[&own.seen], tcp, fix);
        }
        let direct = self.windows.network_direct.as_ref();
        let direct = direct.filter(|own| !own.value);
        if let Some(own) = direct {
            let what = "NetworkDirect is off for all adapters, whatever Get-NetAdapterRdma shows";
            let fix = HostRemedy::NetworkDirect.of(self.adapter, true);
            say("rdma-global", what, &[&own.seen], tcp, &fix);
        }
        feature.is_some() || direct.is_some()
    }

    /// RDMA between subnets that is blocked, while a server is in another one.
    fn subnets(&self, say: Say<'_>) {
        let across = self.windows.across_subnets.as_ref();
        let Some(blocked) = across.filter(|own| !own.value) else {
            return;
        };
        for ends in &self.windows.ends {
            let (client, server) = ends.value;
            let prefix = self
                .windows
                .prefixes
                .iter()
                .find(|own| own.value.0 == client);
            let Some(prefix) = prefix else {
                continue;
            };
            let is_own = is_within(client, server, prefix.value.1);
            if is_own == Some(false) {
                let what = format!(
                    "RDMA between subnets is blocked, and the server {server} is outside of {client}'s"
                );
                let fix = HostRemedy::AcrossSubnets.of(self.adapter, true);
                let seen = [&blocked.seen, &ends.seen, &prefix.seen];
                say(
                    "rdma-subnets",
                    &what,
                    &seen,
                    Consequence::FallsBackToTcp,
                    &fix,
                );
                return;
            }
        }
    }

    /// A newest dialect that is older than SMB Direct.
    fn dialect(&self, say: Say<'_>) {
        let newest = self.windows.dialect_max.as_ref();
        if let Some(own) = newest.filter(|own| (1..SMB_3_0).contains(&own.value)) {
            let what = format!(
                "MaxSMB2Dialect is {:#x}, and SMB Direct needs dialect 3.0 (0x300)",
                own.value
            );
            let fix = "Remove-ItemProperty -Path \
                       \"HKLM:\\SYSTEM\\CurrentControlSet\\Services\\LanmanWorkstation\\Parameters\" -Name \
                       MaxSMB2Dialect";
            say(
                "smb-dialect",
                &what,
                &[&own.seen],
                Consequence::FallsBackToTcp,
                fix,
            );
        }
    }

    /// Whether RDMA is in use now, as far as it was seen.
    fn is_used(&self) -> bool {
        let endpoints = self.windows.endpoints.as_ref();
        endpoints.is_some_and(|own| own.value.iter().any(|own| own.is_smb && !own.listens))
    }

    /// A server that waits at none of its addresses. Clients have no listeners.
    fn listener(&self, say: Say<'_>) {
        let edition = self.windows.edition.as_ref();
        let is_server = edition.is_some_and(|own| own.value.contains("Server"));
        let Some(endpoints) = self.windows.endpoints.as_ref().filter(|_| is_server) else {
            return;
        };
        if !endpoints.value.iter().any(|own| own.is_smb) {
            let what = "no address listens for SMB Direct (netstat -xan)";
            let fix = "Get-SmbServerNetworkInterface has to show a row that is RDMA Capable: without one, \
                       NetworkDirect, the adapter's RDMA or its IP address is missing; restart the service \
                       LanmanServer after a change";
            let tcp = Consequence::FallsBackToTcp;
            say("smb-listener", what, &[&endpoints.seen], tcp, fix);
        }
    }

    /// Events that tell of RDMA. While it is in use, those that say it is not are of the past.
    fn events(&self, say: Say<'_>) {
        for (event, (count, first)) in &self.windows.events {
            let Some((what, consequence, fix)) = fault(*event) else {
                continue;
            };
            if self.is_used() && consequence == Consequence::FallsBackToTcp {
                continue;
            }
            let times = match count {
                1 => "once in the log".to_owned(),
                count => format!("{count} times in the log"),
            };
            let what = format!("event {}: {what} ({times})", name(*event));
            say("smb-event", &what, &[&first.seen], consequence, fix);
        }
    }
}

/// Whether two addresses have the same prefix; `None` of different families, and of prefixes that are none.
fn is_within(one: IpAddr, other: IpAddr, prefix: u8) -> Option<bool> {
    let (one, other, bits) = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (u128::from(one.to_bits()), u128::from(other.to_bits()), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return None,
    };
    let rest = u32::from(bits as u8).checked_sub(u32::from(prefix))?;
    Some((one ^ other).checked_shr(rest).unwrap_or(0) == 0)
}
