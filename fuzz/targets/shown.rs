//! Outputs of switches: the first byte chooses the command, the rest is what it printed. Each reader is
//! reached that way, and the fuzzer need not find its command.
#![no_main]

use gear::doctor::read_switch;

const COMMANDS: &[&str] = &[
    "show priority-flow-control",
    "show qos interfaces ethernet 1 ecn",
    "show qos interfaces ecn",
    "show interfaces | json",
    "show interfaces counters queue detail | json",
    "show qos interfaces ecn counters queue | json",
    "show interface priority-flow-control",
    "show interface priority-flow-control detail",
    "show queuing interface ethernet 1/1",
    "show queuing pfc-queue interface ethernet 1/1 detail",
    "show policy-map interface ethernet 1/1",
    "nv show qos roce",
    "nv show qos roce -o json",
    "nv show interface swp1 qos roce status -o json",
    "nv show qos pfc default-global -o json",
    "nv show qos congestion-control default-global",
    "show pfc priority",
    "show pfcwd stats",
    "show queue counters",
    "show interfaces status",
    "/interface/ethernet/switch/qos/port/print",
    "/interface/ethernet/switch/qos/port/print stats",
    "/interface/ethernet/switch/qos/port/print pfc",
    "/interface/ethernet/switch/qos/profile/print",
    "/interface/ethernet/switch/qos/map/ip/print",
    "/interface/ethernet/switch/qos/priority-flow-control/print detail",
    "/interface/ethernet/switch/qos/tx-manager/queue/print",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let command = COMMANDS[usize::from(*which) % COMMANDS.len()];
    let text = format!("==> {command} <==\n{}", String::from_utf8_lossy(rest));
    if let Err(error) = read_switch("input", &text) {
        assert!(error.to_string().starts_with("cannot read line "), "{error}");
        assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
    }
});
