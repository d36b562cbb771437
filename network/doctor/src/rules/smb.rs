//! SMB Direct on Linux and Windows: what keeps it from an adapter.

use super::{
    Adapter, Consequence, Evidence, Finding, Found, HostFacts, Say, is_in_use, is_of_interest,
    smb_direct, value, windows_dcb,
};
use crate::SwitchFacts;
use vendors::HostRemedy;
use vendors::facts::{Feature, WindowsFacts};
use vendors::shell::quoted;

/// What the switches of the input say about DCBX: whether one offers it; `None` without a switch.
pub(super) fn offers_dcbx(switches: &[SwitchFacts]) -> Option<bool> {
    let groups: Vec<_> = switches.iter().flat_map(|switch| &switch.groups).collect();
    (!groups.is_empty()).then(|| groups.iter().any(|group| group.dcbx))
}

pub(super) fn check(host: &HostFacts, dcbx: Option<bool>, found: &mut Vec<Finding>) {
    let Some(first) = host.adapters.first() else {
        return;
    };
    linux(host, first, found);
    let Some(windows) = &host.windows else {
        return;
    };
    unequal_speeds(host, found);
    let mut lacks = false;
    // SMB Direct uses iWARP and InfiniBand too, which need no DCB.
    let is_roce = |own: &Adapter| is_of_interest(host, own);
    let first_roce = host.adapters.iter().position(is_roce);
    let adapters = host.adapters.iter().enumerate();
    let adapters = adapters.filter(|(_, own)| is_in_use(host, own));
    for (index, (place, adapter)) in adapters.enumerate() {
        let mut say = |rule, what: &str, seen: &[&Evidence], consequence, fix: &str| {
            let own = Found {
                rule,
                host,
                adapter,
            };
            found.push(own.say(what, seen, consequence, fix));
        };
        if is_roce(adapter) {
            let is_first = Some(place) == first_roce;
            windows_dcb::check(adapter, windows, dcbx, is_first, &mut say);
        }
        if index == 0 {
            lacks = lacks_smb_direct(windows, &mut say);
        }
        if !lacks {
            let is_off = rdma_off(host, adapter, index == 0, &mut say);
            if index == 0 && !is_off {
                smb_interfaces(windows, &mut say);
            }
            if index == 0 {
                smb_settings(adapter, windows, &mut say);
                smb_direct::check(adapter, windows, is_off, &mut say);
            }
        }
    }
}

/// RDMA adapters of unequal speed: multichannel uses those of the highest speed.
fn unequal_speeds(host: &HostFacts, found: &mut Vec<Finding>) {
    let with_rdma = host
        .adapters
        .iter()
        .filter(|own| is_in_use(host, own) && value(own.rdma_enabled.as_ref()) != Some(false));
    let speeds: Vec<_> = with_rdma
        .filter_map(|own| Some((own, own.gbps.as_ref()?)))
        .collect();
    let Some((_, fastest)) = speeds.iter().max_by_key(|(_, gbps)| gbps.value) else {
        return;
    };
    for (adapter, gbps) in speeds.iter().filter(|(_, gbps)| gbps.value < fastest.value) {
        let own = Found {
            rule: "smb-speeds",
            host,
            adapter,
        };
        let what = format!(
            "SMB multichannel uses adapters of the highest speed: this one of {} Gb/s carries nothing beside \
             one of {} Gb/s",
            gbps.value, fastest.value
        );
        let why = "the faster adapters alone carry the shares";
        let fix =
            "adapters of one speed for SMB, or nothing: it is a spare where the faster ones fail";
        let seen = [&gbps.seen, &fastest.seen];
        found.push(own.say(what, &seen, Consequence::NotSimulated(why), fix));
    }
}

