//! Outputs of cmdlets and logs of Windows, as people paste them.

use doctor::{Finding, Marks, check, read_switch};
use vendors::facts::HostFacts;
use vendors::read_host;

fn host(text: &str) -> HostFacts {
    let host = read_host("client.txt", text).expect("a snapshot");
    assert_eq!(host.left, [], "{text}");
    host
}

fn found(text: &str) -> Vec<Finding> {
    check(&[host(text)], &[], Marks::default())
}

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

/// Replaces a text that has to be there.
fn with(text: &str, from: &str, to: &str) -> String {
    let changed = text.replace(from, to);
    assert_ne!(changed, text, "{from}");
    changed
}

/// A server with two adapters, in the layouts of Microsoft's pages of the cmdlets.
const SERVER: &str = "==> (Get-CimInstance Win32_OperatingSystem).Caption <==
Microsoft Windows Server 2022 Datacenter
==> Get-WindowsOptionalFeature -Online -FeatureName SMBDirect <==
FeatureName      : SmbDirect
DisplayName      : SMB Direct
RestartRequired  : Possible
State            : Enabled
CustomProperties :
==> Get-NetOffloadGlobalSetting <==
ReceiveSideScaling           : Enabled
Chimney                      : Disabled
NetworkDirect                : Enabled
NetworkDirectAcrossIPSubnets : Blocked
==> Get-SmbServerNetworkInterface <==
Scope Name          Interface Index     RSS Capable         RDMA Capable        Speed       IpAddress
----------          ---------------     -----------         ------------        -----       ---------
*                   14                  False               False               1 Gbps      192.0.2.2
*                   12                  True                True                32 Gbps     198.51.100.22
FE80::C8C0:F65D:... 13                  False               False               1 Gbps      192.0.2.8
==> Get-NetAdapterRDMA <==
Name                      InterfaceDescription                     Enabled     Operational PFC        ETS
----                      --------------------                     -------     ----------- ---        ---
SLOT 2                    Mellanox ConnectX-5 Adapter              True        True        True       True
SLOT 3                    Mellanox ConnectX-5 Adapter #2           True        True        True       True
==> Get-NetAdapterQos <==
Name                       : SLOT 2
Enabled                    : True
OperationalFlowControl     : Priority 3 Enabled
OperationalClassifications : Protocol  Port/Type Priority
                             --------  --------- --------
                             Default             0
                             NetDirect 445       3

Name                       : SLOT 3
Enabled                    : True
OperationalFlowControl     : Priority 3 Enabled
OperationalClassifications : Protocol  Port/Type Priority
                             --------  --------- --------
                             Default             0
                             NetDirect 445       3
==> Get-NetQosDcbxSetting <==
Willing
-------
True
==> netstat -xan <==
Active NetworkDirect Connections, Listeners, SharedEndpoints

  Mode   IfIndex Type           Local Address          Foreign Address        PID

  Kernel      4 Connection     198.51.100.22:445      198.51.100.71:2240     0
  Kernel      4 Listener       198.51.100.22:445      NA
==> Get-NetAdapterRss <==
Name                           : SLOT 2
NumberOfReceiveQueues          : 1
==> netsh int tcp show global <==
ECN Capability                      : enabled
";

#[test]
fn a_healthy_server_that_is_willing_has_no_finding() {
    let facts = host(SERVER);
    let found = check(std::slice::from_ref(&facts), &[], Marks::default());
    assert!(found.is_empty(), "{found:#?}");
    let names: Vec<&str> = facts
        .adapters
        .iter()
        .map(|own| own.device.as_str())
        .collect();
    assert_eq!(names, ["SLOT 2", "SLOT 3"]);
    for own in &facts.adapters {
        assert_eq!(own.smb_class.as_ref().map(|fact| fact.value), Some(Some(3)));
        assert_eq!(own.pfc.as_ref().map(|fact| fact.value), Some(8));
    }
}

