//! SMB Direct on Linux and Windows, and DCB of Windows.

use super::{Adapter, Consequence, Evidence, Finding, Found, HostFacts, Marks, cost_of, value};
use vendors::HostRemedy;
use vendors::facts::WindowsFacts;
use vendors::shell::quoted;

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let Some(first) = host.adapters.first() else {
        return;
    };
    linux(host, first, found);
    let Some(windows) = &host.windows else {
        return;
    };
    let mut lacks = false;
    for (index, adapter) in host.adapters.iter().enumerate() {
        let mut say = |rule, what: &str, seen: &Evidence, consequence, fix: &str| {
            let own = Found {
                rule,
                host,
                adapter,
            };
            found.push(own.say(what, &[seen], consequence, fix));
        };
        dcb(adapter, windows, index == 0, &mut say);
        global_pause(adapter, &mut say);
        if index == 0 {
            smb_policy(adapter, windows, &mut say);
            lacks = lacks_smb_direct(windows, &mut say);
        }
        if !lacks {
            let is_off = rdma_off(host, adapter, index == 0, &mut say);
            if index == 0 && !is_off {
                smb_interfaces(windows, &mut say);
            }
            if index == 0 {
                smb_settings(adapter, windows, &mut say);
            }
        }
    }
}

/// Reports a finding: rule, what was found, where it was seen, the consequence, and the repair.
type Say<'a> = &'a mut dyn FnMut(&'static str, &str, &Evidence, Consequence, &str);

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

/// Lossless Ethernet for the priority of SMB Direct: the host sets it by itself (DCBX is not willing), and
/// PFC is on.
fn dcb(adapter: &Adapter, windows: &WindowsFacts, is_first: bool, say: Say<'_>) {
    let willing = windows
        .willing
        .as_ref()
        .filter(|fact| fact.value && is_first);
    if let Some(fact) = willing {
        let what = "Windows is willing: DCB settings of the host are not programmed";
        let consequence = cost_of(adapter, Marks::default(), |talk| {
            (talk.pfc, talk.priority) = (0, 0)
        });
        let fix = HostRemedy::NotWilling.of(adapter, true);
        say("willing", what, &fact.seen, consequence, &fix);
    }
    if let Some(fact) = adapter.qos_enabled.as_ref().filter(|fact| !fact.value) {
        let fix = HostRemedy::Qos.of(adapter, true);
        let consequence = cost_of(adapter, Marks::default(), |talk| {
            (talk.pfc, talk.priority) = (0, 0)
        });
        say(
            "adapter-qos",
            "QoS of the adapter is disabled",
            &fact.seen,
            consequence,
            &fix,
        );
    } else if let Some(pfc) = &adapter.pfc {
        let priority = windows.smb_policy.as_ref().and_then(|policy| policy.value);
        if let Some(priority) = priority
            && pfc.value >> (priority & 7) & 1 == 0
        {
            let what = format!("PFC is off for priority {priority}, which SMB Direct has");
            let fix = HostRemedy::Pfc(1 << (priority & 7)).of(adapter, true);
            say(
                "windows-pfc",
                &what,
                &pfc.seen,
                cost_of(adapter, Marks::default(), |talk| talk.pfc = 0),
                &fix,
            );
        }
    }
}

/// The policy that puts SMB Direct into a priority of its own.
fn smb_policy(adapter: &Adapter, windows: &WindowsFacts, say: Say<'_>) {
    if let Some(policy) = windows
        .smb_policy
        .as_ref()
        .filter(|policy| policy.value.is_none())
    {
        let what = "no policy gives SMB Direct (port 445 of NetworkDirect) a priority";
        // The priority that the adapter has PFC for is the one that the site has chosen.
        let pfc = adapter.pfc.as_ref().map_or(0, |pfc| pfc.value);
        let fix = match pfc.count_ones() {
            1 => HostRemedy::SmbPriority(pfc.trailing_zeros() as u8).of(adapter, true),
            _ => "New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action with \
             the \
                  priority that the switches have PFC for"
                .to_owned(),
        };
        say(
            "smb-policy",
            what,
            &policy.seen,
            cost_of(adapter, Marks::default(), |talk| {
                (talk.dscp, talk.priority) = (0, 0)
            }),
            &fix,
        );
    }
}

/// Pause of the whole link, which PFC is to replace.
fn global_pause(adapter: &Adapter, say: Say<'_>) {
    if let Some(pause) = adapter.global_pause.as_ref().filter(|pause| pause.value) {
        let what = "802.3x pause is on (*FlowControl): it stops all priorities";
        let fix = HostRemedy::NoGlobalPause.of(adapter, true);
        say(
            "global-pause",
            what,
            &pause.seen,
            cost_of(adapter, Marks::default(), |talk| talk.pfc = 0),
            &fix,
        );
    }
}

/// Whether the edition of Windows has no SMB Direct; nothing else matters then.
fn lacks_smb_direct(windows: &WindowsFacts, say: Say<'_>) -> bool {
    let Some(edition) = &windows.edition else {
        return false;
    };
    let text = &edition.value;
    let plain =
        (text.ends_with(" Pro") || text.contains(" Home")) && !text.contains("Workstations");
    if plain {
        let what = "this edition of Windows has no SMB Direct";
        let fix = "Windows Pro for Workstations, Enterprise, Education or Server";
        let tcp = Consequence::FallsBackToTcp;
        say("smb-edition", what, &edition.seen, tcp, fix);
    }
    plain
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
            say("rdma-disabled", &what, &rdma.seen, tcp, &fix);
        }
        return true;
    }
    // 1 is iWARP, which SMB Direct uses as well; 2 is InfiniBand.
    let technology = adapter.technology.as_ref().filter(|own| own.value == 3);
    if let Some(technology) = technology {
        let what =
            "*NetworkDirectTechnology is 3, RoCEv1, which no router forwards and no DSCP marks";
        let fix = HostRemedy::RoceV2.of(adapter, true);
        say("rdma-technology", what, &technology.seen, tcp, &fix);
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
    if let Some(first) = windows.interfaces.first().filter(|_| !is_capable) {
        let what = "SMB sees no interface that is capable of RDMA";
        say("smb-interface", what, &first.seen, tcp, fix);
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
        say("smb-connection", &what, &connection.seen, tcp, fix);
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
            &multichannel.seen,
            Consequence::FallsBackToTcp,
            &fix,
        );
    }
    if let Some(encrypts) = windows.encrypts.as_ref().filter(|encrypts| encrypts.value) {
        let what = "SMB signs or encrypts all data: it is copied and computed \
                   on, and not placed by the adapter";
        let fix = HostRemedy::NoEncryption.of(adapter, true);
        let consequence = Consequence::NotSimulated(
            "the simulated processor does not encrypt, and how fast it does depends on the processor and the \
             version of Windows",
        );
        say("smb-encryption", what, &encrypts.seen, consequence, &fix);
    }
}
