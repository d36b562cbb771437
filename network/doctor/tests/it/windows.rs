//! Scripts of PowerShell for SMB Direct, as people have them, and those that are written.

use vendors::intent::{Port, Schedule, WindowsSettings};
use vendors::{Change, Dialect, Intent, changes};

/// The script of a lab with a CRS504, for the server and for clients: Windows takes PFC and ETS from the
/// switch. The dash before `Force` is typographic, as a web page makes it.
const SCRIPT: &str = include_str!("../scripts/lab.ps1");

/// The intents of a script, each line of which is understood.
fn read(text: &str) -> Vec<Intent> {
    let read = Dialect::Windows
        .read_groups("roce.ps1", text)
        .expect("a script");
    assert_eq!(read.outcomes.left(), [], "{text}");
    read.groups
}

/// The reasons for which lines of a script are not understood, with their numbers.
fn left(text: &str) -> Vec<(usize, String)> {
    let read = Dialect::Windows
        .read_groups("roce.ps1", text)
        .expect("a script");
    let left = read.outcomes.left().into_iter();
    left.map(|line| (line.line, line.why)).collect()
}

fn host(intent: &Intent) -> &vendors::intent::HostSettings {
    intent.host.as_ref().expect("an adapter")
}

#[test]
fn the_script_of_the_lab_is_read_whole() {
    assert_eq!(Dialect::detect(SCRIPT), Some(Dialect::Windows));
    let [intent] = &read(SCRIPT)[..] else {
        panic!("one adapter");
    };
    assert_eq!(
        (intent.pfc_send, intent.ports[0].name.as_str()),
        (8, "SLOT 2")
    );
    assert_eq!(intent.queues[3].schedule, Schedule::Weighted(60));
    assert_eq!(intent.queues[0].schedule, Schedule::Weighted(40));
    let own = host(intent);
    assert!(own.willing, "$True is $true");
    assert_eq!(own.smb_priority, 3);
    let expected = WindowsSettings {
        dialects: (Some(0x311), Some(0x311)),
        connections: Some(4),
        ..WindowsSettings::default()
    };
    assert_eq!(own.windows, expected);
}

#[test]
fn what_a_script_switches_off_is_off() {
    let off = [
        (
            "-NetworkDirect Enabled",
            "-NetworkDirect Disabled",
            "NetworkDirect",
        ),
        (
            "-NetworkDirectAcrossIPSubnets Allow",
            "-NetworkDirectAcrossIPSubnets Blocked",
            "RDMA between subnets",
        ),
        (
            "Enable-WindowsOptionalFeature",
            "Disable-WindowsOptionalFeature",
            "feature SMB Direct",
        ),
        (
            "Set-SmbClientConfiguration -EnableMultiChannel $true",
            "Set-SmbClientConfiguration -EnableMultiChannel $false",
            "multichannel",
        ),
        ("-Willing $True", "-Willing:$false", "willing"),
        (
            "Enable-NetAdapterQos -Name",
            "Disable-NetAdapterRdma -Name",
            "RDMA of the adapter",
        ),
        (
            "Enable-NetAdapterQos -Name \"SLOT 2\"",
            "Set-NetAdapterAdvancedProperty \"SLOT 2\" -RegistryKeyword *NetworkDirect -RegistryValue 0",
            "RDMA of the adapter",
        ),
        (
            "Enable-NetAdapterQos -Name \"SLOT 2\"",
            "Set-NetAdapterAdvancedProperty \"SLOT 2\" -DisplayName \"NetworkDirect Technology\" \
             -DisplayValue RoCE",
            "NetworkDirect technology",
        ),
    ];
    for (from, to, what) in off {
        let text = SCRIPT.replace(from, to);
        assert_ne!(text, SCRIPT, "{from}");
        let differs: Vec<Change> = changes(&read(SCRIPT)[0], &read(&text)[0]);
        let [change] = &differs[..] else {
            panic!("{to}: {differs:?}");
        };
        assert_eq!(change.what, what, "{change}");
    }
}