#[test]
fn each_switch_of_the_system_that_is_off_is_found() {
    for (from, to, expected, fix) in [
        (
            "State            : Enabled",
            "State            : Disabled",
            "smb-feature",
            "Enable-WindowsOptionalFeature -Online -FeatureName SMBDirect",
        ),
        (
            "State            : Enabled",
            "State            : EnablePending",
            "smb-feature",
            "Restart-Computer",
        ),
        (
            "NetworkDirect                : Enabled",
            "NetworkDirect                : Disabled",
            "rdma-global",
            "Set-NetOffloadGlobalSetting -NetworkDirect Enabled",
        ),
        (
            "True                True                32 Gbps",
            "True                False               32 Gbps",
            "smb-interface",
            "Get-NetAdapterRdma",
        ),
    ] {
        let found = found(&with(SERVER, from, to));
        assert_eq!(rules(&found), [expected], "{found:#?}");
        assert!(found[0].fix.contains(fix), "{}", found[0].fix);
    }
    let silent = SERVER
        .replace(
            "  Kernel      4 Connection     198.51.100.22:445      198.51.100.71:2240     0\n",
            "",
        )
        .replace(
            "  Kernel      4 Listener       198.51.100.22:445      NA\n",
            "",
        );
    assert_eq!(rules(&found(&silent)), ["smb-listener"]);
    // Clients have no listeners.
    let client = with(
        &silent,
        "Windows Server 2022 Datacenter",
        "Windows 11 Enterprise",
    );
    assert_eq!(rules(&found(&client)), [""; 0]);
}

#[test]
fn one_of_two_adapters_is_one() {
    // The second adapter, and not the last one that was listed.
    let second = SERVER.rfind("Priority 3 Enabled").unwrap_or_default();
    let mut text = SERVER.to_owned();
    text.replace_range(
        second..second + "Priority 3 Enabled".len(),
        "All Priorities Disabled",
    );
    let findings = found(&text);
    assert_eq!(rules(&findings), ["willing"], "{findings:#?}");
    assert!(
        findings[0].place.contains("SLOT 3"),
        "{}",
        findings[0].place
    );
    let first = SERVER.replacen("Priority 3 Enabled", "All Priorities Disabled", 1);
    assert!(found(&first)[0].place.contains("SLOT 2"));
}

/// A switch that offers DCBX, or does not.
fn switch(offers: bool) -> doctor::SwitchFacts {
    let text = include_str!("../../../../examples/crs504/roce.rsc");
    let text = match offers {
        true => text.to_owned(),
        false => with(text, "lldp-dcbx=yes", "lldp-dcbx=no"),
    };
    read_switch("crs504.rsc", &text).expect("a configuration")
}

#[test]
fn whether_willing_is_right_depends_on_the_switch() {
    let silent = with(SERVER, "Priority 3 Enabled", "All Priorities Disabled");
    let fix = |text: &str, switches: &[doctor::SwitchFacts]| {
        let mut found = check(&[host(text)], switches, Marks::default());
        found.retain(|finding| finding.rule == "willing");
        let fixes: Vec<String> = found.into_iter().map(|finding| finding.fix).collect();
        fixes.first().cloned().unwrap_or_default()
    };
    let (offers, silent_switch) = ([switch(true)], [switch(false)]);
    // A switch that offers DCBX is meant to be obeyed: the fix is there.
    assert!(!fix(&silent, &offers).contains("-Willing $false"));
    assert!(fix(&silent, &offers).contains("application entry"));
    assert_eq!(
        fix(&silent, &silent_switch),
        "Set-NetQosDcbxSetting -Willing $false -Confirm:$false"
    );
    let both = fix(&silent, &[]);
    assert!(
        both.contains("where the switch sends DCBX") && both.contains("-Willing $false"),
        "{both}"
    );
    // The adapter shows what its partner sends: the partner speaks DCBX.
    let heard = with(
        &silent,
        "All Priorities Disabled\n",
        "All Priorities Disabled\nRemoteFlowControl          : Priority 4 Enabled\n",
    );
    assert!(!fix(&heard, &[]).contains("-Willing $false"), "{heard}");
    // PFC works.
    assert_eq!(fix(SERVER, &silent_switch), "");
    // Nothing shows whether PFC works.
    let unknown = with(
        SERVER,
        "OperationalFlowControl     : Priority 3 Enabled\n",
        "",
    );
    assert_eq!(fix(&unknown, &silent_switch), "");
    // PFC without an application entry leaves SMB Direct in priority 0.
    let entry = with(
        SERVER,
        "                             NetDirect 445       3\n",
        "",
    );
    assert!(fix(&entry, &offers).contains("an application entry (port 445)"));
    // One interface may be willing where the host is not.
    let other = with(
        &silent,
        "Willing\n-------\nTrue\n",
        "Willing\n-------\nFalse\n",
    ) + "==> Get-NetQosDcbxSetting -InterfaceAlias \"SLOT_3\" <==\nWilling : True\n";
    let other = other.replace("SLOT 3", "SLOT_3");
    let found = check(&[host(&other)], &[], Marks::default());
    let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
    assert_eq!(
        (rules(&found), places),
        (vec!["willing"], vec!["client.txt, SLOT_3"])
    );
}

