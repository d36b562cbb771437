//! SONiC's tables.

use super::build_with;
use fabric::config::{ALPHA_ONE, Limit};
use fabric::vendor::sonic::read;

const CONFIG: &str = include_str!("../../../../examples/sonic/config_db.json");

const LAB: &str = r#"
[[host]]
name = "h"
count = 2
[[switch]]
name = "sw"
sonic = "config_db.json"
[[link]]
between = ["h0", "sw:Ethernet4"]
length = "5m"
[[link]]
between = ["h1", "sw:Ethernet12"]
length = "5m"
"#;

#[test]
fn its_default_maps_do_not_know_dscp_26() {
    let network = build_with(LAB, &[("config_db.json", CONFIG)]).unwrap();
    let switch = &network.switches[0];
    assert_eq!(switch.ports, ["Ethernet4", "Ethernet12"]);
    let profile = &switch.config.profiles[0];
    assert!(profile.map.trust_dscp && !profile.map.trust_pcp);
    assert_eq!([3, 4, 26, 46, 48].map(|dscp| profile.map.dscp[dscp].class), [3, 4, 1, 5, 6]);
    assert_eq!((profile.pfc.send, profile.pfc.obey), (0b11000, 0b11000));
    assert_eq!((profile.queues[0].weight, profile.queues[3].weight), (14, 15));
    let red = profile.queues[4].red.unwrap();
    assert_eq!((red.min_bytes, red.max_bytes, red.mark, red.drop), (1 << 20, 2 << 20, true, false));
    assert_eq!(profile.groups[3].limit, Limit::Dynamic(ALPHA_ONE / 8));
    assert_eq!((profile.groups[3].headroom_bytes, profile.groups[0].headroom_bytes), (177_152, 0));
    assert_eq!(profile.groups[0].limit, Limit::Dynamic(ALPHA_ONE * 8));
    assert_eq!(switch.config.buffer.total_bytes, 16_000_000);
    assert_eq!(switch.config.buffer.headroom_pool_bytes, Some(2_000_000));
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    for (from, to, expected) in [
        (
            "\"dscp_to_tc_map\": \"AZURE\"",
            "\"dscp_to_tc_map\": \"AZUR\"",
            "DSCP_TO_TC_MAP has no entry \"AZUR\"; did you mean",
        ),
        ("\"pfc_enable\": \"3,4\"", "\"pfc_enable\": \"3,9\"", "config_db.json:21: "),
        ("\"type\": \"DWRR\", \"weight\": \"14\"", "\"type\": \"DRR\"", "\"DRR\" is no type of scheduler"),
        ("\"dynamic_th\": \"-3\"", "\"dynamic_th\": \"99\"", "dynamic_th \"99\" is no power"),
        (
            "\"WRED_PROFILE\"",
            "\"WRED_PROFILES\"",
            "config_db.json:29: WRED_PROFILES: this QoS table is not understood",
        ),
        ("\"PORT_QOS_MAP\": {", "\"PORT_QOS_MAP\": [", "no JSON"),
        (
            "\"26\": \"1\"",
            "\"26\": \"one\"",
            "config_db.json:3: DSCP_TO_TC_MAP AZURE 26: \"one\" is no number",
        ),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let error = read("config_db.json", &CONFIG.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}\n{error}");
    }
}
