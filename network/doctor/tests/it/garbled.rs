//! Garbled configurations: an error that names a line, or an intent; never a panic.

use proptest::prelude::*;
use vendors::{Dialect, Intent};

/// A change of a text.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Replace(usize, char),
    Swap(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..4000_usize).prop_map(Damage::Cut),
        (0..4000_usize, any::<char>()).prop_map(|(at, letter)| Damage::Replace(at, letter)),
        (0..200_usize, 0..200_usize).prop_map(|(one, other)| Damage::Swap(one, other)),
    ]
}

fn damaged(text: &str, damages: &[Damage]) -> String {
    let mut text = text.to_owned();
    for damage in damages {
        match *damage {
            Damage::Cut(at) => text = text.chars().take(at.max(1)).collect(),
            Damage::Replace(at, letter) => {
                text = text
                    .chars()
                    .enumerate()
                    .map(|(place, own)| if place == at { letter } else { own })
                    .collect();
            }
            Damage::Swap(one, other) => {
                let mut lines: Vec<&str> = text.lines().collect();
                if one < lines.len() && other < lines.len() {
                    lines.swap(one, other);
                }
                text = lines.join("\n");
            }
        }
    }
    text
}

/// Commands whose outputs are read, one in each line. The fuzz target `shown` has the same file.
const COMMANDS: &str = include_str!("../shown-commands.txt");

/// Lines with the words and signs that readers look for, in any order.
fn shown_line() -> impl Strategy<Value = String> {
    let words = [
        "Ethernet1/1",
        "Et1",
        "Port",
        "Enabled",
        "Priorities",
        "Active",
        "---------",
        "On",
        "Off",
        "(8)",
        "|",
        "QOS GROUP 3",
        "Dropped Pkts",
        "12",
        "99999999999999999999",
        "-1",
        "{",
        "}",
        "\"pfc\":",
        "\"interfaces\":",
        "[",
        "]",
        "# NAME",
        "TRUST-L3",
        "PFC",
        "0",
        "name:",
        "pfc3-use:",
        "drop-queue3-packet:",
        "traffic-class=3",
        "tx=yes",
        "dscp=26",
        "Admin Mode: On",
        "Oper Mode: On",
        "VL bitmap: (8)",
        "Class-map (queuing):",
        "c-out-8q-q3",
        "random-detect",
        "ecn",
        "traffic-class",
        "ECN",
        "enable",
        "3",
        "0-7",
        "  ",
        "é",
        "\t",
    ];
    let word = proptest::sample::select(words.to_vec());
    proptest::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn garbled_configurations_name_a_line(
        which in 0..Dialect::ALL.len(),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let dialect = Dialect::ALL[which];
        let text = dialect.write(&Intent::default(), dialect.versions().1).text;
        let text = damaged(&text, &damages);
        if let Err(error) = dialect.read_groups("leaf", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{}", error);
            let start = format!("cannot read line {} of leaf: ", error.line);
            prop_assert!(error.to_string().starts_with(&start), "{}", error);
        }
    }

    #[test]
    fn garbled_snapshots_name_a_line(damages in proptest::collection::vec(damage(), 1..4)) {
        let text = damaged(include_str!("../hosts/mlx5.txt"), &damages);
        if let Err(error) = vendors::read_host("host", &text) {
            let start = format!("cannot read line {} of host: ", error.line);
            prop_assert!(error.to_string().starts_with(&start), "{}", error);
        }
    }

    #[test]
    fn anything_below_a_command_names_a_line_or_is_skipped(
        command in prop::sample::select(COMMANDS.lines().collect::<Vec<_>>()),
        lines in proptest::collection::vec(shown_line(), 0..12),
    ) {
        let text = format!("==> {command} <==\n{}\n", lines.join("\n"));
        if let Err(error) = doctor::read_switch("switch", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count(), "{}", error);
            let start = format!("cannot read line {} of switch: ", error.line);
            prop_assert!(error.to_string().starts_with(&start), "{}", error);
        }
    }

    #[test]
    fn garbled_outputs_of_switches_name_a_line(
        which in 0..9_usize,
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let texts = [
            include_str!("../switches/sonic.txt"),
            include_str!("../switches/eos.txt"),
            include_str!("../switches/nxos.txt"),
            include_str!("../switches/nvue.txt"),
            include_str!("../switches/eos-status.txt"),
            include_str!("../switches/eos-json.txt"),
            include_str!("../switches/nxos-queuing.txt"),
            include_str!("../switches/nvue-json.txt"),
            include_str!("../switches/routeros.txt"),
        ];
        let text = damaged(texts[which], &damages);
        if let Err(error) = doctor::read_switch("switch", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{}", error);
            let start = format!("cannot read line {} of switch: ", error.line);
            prop_assert!(error.to_string().starts_with(&start), "{}", error);
        }
    }
}