#[test]
fn json_and_csv_are_read_as_lists_are() {
    let json = "==> Get-NetOffloadGlobalSetting | ConvertTo-Json <==
{
    \"CimClass\":  { \"CimSuperClassName\":  null },
    \"NetworkDirect\":  0,
    \"NetworkDirectAcrossIPSubnets\":  1
}
==> Get-NetAdapterRdma | ConvertTo-Json <==
[
    { \"Name\": \"SLOT 2\", \"Enabled\": true },
    { \"Name\": \"SLOT 3\", \"Enabled\": true }
]
==> Get-SmbClientNetworkInterface | ConvertTo-Json <==
{ \"FriendlyName\": \"SLOT 2\", \"RdmaCapable\": true, \"IpAddresses\": [\"192.0.2.1\"] }
==> Get-WindowsOptionalFeature -Online -FeatureName SMBDirect | ConvertTo-Json <==
{ \"FeatureName\": \"SmbDirect\", \"State\": 2 }
";
    let facts = host(json);
    let findings = check(std::slice::from_ref(&facts), &[], Marks::default());
    assert_eq!(rules(&findings), ["rdma-global"], "{findings:#?}");
    assert_eq!(findings[0].evidence[0].line, 4);
    assert_eq!(facts.adapters.len(), 2);
    let csv = "==> Get-NetAdapterRdma | ConvertTo-Csv <==
#TYPE Microsoft.Management.Infrastructure.CimInstance
\"Name\",\"InterfaceDescription\",\"Enabled\"
\"SLOT 2\",\"a \"\"b\"\", c\",\"False\"
\"SLOT 3\",\"d\",\"False\"
";
    let findings = found(csv);
    assert_eq!(rules(&findings), ["rdma-disabled"], "{findings:#?}");
    assert!(findings[0].what.contains("SLOT 2, SLOT 3"));
    let short = with(csv, "\"SLOT 3\",\"d\",\"False\"", "\"SLOT 3\",\"d\"");
    let left = read_host("f", &short).expect("a snapshot").left;
    assert!(left.len() == 1 && left[0].line == 5, "{left:?}");
}

#[test]
fn a_log_of_powershell_is_a_snapshot() {
    let log = "PS C:\\Users\\a> Get-NetAdapterRdma

Name                      InterfaceDescription                     Enabled
----                      --------------------                     -------
SLOT 2                    Mellanox ConnectX-5 Adapter              True

PS C:\\Users\\a> Get-NetAdapterAdvancedProperty -Name \"SLOT 2\"

*NetworkDirect           : 0
*NetworkDirectTechnology : 4

PS C:\\Users\\a>
";
    let findings = found(log);
    assert_eq!(rules(&findings), ["rdma-disabled"], "{findings:#?}");
    let fix = "-Name \"SLOT 2\" -RegistryKeyword \"*NetworkDirect\" -RegistryValue 1";
    assert!(findings[0].fix.contains(fix), "{}", findings[0].fix);
    assert_eq!(host(log).adapters.len(), 1);
}

const EVENTS: &str = "==> Get-WinEvent -LogName Microsoft-Windows-SMBClient/Connectivity <==
   ProviderName: Microsoft-Windows-SMBClient

TimeCreated                     Id LevelDisplayName Message
-----------                     -- ---------------- -------
11/25/2026 9:30:00 PM        30818 Fehler           RDMA-Schnittstellen sind vorhanden....
11/25/2026 9:20:00 PM        30818 Fehler           RDMA-Schnittstellen sind vorhanden....
11/25/2026 9:10:00 PM        30828 Information      Sitzung....
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
";

#[test]
fn events_tell_that_rdma_failed_by_their_numbers() {
    let findings = found(EVENTS);
    assert_eq!(rules(&findings), ["smb-event"], "{findings:#?}");
    assert!(findings[0].what.contains("SMBClient 30818") && findings[0].what.contains("2 times"));
    assert_eq!(findings[0].evidence[0].line, 6);
    // While RDMA is in use, the event is of the past.
    let used = format!(
        "{EVENTS}==> netstat -xan <==\n  Kernel      4 Connection     198.51.100.71:2240      \
         198.51.100.22:445     0\n"
    );
    assert_eq!(rules(&found(&used)), [""; 0]);
    // The same number is another event of another provider, and of the Debug log.
    let other = EVENTS.replace("SMBClient", "Other");
    assert_eq!(rules(&found(&other)), [""; 0]);
    let list = "==> Get-WinEvent -ProviderName Microsoft-Windows-SMBDirect | Format-List <==
TimeCreated  : 11/25/2026 9:30:00 PM
ProviderName : Microsoft-Windows-SMBDirect
Id           : 2
Message      : text

TimeCreated  : 11/25/2026 9:30:00 PM
ProviderName : Microsoft-Windows-SMBDirect
Id           : 6
Message      : text
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
";
    assert_eq!(rules(&found(list)), ["smb-event", "smb-event"]);
}

#[test]
fn a_server_in_another_subnet_needs_rdma_across_subnets() {
    let text = "==> Get-NetOffloadGlobalSetting <==
NetworkDirect                : Enabled
NetworkDirectAcrossIPSubnets : Blocked
==> Get-NetIPAddress | Format-List * <==
IPAddress    : 192.0.2.10
PrefixLength : 25

IPAddress    : fe80::1%4
PrefixLength : 64
==> Get-SmbMultichannelConnection <==
Server Name   Selected Client IP     Server IP     Client RSS Capable Client RDMA Capable
-----------   -------- ---------     ---------     ------------------ -------------------
fs1           True     192.0.2.10    192.0.2.200   True               True
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
";
    let findings = found(text);
    assert_eq!(rules(&findings), ["rdma-subnets"], "{findings:#?}");
    assert!(
        findings[0]
            .fix
            .contains("-NetworkDirectAcrossIPSubnets Allowed")
    );
    assert_eq!(rules(&found(&with(text, ": 25", ": 24"))), [""; 0]);
    assert_eq!(
        rules(&found(&with(text, ": Blocked", ": Allowed"))),
        [""; 0]
    );
    assert_eq!(
        rules(&found(&with(text, "PrefixLength : 25\n", ""))),
        [""; 0]
    );
}

#[test]
fn an_old_dialect_and_signing_are_found() {
    let text =
        "==> Get-ItemProperty HKLM:\\SYSTEM\\CurrentControlSet\\Services\\LanmanWorkstation\\* <==
MinSMB2Dialect : 514
MaxSMB2Dialect : 528
==> Get-SmbServerConfiguration <==
EncryptData              : True
RequireSecuritySignature : True
==> (Get-CimInstance Win32_OperatingSystem).Caption <==
Microsoft Windows 11 Enterprise
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
";
    let findings = found(text);
    assert_eq!(
        rules(&findings),
        ["smb-encryption", "smb-dialect"],
        "{findings:#?}"
    );
    assert!(findings[0].what.contains("signs") && findings[1].what.contains("0x210"));
    let newest = with(text, "MaxSMB2Dialect : 528", "MaxSMB2Dialect : 785");
    assert_eq!(rules(&found(&newest)), ["smb-encryption"]);
}

#[test]
fn outputs_that_are_odd_are_named() {
    for (command, line) in [
        (
            "netstat -xan",
            "  Kernel      4 Verbindung     198.51.100.22:445      NA",
        ),
        (
            "Get-NetAdapterQos",
            "OperationalFlowControl : {True, False, False}",
        ),
        ("Get-NetOffloadGlobalSetting", "NetworkDirect : Vielleicht"),
        (
            "Get-WindowsOptionalFeature",
            "FeatureName : SmbDirect\nState : Vielleicht",
        ),
        (
            "Get-NetOffloadGlobalSetting | ConvertTo-Json",
            "{ \"NetworkDirect\": ",
        ),
    ] {
        let text = format!("==> {command} <==\n{line}\n");
        let left = read_host("f", &text).expect("a snapshot").left;
        assert_eq!(left.len(), 1, "{command}: {left:?}");
    }
}

#[test]
fn an_adapter_without_rdma_beside_one_with_it_is_named_and_no_fault() {
    let text = "==> Get-NetAdapterRdma <==
Name                 : SLOT 2
Enabled              : True

Name                 : SLOT 3
Enabled              : False
";
    assert!(found(text).is_empty());
    let judged = doctor::judged_host(&host(text), Marks::default());
    let said: Vec<&str> = judged.iter().map(|own| own.text.as_str()).collect();
    assert_eq!(
        said,
        [
            "SLOT 2: RDMA on",
            "SLOT 3: RDMA off or not seen, and on at another adapter: not judged"
        ]
    );
}

const CLASSES: &str = "==> Get-NetQosTrafficClass <==

Name                      Algorithm Bandwidth(%) Priority                  PolicySet        IfIndex IfAlias
----                      --------- ------------ --------                  ---------        ------- -------
[Default]                 ETS       50           0-3,5-7                   Global
SMB's                     ETS       50           4                         Global

==> Get-NetQosFlowControl <==

Priority   Enabled    PolicySet        IfIndex IfAlias
--------   -------    ---------        ------- -------
0          False      Global
3          True       Global
4          False      Global
==> Get-NetQosPolicy <==
Name           : SMBDIRECT
NetDirectPort  : 445
PriorityValue  : 3
==> Get-NetQosDcbxSetting <==
Willing PolicySet IfIndex IfAlias
------- --------- ------- -------
False   Global
";

/// The same with the class of the priority of SMB Direct.
fn of_its_priority() -> String {
    let right = with(CLASSES, "50           0-3,5-7", "50           0-2,4-7");
    with(&right, "50           4 ", "50           3 ")
}

#[test]
fn traffic_classes_of_another_priority_than_smb_direct_are_found() {
    let findings = found(CLASSES);
    assert_eq!(rules(&findings), ["smb-class"], "{findings:#?}");
    assert!(findings[0].what.contains("priority 3") && findings[0].what.contains("[Default]"));
    assert_eq!(
        findings[0].fix,
        "Set-NetQosTrafficClass -Name \"SMB's\" -Priority 3"
    );
    let lines: Vec<usize> = findings[0].evidence.iter().map(|seen| seen.line).collect();
    assert_eq!(lines, [18, 5, 6]);
    let right = of_its_priority();
    assert_eq!(rules(&found(&right)), [""; 0]);
    // Without a class of SMB nothing is reserved for it, which is a choice.
    let only = with(&right, "SMB's ", "Cluster");
    let only = with(&only, "50           3 ", "50           7 ");
    assert_eq!(rules(&found(&only)), [""; 0]);
    let json = "==> Get-NetQosTrafficClass | ConvertTo-Json <==
[ { \"Name\": \"[Default]\", \"Algorithm\": 2, \"BandwidthPercentage\": 40,
    \"Priority\": [0, 1, 2, 3, 5, 6, 7] },
  { \"Name\": \"SMB\", \"Algorithm\": 2, \"BandwidthPercentage\": 60, \"Priority\": [4] } ]
";
    let policy = CLASSES
        .split_once("==> Get-NetQosPolicy")
        .expect("it has one")
        .1;
    let json = format!("{json}==> Get-NetQosPolicy{policy}");
    assert_eq!(rules(&found(&json)), ["smb-class"], "{json}");
    let odd = with(CLASSES, "0-3,5-7", "0-3,x  ");
    let odd = read_host("client.txt", &odd).expect("it is read");
    assert_eq!(odd.left.len(), 1, "{:?}", odd.left);
    assert_eq!(odd.left[0].line, 5);
}

#[test]
fn pfc_that_a_host_sets_counts_where_it_is_not_willing() {
    let off = with(&of_its_priority(), "3          True ", "3          False");
    let findings = found(&off);
    assert_eq!(rules(&findings), ["windows-pfc"], "{findings:#?}");
    assert_eq!(findings[0].fix, "Enable-NetQosFlowControl -Priority 3");
    // A switch may send PFC to a host that is willing, and nothing is known of one that does not say it.
    let willing = with(&off, "False   Global", "True    Global");
    assert_eq!(rules(&found(&willing)), [""; 0]);
    let unknown = off.split_once("==> Get-NetQosDcbx").expect("it has one").0;
    assert_eq!(rules(&found(unknown)), [""; 0]);
    // What is in operation counts before what is set.
    let shown = format!(
        "{off}==> Get-NetAdapterQos <==\nName : SLOT 2\nEnabled : True\nOperationalFlowControl : Priority 3 \
         Enabled\n"
    );
    assert_eq!(rules(&found(&shown)), [""; 0]);
}

#[test]
fn an_address_of_windows_that_is_none_is_named() {
    let text = "==> Get-NetIPAddress | Format-List * <==
IPAddress    : 192.0.2.300
PrefixLength : 25

IPAddress    : FE80::C8C0:F65D:...
PrefixLength : 64
==> Get-NetAdapterRdma <==
Name    : SLOT 2
Enabled : True
";
    let host = read_host("client.txt", text).expect("a snapshot");
    let [left] = &host.left[..] else {
        panic!("{:?}", host.left);
    };
    assert_eq!(left.line, 2, "{left}");
    assert!(left.why.contains("an IP address was expected"), "{left}");
}