fn linux(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let mounted = host.smb_mounts.first();
    if let (Some(kernel), Some(mount)) = (
        host.kernel_smb_direct
            .as_ref()
            .filter(|kernel| !kernel.value),
        mounted,
    ) {
        let what = "the kernel's SMB client is built without SMB Direct";
        let fix = "a kernel with CONFIG_CIFS_SMB_DIRECT=y; the option of mount alone does nothing";
        let seen = [&kernel.seen, &mount.seen];
        found.push(own("smb-kernel").say(what, &seen, Consequence::FallsBackToTcp, fix));
    } else if let Some(mount) = host.smb_mounts.iter().find(|mount| !mount.value.rdma)
        && value(host.kernel_smb_direct.as_ref()) == Some(true)
    {
        let what = format!("{} is mounted without rdma", mount.value.share);
        let fix = format!(
            "mount -t cifs {} DIRECTORY -o vers=3.1.1,rdma",
            quoted(&mount.value.share)
        );
        found.push(own("smb-mount").say(what, &[&mount.seen], Consequence::FallsBackToTcp, fix));
    }
}

/// Whether the edition of Windows has no SMB Direct; nothing else matters then. Sources disagree about Pro,
/// so it is named only where nothing else explains that SMB sees no RDMA.
fn lacks_smb_direct(windows: &WindowsFacts, say: Say<'_>) -> bool {
    let Some(edition) = &windows.edition else {
        return false;
    };
    let text = &edition.value;
    let fix = "Windows Pro for Workstations, Enterprise, Education or Server";
    let tcp = Consequence::FallsBackToTcp;
    if text.contains(" Home") {
        let what = "this edition of Windows has no SMB Direct";
        say("smb-edition", what, &[&edition.seen], tcp, fix);
        return true;
    }
    let is_on = windows
        .smb_direct
        .as_ref()
        .is_none_or(|own| own.value == Feature::Enabled);
    let is_capable = windows.interfaces.iter().any(|own| own.value.1);
    let is_pro = text.ends_with(" Pro") && is_on && !is_capable;
    if let Some(first) = windows.interfaces.first().filter(|_| is_pro) {
        let what = "SMB sees no interface that is capable of RDMA, and sources disagree whether this \
                    edition of Windows has SMB Direct";
        say("smb-edition", what, &[&edition.seen, &first.seen], tcp, fix);
    }
    is_pro && !windows.interfaces.is_empty()
}

/// What keeps an adapter from RDMA; whether RDMA is off. RDMA that is off on all adapters is one finding.
fn rdma_off(host: &HostFacts, adapter: &Adapter, is_first: bool, say: Say<'_>) -> bool {
    let tcp = Consequence::FallsBackToTcp;
    if let Some(rdma) = adapter.rdma_enabled.as_ref().filter(|rdma| !rdma.value) {
        if is_first {
            let names = host.adapters.iter().map(|adapter| adapter.device.as_str());
            let what = match host.adapters.len() {
                1 => "RDMA of the adapter is disabled".to_owned(),
                _ => {
                    let names = names.collect::<Vec<_>>().join(", ");
                    format!("RDMA of all adapters is disabled: {names}")
                }
            };
            let fix = HostRemedy::Rdma.of(adapter, true);
            say("rdma-disabled", &what, &[&rdma.seen], tcp, &fix);
        }
        return true;
    }
    if let Some(offered) = adapter.offers_rdma.as_ref().filter(|own| !own.value) {
        let what = "*NetworkDirect is 0: the adapter's driver offers no RDMA";
        let fix = HostRemedy::OfferRdma.of(adapter, true);
        say("rdma-disabled", what, &[&offered.seen], tcp, &fix);
        return true;
    }
    // 1 is iWARP, which SMB Direct uses as well; 2 is InfiniBand.
    let technology = adapter.technology.as_ref().filter(|own| own.value == 3);
    if let Some(technology) = technology {
        let what =
            "*NetworkDirectTechnology is 3, RoCEv1, which no router forwards and no DSCP marks";
        let fix = HostRemedy::RoceV2.of(adapter, true);
        say("rdma-technology", what, &[&technology.seen], tcp, &fix);
        return true;
    }
    let is_off_for_all = host
        .windows
        .as_ref()
        .is_some_and(|windows| value(windows.network_direct.as_ref()) == Some(false));
    let idle = adapter.rdma_operational.as_ref();
    if let Some(idle) = idle.filter(|own| !own.value && !is_off_for_all) {
        let what = "RDMA of the adapter is enabled, and not in operation";
        let fix = "Get-NetAdapter must say Up, and Get-NetOffloadGlobalSetting NetworkDirect Enabled; then \
                   Restart-NetAdapter, and a driver that has RDMA for this version of Windows";
        say("rdma-disabled", what, &[&idle.seen], tcp, fix);
        return true;
    }
    false
}

