//! NVUE as other people have it: commands that take settings back, profiles, YAML.

use doctor::{check, judged_switch};
use vendors::{Area, Intent};

use super::inputs::{asked, only, ports, switch};

#[test]
fn nvue_has_no_roce_where_it_is_off() {
    let off = "nv set qos roce mode lossless\nnv set qos roce enable off\nnv set interface swp1\n";
    let read = only(off);
    assert_eq!((read.pfc_send, read.trust.dscp()), (0, false));
    let again = format!("{off}nv set qos roce enable on\n");
    assert_eq!(only(&again).pfc_send, 1 << 3);
    let found = check(&[], &[switch(off)], asked(26));
    assert!(!found.is_empty(), "a switch without RoCE has a finding");
}

#[test]
fn nvue_takes_back_what_is_unset() {
    let set = "nv set qos roce mode lossless
nv set qos mapping default-global dscp 24,26 switch-priority 3
nv set router adaptive-routing enable on
nv set interface swp1-4 router adaptive-routing enable on
nv set interface swp1-4 link mtu 9216
";
    let of = |text: &str| {
        let read = switch(&format!("{set}{text}"));
        assert!(read.left.is_empty(), "{text}: {:?}", read.left);
        read.groups
    };
    let [all] = &of("nv unset system hostname\n")[..] else {
        panic!("one group");
    };
    assert_eq!((all.pfc_send, ports(all).len()), (1 << 3, 4));
    assert_eq!(of("nv unset qos roce\n")[0].pfc_send, 0);
    assert_eq!(of("nv unset qos\n")[0].pfc_send, 0);
    let again = of("nv unset qos roce\nnv set qos roce\n");
    assert_eq!(again[0].pfc_send, 1 << 3);
    let one_path = of("nv unset router adaptive-routing\n")[0].spread;
    assert_ne!(one_path, of("")[0].spread);
    assert_eq!(
        one_path,
        only("nv set interface swp1 link mtu 9216\n").spread
    );
    // Interfaces are taken out of a range, and those without a setting are not there.
    let groups = of("nv unset interface swp2-3 link mtu\n");
    let mtu = |name: &str| {
        let own = groups.iter().find(|group| ports(group).contains(&name));
        own.map(|group| group.mtu)
    };
    assert_eq!(mtu("swp1"), Some(9216));
    assert_eq!(of("nv unset interface swp2\n")[0].ports.len(), 3);
    // A part of a list is named, with what is unknown by it.
    let part = switch(&format!(
        "{set}nv unset qos mapping default-global dscp 26\n"
    ));
    assert_eq!((part.left.len(), part.left[0].line), (1, 6));
    assert!(part.left[0].why.contains("some of the values of line 2"));
    assert!(part.groups[0].unknown(Area::Classes).is_some());
}

#[test]
fn nvue_names_a_profile_that_is_not_there() {
    let read = switch(
        "nv set qos pfc storage switch-priority 3
nv set interface swp1 qos pfc profile storage
nv set interface swp2 qos pfc profile stroage
nv set interface swp3 qos pfc profile default-global
",
    );
    let left: Vec<&str> = read.left.iter().map(|left| left.why.as_str()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(
        left[0].ends_with("no pfc profile is called stroage"),
        "{left:?}"
    );
    let said = judged_switch(&read, &[], asked(26));
    let unknown = "swp2: PFC unknown (line 3 was not understood)";
    assert!(
        said.iter().any(|own| own.text.starts_with(unknown)),
        "{said:?}"
    );
}

#[test]
fn nvue_profiles_pools_and_yaml() {
    let profiles = "nv set qos mapping STORAGE trust both
nv set qos mapping STORAGE dscp 26 switch-priority 3
nv set qos pfc default-global switch-priority 3
nv set interface swp1 qos mapping profile STORAGE
nv set interface swp2 link mtu 9216
nv set system hostname leaf
";
    let read = switch(profiles);
    assert!(read.left.is_empty(), "{:?}", read.left);
    let group = |name: &str| {
        let own = |group: &&Intent| ports(group).contains(&name);
        read.groups.iter().find(own).expect("it has the port")
    };
    assert!(group("swp1").trust.dscp() && !group("swp2").trust.dscp());
    let commands = "nv set qos roce
nv set qos traffic-pool roce-lossless memory-percent 60
nv set interface swp1-4 link mtu 9216
";
    let yaml = "- set:
    qos:
      roce:
        enable: on
        mode: lossless
      traffic-pool:
        roce-lossless:
          memory-percent: 60
    interface:
      swp1-4:
        link:
          mtu: 9216
        type: swp
";
    assert_eq!(only(commands), only(yaml));
    assert_eq!(only(yaml).pfc_send, 1 << 3);
    let keys = "- set:
    qos:
      pfc:
        default-global:
          switch-priority:
            '5': {}
    interface:
      swp1: {}
";
    assert_eq!(only(keys).pfc_send, 1 << 5);
}
