//! Crates without input, output, clocks and threads: their results depend on their arguments alone, so that a
//! simulation is repeatable and a parser is safe to call from anywhere. The compiler enforces it.

use crate::{File, Finding, Tree};

/// The crates that take time, randomness and input as arguments.
pub const SANS_IO: &[&str] = &["wire", "rnic", "fabric"];

/// Functions that they must not call, even where `std` is available (tests excepted, which allow them).
pub const DISALLOWED: &[&str] = &[
    "std::env::args",
    "std::env::var",
    "std::env::var_os",
    "std::fs::File::create",
    "std::fs::File::open",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::net::TcpListener::bind",
    "std::net::TcpStream::connect",
    "std::net::UdpSocket::bind",
    "std::process::Command::new",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
];

/// `#![no_std]`, `#![forbid(unsafe_code)]`, and a `clippy.toml` that names what is not to be called.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in SANS_IO {
        let Some(root) = tree.file(&format!("core/{name}/src/lib.rs")) else {
            continue;
        };
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !root.text.lines().any(|line| line == attribute) {
                findings.push(root.finding(0, format!("a sans-IO crate has {attribute}")));
            }
        }
        let path = format!("core/{name}/clippy.toml");
        let config = tree
            .file(&path)
            .cloned()
            .unwrap_or_else(|| File::new(&path, ""));
        for method in DISALLOWED {
            if !config.text.contains(&format!("\"{method}\"")) {
                findings.push(config.finding(0, format!("name {method} under disallowed-methods")));
            }
        }
    }
    findings.extend(std_by_the_back_door(tree));
    findings
}

/// `extern crate std` only for tests.
fn std_by_the_back_door(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        if !SANS_IO
            .iter()
            .any(|name| file.path.starts_with(&format!("core/{name}/src/")))
        {
            continue;
        }
        let mut before = "";
        for (index, line) in file.text.lines().enumerate() {
            if line.contains("extern crate std") && before.trim() != "#[cfg(test)]" {
                findings.push(file.finding(index + 1, "std is for tests only: #[cfg(test)] above"));
            }
            before = line;
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! X.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    fn config() -> String {
        DISALLOWED
            .iter()
            .map(|method| format!("\"{method}\",\n"))
            .collect()
    }

    fn findings(root: &str, config: &str) -> usize {
        check(&Tree::of(&[
            ("core/wire/src/lib.rs", root),
            ("core/wire/clippy.toml", config),
        ]))
        .len()
    }

    #[test]
    fn each_thing_that_is_missing_is_found() {
        assert_eq!(findings(ROOT, &config()), 0);
        assert_eq!(findings("#![no_std]", &config()), 1);
        assert_eq!(findings("#![forbid(unsafe_code)]", &config()), 1);
        assert_eq!(findings(ROOT, ""), DISALLOWED.len());
        assert_eq!(findings(&format!("{ROOT}extern crate std;"), &config()), 1);
        assert_eq!(
            findings(&format!("{ROOT}#[cfg(test)]\nextern crate std;"), &config()),
            0
        );
    }
}
