//! Fixes in the names that a site has for its classes, policies and profiles.

use super::inputs::{asked, rules, switch, with};
use doctor::check;

const NXOS: &str = "class-map type qos match-any STORAGE
  match dscp 24
class-map type qos match-all CNP
  match dscp 48
class-map type queuing STORAGE-Q
  match qos-group 3
class-map type network-qos STORAGE-NQ
  match qos-group 3
policy-map type qos EDGE-IN
  class STORAGE
    set qos-group 3
  class CNP
    set qos-group 7
policy-map type queuing EDGE-OUT
  class type queuing STORAGE-Q
    bandwidth remaining percent 60
    random-detect minimum-threshold 150 kbytes maximum-threshold 3000 kbytes drop-probability 100 weight 0 ecn
  class type queuing class-default
    bandwidth remaining percent 40
policy-map type network-qos EDGE-NQ
  class type network-qos STORAGE-NQ
    mtu 9216
    pause pfc-cos 3
system qos
  service-policy type network-qos EDGE-NQ
  service-policy type queuing output EDGE-OUT
interface Ethernet1/1-2
  service-policy type qos input EDGE-IN
  priority-flow-control mode on
  mtu 9216
";

const OS10: &str = "wred W
 random-detect color green minimum-threshold 150 maximum-threshold 1500 drop-probability 100
 random-detect ecn
class-map type queuing SQ
 match queue 3
class-map type network-qos SN
 match qos-group 3
trust dscp-map SITE
 qos-group 3 dscp 24
 qos-group 6 dscp 48
policy-map type queuing ETS
 class SQ
  bandwidth percent 50
  random-detect W
policy-map type network-qos PFC
 class SN
  pause
  pfc-cos 3
system qos
 trust-map dscp SITE
interface ethernet1/1/1
 mtu 9216
 flowcontrol receive off
 priority-flow-control mode on
 service-policy input type network-qos PFC
 service-policy output type queuing ETS
";

const EOS: &str = "qos map dscp 24 to traffic-class 3
qos map dscp 48 to traffic-class 6
qos profile EDGE
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   uc-tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes weight 0
interface Ethernet1
   mtu 9214
   service-profile EDGE
";

/// The only fix of a configuration, of this rule.
fn fix(text: &str, dscp: u8, rule: &str) -> String {
    let found = check(&[], &[switch(text)], asked(dscp));
    assert_eq!(rules(&found), [rule], "{found:#?}\n{text}");
    found[0].fix.clone()
}

#[test]
fn fixes_of_nxos_are_in_the_policies_of_the_port() {
    assert!(check(&[], &[switch(NXOS)], asked(24)).is_empty());
    // The map of the lossless group takes any of its matches.
    assert_eq!(
        fix(NXOS, 26, "switch-dscp-map"),
        "class-map type qos match-any STORAGE\n  match dscp 26"
    );
    // A match of a map that wants all of them would match nothing more.
    let all = with(NXOS, "match-any STORAGE", "match-all STORAGE");
    assert_eq!(
        fix(&all, 26, "switch-dscp-map"),
        "class-map type qos match-any ROCE\n  match dscp 26\npolicy-map type qos EDGE-IN\n  class \
         ROCE\n    set \
         qos-group 3"
    );
    // A class that has the DSCP already is the one to change.
    let other = with(
        NXOS,
        "class STORAGE\n    set qos-group 3",
        "class STORAGE\n    set qos-group 4",
    );
    assert_eq!(
        fix(&other, 24, "switch-dscp-map"),
        "policy-map type qos EDGE-IN\n  class STORAGE\n    set qos-group 3"
    );
    let unmarked = with(
        NXOS,
        "    random-detect minimum-threshold 150 kbytes maximum-threshold 3000 kbytes \
         drop-probability 100 weight \
         0 ecn\n",
        "",
    );
    let own = fix(&unmarked, 24, "switch-ecn-off");
    assert!(
        own.starts_with(
            "policy-map type queuing EDGE-OUT\n  class type queuing STORAGE-Q\n    random-detect"
        ),
        "{own}"
    );
    let lossy = with(NXOS, "    pause pfc-cos 3\n", "");
    assert_eq!(
        fix(&lossy, 24, "switch-pfc-off"),
        "policy-map type network-qos EDGE-NQ\n  class type network-qos STORAGE-NQ\n    pause pfc-cos \
         3\ninterface \
         Ethernet1/1\n  priority-flow-control mode on"
    );
}

#[test]
fn fixes_of_nxos_have_the_systems_names_where_a_site_uses_them() {
    let system = NXOS
        .replace("STORAGE-Q\n", "c-out-8q-q3\n")
        .replace("STORAGE-NQ", "c-8q-nq3");
    let system = with(
        &system,
        "class-map type queuing c-out-8q-q3\n  match qos-group 3\n",
        "",
    );
    let system = with(
        &system,
        "class-map type network-qos c-8q-nq3\n  match qos-group 3\n",
        "",
    );
    assert!(check(&[], &[switch(&system)], asked(24)).is_empty());
    let lossy = with(&system, "    pause pfc-cos 3\n", "");
    let own = fix(&lossy, 24, "switch-pfc-off");
    assert!(
        own.contains("network-qos EDGE-NQ\n  class type network-qos c-8q-nq3\n"),
        "{own}"
    );
    // Without policies nothing of a site is named.
    let bare = "class-map type queuing c-out-8q-q3\ninterface Ethernet1/1\n  priority-flow-control mode on\n";
    let found = check(&[], &[switch(bare)], asked(24));
    assert!(
        found.iter().all(|finding| !finding.fix.contains("EDGE")),
        "{found:#?}"
    );
}

#[test]
fn fixes_of_os10_are_in_the_maps_and_policies_of_the_port() {
    assert!(check(&[], &[switch(OS10)], asked(24)).is_empty());
    assert_eq!(
        fix(OS10, 26, "switch-dscp-map"),
        "trust dscp-map SITE\n qos-group 3 dscp 26"
    );
    let unmarked = with(OS10, "  random-detect W\n", "");
    let own = fix(&unmarked, 24, "switch-ecn-off");
    assert!(
        own.ends_with("policy-map type queuing ETS\n class SQ\n  random-detect ROCE"),
        "{own}"
    );
    let lossy = with(OS10, "  pause\n", "");
    assert_eq!(
        fix(&lossy, 24, "switch-pfc-off"),
        "policy-map type network-qos PFC\n class SN\n  pause\n  pfc-cos 3\ninterface ethernet1/1/1\n \
         priority-flow-control mode on"
    );
}

#[test]
fn fixes_of_eos_are_in_the_profile_of_the_port() {
    assert!(check(&[], &[switch(EOS)], asked(24)).is_empty());
    let unmarked = EOS
        .lines()
        .filter(|line| !line.contains("random-detect"))
        .fold(String::new(), |text, line| text + line + "\n");
    let own = fix(&unmarked, 24, "switch-ecn-off");
    assert!(
        own.starts_with("qos profile EDGE\n   uc-tx-queue 3\n      random-detect ecn"),
        "{own}"
    );
    let lossy = with(EOS, "   priority-flow-control priority 3 no-drop\n", "");
    assert_eq!(
        fix(&lossy, 24, "switch-pfc-off"),
        "qos profile EDGE\n   priority-flow-control on\n   priority-flow-control priority 3 no-drop"
    );
}
