//! Targets of the Makefile that build for users.

use std::process::Command;

use programs::rockery::RELEASE;

/// The arguments of the only call of `cargo build` of a target: the programs that it names, and the others.
fn build_of(target: &str) -> (Vec<String>, Vec<String>) {
    let mut make = Command::new("make");
    make.args(["--dry-run", "CARGO=cargo", target])
        .env_remove("MAKEFLAGS")
        .env_remove("BUILT")
        .current_dir(programs::workspace());
    let output = make.output().expect("make");
    let printed = String::from_utf8_lossy(&output.stdout).replace("\\\n", " ");
    let calls: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("cargo build "))
        .collect();
    let [call] = calls[..] else {
        panic!("make {target} does not call cargo build once: {printed}");
    };
    programs_and_others(call.split_whitespace())
}

fn programs_and_others<'a>(words: impl Iterator<Item = &'a str>) -> (Vec<String>, Vec<String>) {
    let (mut programs, mut others) = (Vec::new(), Vec::new());
    let mut words = words.map(str::to_owned);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bin" => programs.extend(words.next()),
            _ => others.push(word),
        }
    }
    (programs, others)
}

/// With other packages cargo would choose other features, and compile most of the workspace again.
#[test]
fn make_demo_install_and_bench_compile_the_same_packages() {
    let (programs, others) = programs_and_others(RELEASE.iter().copied());
    let installed = ["rockery", "rockery-bench", "rockery-device-plugin"];
    assert_eq!(programs, installed);
    for (target, its_programs) in [
        ("demo", &["rockery", "demo"][..]),
        ("install", &installed),
        (
            "bench",
            &["rockery", "rockery-bench", "limits-bench", "world-bench"],
        ),
    ] {
        let found = build_of(target);
        assert_eq!(found.1, others, "make {target}");
        assert_eq!(found.0, its_programs, "make {target}");
    }
}
