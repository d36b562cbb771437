//! SMB Direct on Linux and Windows, and DCB of Windows.

use super::{Adapter, Consequence, Evidence, Finding, Found, HostFacts, cost_of, value};
use vendors::facts::WindowsFacts;

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let Some(adapter) = host.adapters.first() else {
        return;
    };
    linux(host, adapter, found);
    if let Some(windows) = &host.windows {
        let mut say = |rule, what: &str, seen: &Evidence, consequence, fix: &str| {
            let own = Found {
                rule,
                host,
                adapter,
            };
            found.push(own.say(what, &[seen], consequence, fix));
        };
        dcb(adapter, windows, &mut say);
        smb_policy(adapter, windows, &mut say);
        global_pause(adapter, &mut say);
        if !lacks_smb_direct(windows, &mut say) {
            smb_direct(windows, &mut say);
            smb_settings(windows, &mut say);
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
            mount.value.share
        );
        found.push(own("smb-mount").say(what, &[&mount.seen], Consequence::FallsBackToTcp, fix));
    }
}

/// Lossless Ethernet for the priority of SMB Direct: the host sets it by itself (DCBX is not willing), and
/// PFC is on.
fn dcb(adapter: &Adapter, windows: &WindowsFacts, say: Say<'_>) {
    let name = &adapter.device;
    if let Some(fact) = windows.willing.as_ref().filter(|fact| fact.value) {
        let what = "Windows is willing: DCB settings of the host are not programmed";
        let fix = "Set-NetQosDcbxSetting -Willing $false -Confirm:$false";
        say(
            "willing",
            what,
            &fact.seen,
            cost_of(adapter, |talk| (talk.pfc, talk.priority) = (0, 0)),
            fix,
        );
    }
    if let Some(fact) = windows.qos_enabled.as_ref().filter(|fact| !fact.value) {
        let fix = format!("Enable-NetAdapterQos -Name \"{name}\"");
        let consequence = cost_of(adapter, |talk| (talk.pfc, talk.priority) = (0, 0));
        say(
            "adapter-qos",
            "QoS of the adapter is disabled",
            &fact.seen,
            consequence,
            &fix,
        );
    } else if let Some(pfc) = &adapter.pfc {
        let priority = windows
            .smb_policy
            .as_ref()
            .and_then(|policy| policy.value)
            .unwrap_or(3);
        if pfc.value >> (priority & 7) & 1 == 0 {
            let what = format!("PFC is off for priority {priority}, which SMB Direct has");
            let fix = format!("Enable-NetQosFlowControl -Priority {priority}");
            say(
                "windows-pfc",
                &what,
                &pfc.seen,
                cost_of(adapter, |talk| talk.pfc = 0),
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
        let fix =
            "New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action 3";
        say(
            "smb-policy",
            what,
            &policy.seen,
            cost_of(adapter, |talk| (talk.dscp, talk.priority) = (0, 0)),
            fix,
        );
    }
}

/// Pause of the whole link, which PFC is to replace.
fn global_pause(adapter: &Adapter, say: Say<'_>) {
    let name = &adapter.device;
    if let Some(pause) = adapter.global_pause.as_ref().filter(|pause| pause.value) {
        let what = "802.3x pause is on (*FlowControl): it stops all priorities";
        let fix = format!(
            "Set-NetAdapterAdvancedProperty -Name \"{name}\" -RegistryKeyword \"*FlowControl\" \
                -RegistryValue 0"
        );
        say(
            "global-pause",
            what,
            &pause.seen,
            cost_of(adapter, |talk| talk.pfc = 0),
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

/// What keeps the adapter from RDMA, or SMB from the adapter.
fn smb_direct(windows: &WindowsFacts, say: Say<'_>) {
    let tcp = Consequence::FallsBackToTcp;
    if let Some(rdma) = windows.rdma_enabled.as_ref().filter(|rdma| !rdma.value) {
        say(
            "rdma-disabled",
            "RDMA of the adapter is disabled",
            &rdma.seen,
            tcp,
            "Enable-NetAdapterRdma -Name *",
        );
    } else if let Some(technology) = windows
        .technology
        .as_ref()
        .filter(|technology| technology.value != 4)
    {
        let what = format!(
            "*NetworkDirectTechnology is {}: 4 is RoCEv2",
            technology.value
        );
        let fix = "Set-NetAdapterAdvancedProperty -Name * -RegistryKeyword \"*NetworkDirectTechnology\" \
            -RegistryValue 4";
        say("rdma-technology", &what, &technology.seen, tcp, fix);
    } else if let Some(capable) = windows
        .rdma_capable
        .as_ref()
        .filter(|capable| !capable.value)
    {
        let what = "SMB sees no interface that is capable of RDMA";
        let fix = "Get-NetAdapterRdma must say Enabled and Operational; a team or virtual switch may hide \
            the adapter";
        say("smb-interface", what, &capable.seen, tcp, fix);
    }
}

/// What lets SMB Direct be chosen by the client, and lets the adapter place the data.
fn smb_settings(windows: &WindowsFacts, say: Say<'_>) {
    if let Some(multichannel) = windows
        .multichannel
        .as_ref()
        .filter(|multichannel| !multichannel.value)
    {
        let what = "multichannel is off, and SMB Direct is found by it only";
        let fix = "Set-SmbClientConfiguration -EnableMultiChannel $true; the \
                   same with Set-SmbServerConfiguration";
        say(
            "smb-multichannel",
            what,
            &multichannel.seen,
            Consequence::FallsBackToTcp,
            fix,
        );
    }
    if let Some(encrypts) = windows.encrypts.as_ref().filter(|encrypts| encrypts.value) {
        let what = "SMB signs or encrypts all data: it is copied and computed \
                   on, and not placed by the adapter";
        let fix = "Set-SmbServerConfiguration -EncryptData $false -RequireSecuritySignature $false, where \
            the network is trusted";
        let consequence = Consequence::NotSimulated(
            "the simulated processor does not encrypt, and how fast it does depends on the processor and the \
             version of Windows",
        );
        say("smb-encryption", what, &encrypts.seen, consequence, fix);
    }
}
