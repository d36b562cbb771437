//! A SONiC switch whose configuration is in several files: what is in which file does not matter, and each
//! line is named with its own file.

use super::inputs::{asked, rules, with};
use doctor::{SwitchFacts, check, read_switch, read_switch_files};

const CONFIG_DB: &str = r#"{
  "DEVICE_METADATA": { "localhost": { "hostname": "tor" } },
  "PORT": {
    "Ethernet0": { "speed": "100000", "mtu": "9100" },
    "Ethernet4": { "speed": "100000", "mtu": "9100", "admin_status": "down" }
  }
}"#;

const QOS: &str = r#"{
  "DSCP_TO_TC_MAP": { "M": { "26": "3" } },
  "TC_TO_PRIORITY_GROUP_MAP": { "M": { "3": "3" } },
  "PORT_QOS_MAP": {
    "Ethernet0": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" },
    "Ethernet4": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" }
  },
  "WRED_PROFILE": { "W": { "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" } },
  "QUEUE": { "Ethernet0|3": { "wred_profile": "W" }, "Ethernet4|3": { "wred_profile": "W" } }
}"#;

const BUFFERS: &str = r#"{
  "CABLE_LENGTH": { "AZURE": { "Ethernet0": "40m", "Ethernet4": "40m" } },
  "BUFFER_POOL": { "ingress_lossless_pool": { "type": "ingress", "mode": "dynamic", "size": "12766208" } },
  "BUFFER_PROFILE": {
    "lossless": { "pool": "ingress_lossless_pool", "size": "1248", "xon": "2288", "xoff": "177632",
      "dynamic_th": "-3" }
  },
  "BUFFER_PG": { "Ethernet0|3": { "profile": "lossless" }, "Ethernet4|3": { "profile": "lossless" } }
}"#;

const PLATFORM: &str = "# name      lanes    alias     index  speed
Ethernet0   1,2,3,4  hundred1  1      100000
Ethernet4   5,6,7,8  hundred2  2      100000
";

fn read(files: &[(&str, &str)]) -> SwitchFacts {
    let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
    let files: Vec<(String, String)> = files.iter().map(own).collect();
    read_switch_files(&files).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_files_of_a_switch_are_one_configuration_in_any_order() {
    let whole = format!(
        "{},{},{}",
        CONFIG_DB.trim_end_matches("\n}"),
        QOS.trim_start_matches('{').trim_end_matches("\n}"),
        BUFFERS.trim_start_matches('{')
    );
    let whole = read_switch("whole.json", &whole).expect("it is read");
    assert!(whole.left.is_empty(), "{:?}", whole.left);
    let files = [
        ("config_db.json", CONFIG_DB),
        ("qos.json", QOS),
        ("buffers.json", BUFFERS),
    ];
    for turn in 0..files.len() {
        let mut files = files;
        files.rotate_left(turn);
        let parts = read(&files);
        assert!(parts.left.is_empty(), "{:?}", parts.left);
        assert_eq!(parts.groups, whole.groups);
        assert_eq!(parts.pools, whole.pools);
        // One port is down.
        assert_eq!(parts.not_judged.len(), whole.not_judged.len());
        let line = &parts.not_judged[0];
        assert_eq!((line.file.as_str(), line.line), ("config_db.json", 5));
        assert!(check(&[], &[parts], asked(26)).is_empty());
    }
}

#[test]
fn ports_and_their_speed_may_be_those_of_the_platform() {
    let parts = read(&[
        ("qos.json", QOS),
        ("buffers.json", BUFFERS),
        ("port_config.ini", PLATFORM),
    ]);
    assert!(parts.left.is_empty(), "{:?}", parts.left);
    let ports = parts.groups.iter().flat_map(|group| &group.ports);
    let ports: Vec<_> = ports.map(|port| (port.name.as_str(), port.mbps)).collect();
    assert_eq!(
        ports,
        [("Ethernet0", Some(100_000)), ("Ethernet4", Some(100_000))]
    );
    assert!(check(&[], &[parts], asked(26)).is_empty());
    // The database has the last word.
    let slower = with(CONFIG_DB, "100000", "25000");
    let parts = read(&[
        ("config_db.json", &slower),
        ("qos.json", QOS),
        ("port_config.ini", PLATFORM),
    ]);
    assert_eq!(parts.groups[0].ports[0].mbps, Some(25_000));
    let cut = PLATFORM.replace(
        "5,6,7,8  hundred2  2      100000",
        "5,6,7,8 a 2 100000 rs x",
    );
    let files = [("qos.json", QOS), ("port_config.ini", cut.as_str())];
    let files = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
    let error = read_switch_files(&files)
        .expect_err("a row with more columns")
        .to_string();
    assert!(error.contains("line 3 of port_config.ini: "), "{error}");
}

#[test]
fn lines_are_named_with_the_file_that_they_are_in() {
    let wrong = with(QOS, "\"26\": \"3\"", "\"26\": \"1\"");
    let parts = read(&[
        ("config_db.json", CONFIG_DB),
        ("qos.json", &wrong),
        ("buffers.json", BUFFERS),
    ]);
    let found = check(&[], &[parts], asked(26));
    assert_eq!(rules(&found), ["switch-dscp-map"]);
    let seen = &found[0].evidence[0];
    assert_eq!((seen.file.as_str(), seen.line), ("qos.json", 2), "{seen:?}");
    assert!(
        found[0]
            .place
            .contains("config_db.json + qos.json + buffers.json")
    );
    let odd = with(BUFFERS, "\"177632\"", "\"much\"");
    let parts = read(&[
        ("config_db.json", CONFIG_DB),
        ("qos.json", QOS),
        ("buffers.json", &odd),
    ]);
    let named: Vec<_> = parts
        .left
        .iter()
        .map(|line| (line.file.as_str(), line.line))
        .collect();
    assert_eq!(named, [("buffers.json", 5)], "{:?}", parts.left);
}
