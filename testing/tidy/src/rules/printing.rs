//! Output of libraries. Standard output is the program's own, and `eprintln!` panics where standard error is
//! a pipe that no process reads any more.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// Wings of libraries that programs load.
const LIBRARIES: &[&str] = &["core/", "device/"];

/// Macros that print, and panic where they cannot.
const MACROS: &[&str] = &["print", "println", "eprint", "eprintln"];

/// Macros that print, in libraries. Their tests may, and build scripts talk to cargo.
pub fn not_by_macros(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let is_library = LIBRARIES.iter().any(|wing| file.path.starts_with(wing));
        if !is_library || !file.path.contains("/src/") {
            continue;
        }
        let end = file.text.lines().position(|line| line == "#[cfg(test)]");
        let Ok(tokens) = Tokens::of(&file.text) else {
            continue;
        };
        for (name, line) in tokens.macros() {
            if MACROS.contains(&name.as_str()) && end.is_none_or(|end| line <= end) {
                findings.push(file.finding(line, format!("{name}! may panic: use host::note")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_macro_is_found_in_libraries_alone() {
        let text = "fn a() { print!(\"a\"); println!(); eprint!(\"b\"); eprintln!(); }\n\
                    #[cfg(test)]\nmod tests { fn b() { println!(); } }\n";
        let found = |path| not_by_macros(&Tree::of(&[(path, text)])).len();
        assert_eq!(found("device/verbs/src/open.rs"), 4);
        assert_eq!(found("device/abi/symbols/generate.rs"), 0);
        assert_eq!(found("apps/rockery/src/run.rs"), 0);
    }
}
