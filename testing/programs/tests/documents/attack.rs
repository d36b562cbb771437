//! The attacks of `make attack` in their short form: no victim loses more than the attack's bound allows.

use std::process::Command;

#[test]
fn no_attack_exceeds_its_memory_and_descriptor_limits() {
    let attack = Command::new(env!("CARGO_BIN_EXE_attack")).arg("--short").output().expect("it starts");
    let said = String::from_utf8_lossy(&attack.stdout);
    let errors = String::from_utf8_lossy(&attack.stderr);
    assert!(attack.status.success(), "{said}{errors}");
    assert!(said.lines().count() >= 26, "an attack was not tried:\n{said}");
}
