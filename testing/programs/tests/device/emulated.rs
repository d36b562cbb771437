//! Test programs of this workspace as programs for 64-bit ARM, in QEMU's user mode: those of the crates
//! without input and output, of shared memory, and of what depends on the size of pages. `make nightly` runs
//! the long forms.

use std::path::{Path, PathBuf};

use programs::emulated::{run, torture};
use programs::{Packages, number};

/// If set, integration tests of the crates run too, which take minutes.
const ALL: &str = "ROCKERY_TEST_ARM_ALL";
/// Tests whose other side is a program of this machine: the dissector.
const WITHOUT: [&str; 2] = ["--skip", "wireshark"];

/// The test programs of a crate's own tests, or of integration tests (`it`).
fn programs(name: &str) -> Vec<PathBuf> {
    let (all, _) = Packages::tests_for_arm();
    let is_named = |path: &Path| {
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        // Behind the name is a hash.
        own.rsplit_once('-').is_some_and(|(begin, _)| begin == name)
    };
    let found: Vec<PathBuf> = all.into_iter().filter(|path| is_named(path)).collect();
    assert!(!found.is_empty(), "no test program is called {name}");
    found
}

/// Runs tests of a program; how many passed.
fn tests(options: &[&str], program: &Path, arguments: &[&str]) -> u64 {
    let said = run(options, program, &[&["-q"], arguments].concat()).expect("tests that pass");
    let result = said.split("test result: ok. ").nth(1);
    let number = result.and_then(|it| it.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{}: {said}", program.display()))
}

/// The same for all test programs with this name.
fn all_tests(options: &[&str], name: &str, arguments: &[&str]) -> u64 {
    let programs = programs(name);
    let passed = programs.iter().map(|it| tests(options, it, arguments));
    passed.sum()
}

#[test]
fn tests_without_input_and_output_pass_on_arm() {
    for name in ["wire", "rnic", "fabric"] {
        let passed = all_tests(&[], name, &WITHOUT);
        assert!(passed > 0, "{name}");
    }
    if std::env::var(ALL).is_ok() {
        assert_eq!(programs("it").len(), 3);
        assert!(all_tests(&[], "it", &WITHOUT) > 100);
    }
}

/// Tests of `link`: rings, and what peers may write into them. One passes a million records, and runs each
/// night.
const RINGS: [&str; 4] = ["memory::", "corrupted_rings::", "--skip", "a_million"];
/// Tests of `host`: copies that a fault ends, tables that others read, and the file of a trace. The emulation
/// does not say which mappings are shared, so tests of those run in the emulated machine alone, by programs.
const TABLES: [&str; 4] = [
    "sys::guarded::",
    "sys::grant_table::",
    "sys::owners::",
    "sys::trace_file::",
];

#[test]
fn rings_tables_and_guarded_copies_work_on_arm() {
    assert!(all_tests(&[], "link", &RINGS) > 5);
    assert!(all_tests(&[], "host", &TABLES) > 5);
    // A processor that has no atomics of one instruction, as the emulator's own has.
    let without = ["-cpu", "cortex-a53"];
    assert!(all_tests(&without, "host", &["sys::guarded::"]) > 2);
    if std::env::var(ALL).is_ok() {
        assert!(all_tests(&[], "link", &["sys::races::", "a_million"]) >= 4);
    }
}

/// The kernel of this machine goes on having small pages; the emulator tells programs of large ones, and maps
/// and unmaps in their units.
#[test]
fn pages_of_64_kib_are_used_as_such() {
    let large = ["-p", "65536"];
    for (name, arguments) in [
        ("os", &[][..]),
        ("buffer", &[]),
        ("link", &RINGS),
        ("host", &TABLES),
    ] {
        let passed = all_tests(&large, name, arguments);
        assert!(passed > 5, "{name}: {passed}");
    }
}

#[test]
fn devices_on_arm_withstand_a_bad_network_and_rings_that_end() {
    torture(number("ROCKERY_TEST_ARM_SEEDS", 100)).expect("devices that withstand it");
}
