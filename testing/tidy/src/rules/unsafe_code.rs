//! Where unsafe code is allowed, and the reasons that have to be stated there.

use crate::rust::{Tokens, Unsafe};
use crate::{File, Finding, Tree};

/// The modules that may hold unsafe code, by the beginning of their path, and what they need it for.
pub const UNSAFE_MODULES: &[(&str, &str)] = &[
    ("core/link/src/sys/", "system calls and shared rings"),
    (
        "core/os/src/",
        "interfaces of Linux that several crates use",
    ),
    (
        "device/environment/src/",
        "variables of C, and the auxiliary vector",
    ),
    (
        "device/host/src/sys/",
        "application memory, shared memory, system calls",
    ),
    (
        "device/host/tests/it/sys.rs",
        "shared mappings and Unix sockets, for tests of what peers show and say",
    ),
    (
        "core/rnic/tests/it/capacity.rs",
        "an allocator that counts, for a test",
    ),
    ("storage/nvme/src/sys/", "io_uring, calls on files"),
    (
        "storage/server/src/sys/",
        "the credentials of peers of Unix sockets",
    ),
    (
        "device/buffer/src/sys/",
        "memory of the allocator and mappings",
    ),
    ("network/sim/src/sys/", "instructions that load cache lines"),
    (
        "device/rdma/src/sys/",
        "calls into libibverbs and librdmacm",
    ),
    (
        "device/ffi/src/",
        "the frame of functions that C calls, and errno",
    ),
    ("device/verbs/src/", "the C ABI of libibverbs"),
    (
        "device/verbs/tests/",
        "loading the library and looking for its symbols",
    ),
    ("device/rdmacm/src/", "the C ABI of librdmacm"),
    (
        "device/rsocket/src/",
        "the C ABI of rsockets, and memory that the peer writes",
    ),
    ("device/librdmacm/src/", "the exported names of librdmacm"),
    (
        "examples/ci/rust/src/",
        "registering memory, with someone else's crate",
    ),
    (
        "examples/faults/rust/",
        "a socket of the kind that the standard library does not have, and functions of libibverbs",
    ),
    (
        "device/preload/sysfs/src/",
        "the C library's functions that take a path",
    ),
    (
        "device/preload/sockets/src/",
        "the C library's functions on sockets and descriptors",
    ),
    (
        "device/preload/clock/src/",
        "the C library's functions that read clocks and wait",
    ),
    (
        "network/lab/src/sys/",
        "namespaces, processes, taps, sockets",
    ),
    (
        "apps/playground/src/sys/",
        "memory that a worker of a browser shares with WebAssembly",
    ),
    (
        "apps/rockery/src/sys/",
        "namespaces and mounts of a program that is started",
    ),
    (
        "apps/command/src/sys/",
        "signals, and processes by descriptor",
    ),
];

/// How far above a statement's `unsafe` its reason may begin: the line of a `let`, and attributes.
const REASON_DISTANCE: usize = 3;

/// Unsafe code outside the modules that may hold it.
pub fn only_where_allowed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, tokens) in rust_files(tree) {
        if UNSAFE_MODULES
            .iter()
            .any(|(prefix, _)| file.path.starts_with(prefix))
        {
            continue;
        }
        for (kind, line) in tokens.unsafes() {
            if kind != Unsafe::Type {
                findings.push(file.finding(
                    line,
                    "unsafe code lives in the modules that `tidy` lists (rules/unsafe_code.rs)",
                ));
            }
        }
    }
    findings
}

/// Unsafe code without `SAFETY:`, unsafe functions and traits without `# Safety`.
pub fn has_a_reason(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, tokens) in rust_files(tree) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (kind, line) in tokens.unsafes() {
            let above = lines.get(..line).unwrap_or_default();
            match kind {
                Unsafe::Code if !comment_above(above).contains("SAFETY:") => {
                    findings.push(file.finding(line, "say above it why it is sound: // SAFETY: …"));
                }
                Unsafe::Code if refers_elsewhere(&comment_above(above)) => {
                    findings.push(
                        file.finding(line, "give the reason itself, not where another one is"),
                    );
                }
                Unsafe::Contract
                    if !comment_above(above).contains("# Safety") && !is_private(above) =>
                {
                    findings.push(file.finding(
                        line,
                        "say in its documentation what its users owe: # Safety",
                    ));
                }
                _ => {}
            }
        }
    }
    findings
}

/// Reasons that only refer to another one: `SAFETY: as above`.
const REFERENCES: &[&str] = &[
    "as above",
    "as before",
    "as below",
    "the same",
    "see above",
    "ditto",
    "likewise",
];

fn refers_elsewhere(comment: &str) -> bool {
    let reason = comment
        .rsplit("SAFETY:")
        .next()
        .unwrap_or_default()
        .trim_start()
        .to_lowercase();
    REFERENCES
        .iter()
        .any(|reference| reason.starts_with(reference))
}

fn rust_files(tree: &Tree) -> impl Iterator<Item = (&File, Tokens)> {
    tree.with_extension(&["rs"])
        .filter_map(|file| Some((file, Tokens::of(&file.text).ok()?)))
}

/// The last line of `lines` and the comment above it, a few lines of the same statement between them allowed.
fn comment_above(lines: &[&str]) -> String {
    let is_comment =
        |line: &&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("#[");
    let (last, above) = lines.split_last().unwrap_or((&"", &[]));
    let code = above
        .iter()
        .rev()
        .take_while(|line| !is_comment(line))
        .count();
    if code > REASON_DISTANCE {
        return (*last).to_owned();
    }
    let comment: Vec<&str> = above
        .iter()
        .rev()
        .skip(code)
        .copied()
        .take_while(|line| is_comment(line))
        .collect();
    [comment.concat(), (*last).to_owned()].concat()
}

/// Functions that only their own module calls may say it beside the code.
fn is_private(lines: &[&str]) -> bool {
    lines
        .last()
        .is_some_and(|line| !line.trim_start().starts_with("pub"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYS: &str = "core/link/src/sys/a.rs";

    #[test]
    fn unsafe_code_elsewhere_is_found() {
        let text = "fn a() {\n    // SAFETY: b.\n    unsafe { b() }\n}\ntype C = unsafe fn();";
        assert!(only_where_allowed(&Tree::of(&[(SYS, text)])).is_empty());
        assert_eq!(
            only_where_allowed(&Tree::of(&[("core/wire/src/a.rs", text)])).len(),
            1
        );
    }

    #[test]
    fn unsafe_code_without_a_reason_is_found() {
        let reasons = |text| has_a_reason(&Tree::of(&[(SYS, text)])).len();
        assert_eq!(reasons("// SAFETY: a.\nunsafe impl A for B {}"), 0);
        assert_eq!(reasons("unsafe impl A for B {}"), 1);
        assert_eq!(
            reasons("fn a() {\n// SAFETY: b,\n// and c.\nlet d =\nunsafe { b() };\n}"),
            0
        );
        assert_eq!(
            reasons("// SAFETY: of another.\nfn a() {\n\n\n\nunsafe { b() };\n}"),
            1
        );
        assert_eq!(
            reasons("fn a() {\n// SAFETY: as above.\nunsafe { b() };\n}"),
            1
        );
        assert_eq!(reasons("/// A.\npub unsafe fn a() {}"), 1);
        assert_eq!(
            reasons("/// A.\n///\n/// # Safety\n/// B.\n#[inline]\npub unsafe fn a() {}"),
            0
        );
        assert_eq!(reasons("/// A.\nunsafe fn a() {}"), 0);
    }
}