#[test]
fn several_adapters_are_several_groups_and_an_asterisk_is_all_of_them() {
    let text = format!(
        "{SCRIPT}Set-NetAdapterAdvancedProperty -Name \"SLOT 2\" -RegistryKeyword *JumboPacket \
         -RegistryValue 9014\nSet-NetAdapterAdvancedProperty -Name \"slot 3\",\"SLOT 4\" -RegistryKeyword \
         *JumboPacket -RegistryValue 1514\nDisable-NetAdapterQos \"SLOT 4\"\n"
    );
    let settings = |text: &str| -> Vec<(String, u32, u8)> {
        let groups = read(text);
        let own = |intent: &Intent| (intent.ports[0].name.clone(), intent.mtu, intent.pfc_send);
        groups.iter().map(own).collect()
    };
    let of = |name: &str, mtu, pfc| (name.to_owned(), mtu, pfc);
    let expected = [
        of("SLOT 2", 9000, 8),
        of("slot 3", 1500, 8),
        of("SLOT 4", 1500, 0),
    ];
    assert_eq!(settings(&text), expected);
    let all = format!(
        "{text}Set-NetAdapterAdvancedProperty * -DisplayName \"Jumbo Packet\" -DisplayValue 4014\n"
    );
    assert!(
        settings(&all).iter().all(|(_, mtu, _)| *mtu == 4000),
        "{all}"
    );
}

#[test]
fn classes_and_policies_that_are_removed_or_changed_count_no_more() {
    let own = |text: &str| {
        let intent = &read(text)[0];
        (intent.queues[3].schedule, host(intent).smb_priority)
    };
    let removed = format!(
        "{SCRIPT}Remove-NetQosTrafficClass -Confirm:$false\nRemove-NetQosPolicy -Name smb\n"
    );
    assert_eq!(own(&removed), (Schedule::Weighted(1), 0));
    let changed = format!(
        "{SCRIPT}Set-NetQosTrafficClass SMB -BandwidthPercentage 50\nSet-NetQosPolicy SMB \
         -PriorityValue8021Action 4\n"
    );
    assert_eq!(own(&changed), (Schedule::Weighted(50), 4));
}

#[test]
fn lines_that_are_not_evaluated_are_named() {
    for (line, why) in [
        ("Get-NetAdapter | Enable-NetAdapterQos", "a pipe passes"),
        (
            "Enable-NetAdapterQos -Name (Get-NetAdapter).Name",
            "an expression",
        ),
        ("Enable-NetAdapterQos -Name $nic", "an expression"),
        ("foreach ($nic in $nics) {", "is not closed"),
        (
            "netsh interface ipv4 set subinterface 3 mtu=9000",
            "only settings of TCP",
        ),
        (
            "Set-ItemProperty HKLM:\\A -Name B -Value 1",
            "this value of the registry",
        ),
        (
            "Set-NetQosDcbxSetting -Willing maybe",
            "-willing is $true or $false",
        ),
        (
            "Enable-NetQosFlowControl -Priority 8",
            "numbers from 0 to 7",
        ),
        (
            "Set-NetOffloadGlobalSetting -NetworkDirect maybe",
            "enabled or disabled",
        ),
        (
            "Set-ItemProperty HKLM:\\LanmanWorkstation ConnectionCountPerRdmaNetworkInterface -Value 17",
            "from 1 to 16",
        ),
        (
            "Set-NetAdapterAdvancedProperty \"A\" -DisplayName \"Dcbxmode\" -DisplayValue x",
            "driver's own",
        ),
        (
            "Enable-WindowsOptionalFeature -Online -FeatureName Telnet",
            "this feature",
        ),
        ("Format-Volume X", "this cmdlet is not known"),
        ("Enable-NetAdapterQos `", "ends within a statement"),
    ] {
        let found = left(&format!("{SCRIPT}{line}\n"));
        let [(number, said)] = &found[..] else {
            panic!("{line}: {found:?}");
        };
        assert_eq!(*number, SCRIPT.lines().count() + 1, "{line}");
        assert!(said.contains(why), "{line}: {said}");
    }
    for line in [
        "Get-NetAdapterQos | Format-List *",
        "netstat -xan",
        "# Set-NetQosDcbxSetting -Willing $false",
        "netsh interface tcp show global",
        "Set-NetAdapterAdvancedProperty \"A\" -RegistryKeyword *RSS -RegistryValue 1",
    ] {
        let read = Dialect::Windows.read_groups("f", &format!("{SCRIPT}{line}\n"));
        let outcomes = read.expect("a script").outcomes;
        assert_eq!(outcomes.left(), [], "{line}");
    }
}

