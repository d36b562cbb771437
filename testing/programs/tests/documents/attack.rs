//! The attacks of `make attack` in their short form: no victim loses more than the attack's bound allows.

use std::process::Command;

#[test]
fn no_attack_exceeds_its_memory_and_descriptor_limits() {
    let attack = Command::new(env!("CARGO_BIN_EXE_attack"))
        .arg("--short")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&attack.stdout);
    let errors = String::from_utf8_lossy(&attack.stderr);
    assert!(attack.status.success(), "{said}{errors}");
    assert!(
        said.lines().count() >= 44,
        "an attack was not tried:\n{said}"
    );
}

/// Attacks whose row describes another attacker or another bound than the program has are missing too.
#[test]
fn the_table_of_attacks_has_a_row_with_a_result_for_each_attack() {
    let list = Command::new(env!("CARGO_BIN_EXE_attack"))
        .arg("--list")
        .output()
        .expect("it starts");
    let list = String::from_utf8(list.stdout).expect("text");
    let path = programs::workspace().join("docs/design/security.md");
    let table = std::fs::read_to_string(path).expect("it is there");
    let rows: Vec<&str> = table.lines().collect();
    let has_result = |attack: &&str| {
        let result = rows
            .iter()
            .find_map(|row| row.strip_prefix(*attack)?.strip_suffix(" |"));
        result.is_some_and(|result| !result.trim().is_empty() && !result.contains("BROKEN"))
    };
    let missing: Vec<&str> = list.lines().filter(|attack| !has_result(attack)).collect();
    assert!(
        list.lines().count() >= 44 && missing.is_empty(),
        "run attack --short --markdown: {missing:#?}"
    );
}
