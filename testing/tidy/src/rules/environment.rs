//! Variables of the environment. A program with more rights than its user (set-user-ID) must ignore that
//! user's variables, so one crate reads them for all libraries.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// The crate that reads variables.
const READER: &str = "device/environment/src/";

/// Wings of libraries that programs load, and of those that servers and labs are made of.
const LIBRARIES: &[&str] = &["core/", "device/", "network/", "storage/"];

/// Functions that read the environment, of the standard library (with `env` before) and of C.
const READS: &[&str] = &[
    "env::var",
    "env::var_os",
    "env::vars",
    "env::vars_os",
    "env::home_dir",
    "env::temp_dir",
    "getenv",
    "secure_getenv",
    "environ",
];

/// Reads of variables in libraries, outside the crate that reads them. Tests and build scripts may.
pub fn read_in_one_place(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let is_library = LIBRARIES.iter().any(|wing| file.path.starts_with(wing));
        if !is_library || !file.path.contains("/src/") || file.path.starts_with(READER) {
            continue;
        }
        let end = file.text.lines().position(|line| line == "#[cfg(test)]");
        let Ok(tokens) = Tokens::of(&file.text) else {
            continue;
        };
        for (name, line) in tokens.names() {
            let is_read = |read: &&str| match read.split_once("::") {
                Some(_) => name.ends_with(*read),
                None => name.rsplit("::").next() == Some(read),
            };
            if READS.iter().any(is_read) && end.is_none_or(|end| line <= end) {
                let what = format!("`{name}` reads the environment: use environment::variable");
                findings.push(file.finding(line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_read_a_variable_is_found_in_libraries_alone() {
        let text = "use std::env;\nfn a() { std::env::var_os(\"A\"); env::vars(); }\n\
                    fn b() { unsafe { libc::getenv(c\"A\".as_ptr()) }; std::env::temp_dir(); }\n\
                    // std::env::var\nfn c() { environment::variable(\"A\"); std::env::args(); }\n\
                    #[cfg(test)]\nmod tests { fn d() { std::env::temp_dir(); } }\n";
        let found = |path| read_in_one_place(&Tree::of(&[(path, text)])).len();
        assert_eq!(found("device/verbs/src/record.rs"), 4);
        assert_eq!(found("core/link/src/address.rs"), 4);
        assert_eq!(found("network/lab/src/traffic.rs"), 4);
        assert_eq!(found("storage/nvme/src/machine.rs"), 4);
        assert_eq!(found("device/environment/src/lib.rs"), 0);
        assert_eq!(found("device/abi/symbols/generate.rs"), 0);
        assert_eq!(found("device/host/tests/it/trust.rs"), 0);
        assert_eq!(found("apps/rockery/src/run.rs"), 0);
        let names = "use std::env::var_os;\nextern \"C\" { static environ: u8; fn getenv(); }\n";
        let tree = Tree::of(&[("device/host/src/lib.rs", names)]);
        assert_eq!(read_in_one_place(&tree).len(), 3);
    }
}