#[test]
fn clients_and_servers_have_their_own_features() {
    let written = |version: &str| {
        let (dialect, version) =
            Dialect::parse(&format!("windows@{version}")).expect("it is known");
        dialect.write(&Intent::default(), version).text
    };
    for version in ["10", "11"] {
        let text = written(version);
        assert!(!text.contains("Install-WindowsFeature"), "{text}");
        assert!(
            text.contains("-FeatureName SMBDirect") && text.contains("DataCenterBridging"),
            "{text}"
        );
    }
    for version in ["2019", "2022", "2025"] {
        assert!(written(version).contains("Install-WindowsFeature Data-Center-Bridging"));
    }
    for version in ["12", "2016", "9", "2026"] {
        let error = Dialect::parse(&format!("windows@{version}")).expect_err("it is not known");
        let text = error.to_string();
        assert!(
            text.contains("10 and 11 (clients) and 2019 to 2025 (servers)"),
            "{text}"
        );
    }
    // What is written is each setting of the script; those that RDMA does not need are comments.
    let text = written("11");
    for setting in [
        "ecncapability",
        "MinSMB2Dialect",
        "MaxSMB2Dialect",
        "SMBDirect",
        "EnableMultiChannel",
        "ConnectionCountPerRdmaNetworkInterface",
        "-NetworkDirect Enabled",
        "NetworkDirectAcrossIPSubnets",
        "\"*NetworkDirect\" -RegistryValue 1",
        "-NetDirectPortMatchCondition 445",
        "NetQosFlowControl",
        "New-NetQosTrafficClass",
        "-Willing",
        "Enable-NetAdapterQos",
    ] {
        assert!(text.contains(setting), "{setting}: {text}");
    }
    assert!(
        text.contains("\n# netsh int tcp set global ecncapability"),
        "{text}"
    );
}

#[test]
fn names_of_adapters_are_arguments_and_no_commands() {
    let name = "a\"; $(reboot)".to_owned();
    let mut intent = Intent::default();
    intent.ports.push(Port {
        name,
        mbps: None,
        metres: None,
    });
    let text = Dialect::Windows
        .write(&intent, Dialect::Windows.versions().1)
        .text;
    assert!(text.contains("-Name 'a\"; $(reboot)'"), "{text}");
    assert!(!text.contains("\"a\""), "{text}");
    assert_eq!(read(&text)[0].ports[0].name, intent.ports[0].name);
}

const SERVER: &str = include_str!("../hosts/windows.txt");

#[test]
fn an_rdma_adapter_that_is_slower_than_another_one_is_named() {
    let speeds = |gbps: [u32; 2], rdma: bool| {
        let mut host = vendors::read_host("server.txt", SERVER).expect("it reads");
        let seen = host.adapters[0].rdma_enabled.as_ref();
        let seen = seen.expect("RDMA is on").seen.clone();
        let fact = |value| vendors::facts::Fact {
            value,
            seen: seen.clone(),
        };
        host.adapters[0].gbps = Some(fact(gbps[0]));
        let mut second = host.adapters[0].clone();
        second.device = "SLOT 3".to_owned();
        second.gbps = Some(fact(gbps[1]));
        second.rdma_enabled = Some(vendors::facts::Fact {
            value: rdma,
            seen: seen.clone(),
        });
        host.adapters.push(second);
        let mut found = doctor::check(&[host], &[], doctor::Marks::default());
        found.retain(|finding| finding.rule == "smb-speeds");
        found
    };
    let found = speeds([100, 25], true);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].place.contains("SLOT 3"), "{}", found[0]);
    assert!(
        found[0].what.contains("this one of 25 Gb/s"),
        "{}",
        found[0]
    );
    assert_eq!(speeds([100, 100], true), []);
    // Without RDMA it is a spare for TCP anyway.
    assert_eq!(speeds([100, 25], false), []);
}
