//! Processors that the drop-in libraries are built for, and what is said of others.

#[path = "../symbols/architecture.rs"]
mod architecture;

use architecture::Architecture;

#[test]
fn processors_without_assembly_are_refused_with_a_sentence() {
    for (target, known) in [
        ("x86_64-unknown-linux-gnu", Architecture::X86_64),
        ("aarch64-unknown-linux-gnu", Architecture::Aarch64),
    ] {
        assert_eq!(Architecture::of(target), Ok(known));
    }
    for target in [
        "riscv64gc-unknown-linux-gnu",
        "powerpc64le-unknown-linux-gnu",
        "s390x-unknown-linux-gnu",
        "aarch64_be-unknown-linux-gnu",
        "x86_64-unknown-linux-musl",
    ] {
        let refused = Architecture::of(target).expect_err(target);
        assert!(
            refused.contains("64-bit ARM") && refused.ends_with(target),
            "{refused}"
        );
    }
}

/// A build script is told its target by cargo.
#[test]
fn a_build_script_asks_for_its_own_target() {
    let of_this_test = Architecture::of_target().map_err(drop);
    assert_eq!(
        of_this_test,
        Err(()),
        "no target is named outside of a build script"
    );
}