/// What keeps SMB from the adapter.
fn smb_interfaces(windows: &WindowsFacts, say: Say<'_>) {
    let tcp = Consequence::FallsBackToTcp;
    let is_capable = windows.interfaces.iter().any(|own| own.value.1);
    let fix = "Get-NetAdapterRdma must say Enabled and Operational; a team or virtual switch may hide the \
     adapter";
    // The feature or NetworkDirect that is off explains it, and has a fix of its own.
    let is_explained = windows
        .smb_direct
        .as_ref()
        .is_some_and(|own| own.value != Feature::Enabled)
        || windows
            .network_direct
            .as_ref()
            .is_some_and(|own| !own.value);
    if is_explained {
        return;
    }
    let offered = windows.server_interfaces.iter().any(|own| own.value.1);
    if let Some(first) = windows
        .server_interfaces
        .first()
        .filter(|_| !offered && !is_capable)
    {
        let what = "the SMB server offers no interface that is capable of RDMA";
        say("smb-interface", what, &[&first.seen], tcp, fix);
        return;
    }
    if let Some(first) = windows.interfaces.first().filter(|_| !is_capable) {
        let what = "SMB sees no interface that is capable of RDMA";
        say("smb-interface", what, &[&first.seen], tcp, fix);
        return;
    }
    // A server with one connection over RDMA is reached by it.
    let over_rdma = |server: &str| {
        let own = windows
            .connections
            .iter()
            .filter(|own| own.value.0 == server);
        own.into_iter().any(|own| own.value.1)
    };
    let without = windows
        .connections
        .iter()
        .find(|own| !over_rdma(&own.value.0));
    if let Some(connection) = without {
        let what = format!(
            "no connection with {} is capable of RDMA",
            connection.value.0
        );
        say("smb-connection", &what, &[&connection.seen], tcp, fix);
    }
}

/// What lets SMB Direct be chosen by the client, and lets the adapter place the data.
fn smb_settings(adapter: &Adapter, windows: &WindowsFacts, say: Say<'_>) {
    if let Some(multichannel) = windows
        .multichannel
        .as_ref()
        .filter(|multichannel| !multichannel.value)
    {
        let what = "multichannel is off, and SMB Direct is found by it only";
        let fix = HostRemedy::Multichannel.of(adapter, true);
        say(
            "smb-multichannel",
            what,
            &[&multichannel.seen],
            Consequence::FallsBackToTcp,
            &fix,
        );
    }
    // Since Server 2022 and Windows 11 data is encrypted before the adapter places it.
    let places = windows.edition.as_ref().is_some_and(|own| {
        let years = ["2022", "2025", "Windows 11"];
        years.iter().any(|year| own.value.contains(year))
    });
    let settings = [
        (windows.encrypts.as_ref().filter(|_| !places), "encrypts"),
        (windows.signs.as_ref(), "signs"),
    ];
    for (setting, verb) in settings {
        let Some(own) = setting.filter(|own| own.value) else {
            continue;
        };
        let what = format!(
            "SMB {verb} all data: it is copied and computed on, and not placed by the adapter"
        );
        let fix = HostRemedy::NoEncryption.of(adapter, true);
        let consequence = Consequence::NotSimulated(
            "the simulated processor does not encrypt, and how fast it does depends on the processor and the \
             version of Windows",
        );
        say("smb-encryption", &what, &[&own.seen], consequence, &fix);
    }
}
