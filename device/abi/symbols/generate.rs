//! Generates exported names with versions from a table of symbols. Used by the build scripts of the drop-in
//! libraries.
//!
//! The Rust compiler exports names without versions, and `dlvsym` does not find those. So the exported
//! names are labels in assembly, each a jump to a Rust function, with `.symver` beside them: it has to
//! be in the object that defines the label. The version script defines the nodes; the compiler's own script
//! exports the labels.

use crate::architecture::Architecture;
use std::error::Error;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

/// The private nodes of libibverbs that exist or may come to exist. rdma-core names the node after the
/// release that last changed its private functions: 25 is that of rdma-core 28 (Ubuntu 20.04), 65 that of
/// rdma-core 65. A program that needs a node which its library does not define is refused by the dynamic
/// loader, so nodes of releases to come are defined in advance, each with all private names that are known.
const PRIVATE_NODES: RangeInclusive<u32> = 25..=99;
/// The node that most distributions have (rdma-core 34 to 56). Its version is the default one, which
/// references without a version are bound to.
const PRIVATE_DEFAULT: u32 = 34;
/// In a table: every private node.
const EVERY_PRIVATE: &str = "PRIVATE_*";

/// A row of a table: an exported name, its versions, and the kind of its implementation.
struct Symbol<'a> {
    name: &'a str,
    node: &'a str,
    answer: &'a str,
}

impl Symbol<'_> {
    /// The names and version nodes under which the symbol is exported, in the form of `.symver`. Of a name in
    /// several public nodes the last one is the default.
    fn versions(&self, later: &[Symbol<'_>]) -> Vec<String> {
        let Some(family) = self.node.strip_suffix(EVERY_PRIVATE) else {
            let at = if later.iter().any(|later| later.name == self.name) {
                "@"
            } else {
                "@@"
            };
            return vec![format!("{}{at}{}", self.name, self.node)];
        };
        let version = |number: u32| {
            // A provider's library calls the registration function of its own release.
            let name = self.name.replace('*', &number.to_string());
            let at = if number == PRIVATE_DEFAULT || name != self.name {
                "@@"
            } else {
                "@"
            };
            format!("{name}{at}{family}PRIVATE_{number}")
        };
        PRIVATE_NODES.map(version).collect()
    }
}

/// Writes `symbols.rs` and the version script of the library whose table is `table`, and passes the linker
/// its options.
pub(crate) fn generate(
    architecture: Architecture,
    table: &str,
    soname: &str,
) -> Result<(), Box<dyn Error>> {
    let path = format!("../abi/symbols/{table}.tsv");
    println!("cargo:rerun-if-changed={path}");
    println!("cargo:rerun-if-changed=../abi/symbols/generate.rs");
    let text = std::fs::read_to_string(&path)?;
    let symbols = text
        .lines()
        .skip(1)
        .map(parse)
        .collect::<Result<Vec<_>, _>>()?;
    let out = std::env::var("OUT_DIR")?;
    let text = trampolines(architecture, &symbols)?;
    std::fs::write(Path::new(&out).join("symbols.rs"), text)?;
    let script = Path::new(&out).join("versions.map");
    std::fs::write(&script, versions(&symbols)?)?;
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    use_rusts_linker(architecture)
}

/// Links with the LLD that comes with the compiler, as the compiler does by itself on x86-64: it passes a
/// version script without names of versions, and GNU's linker refuses another one beside it. The linker of
/// zig, with which packages are made, is LLD.
fn use_rusts_linker(architecture: Architecture) -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if architecture == Architecture::X86_64 || variable("RUSTC_LINKER").contains("zig") {
        return Ok(());
    }
    let sysroot = Command::new(std::env::var("RUSTC")?)
        .args(["--print", "sysroot"])
        .output()?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(variable("HOST"))
        .join("bin/gcc-ld");
    if folder.join("ld.lld").exists() {
        println!("cargo:rustc-cdylib-link-arg=-B{}", folder.display());
    }
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    Ok(())
}

fn parse(line: &str) -> Result<Symbol<'_>, String> {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields[..] {
        [name, node, answer] => Ok(Symbol { name, node, answer }),
        _ => Err(format!("symbol, node and answer expected, not {line:?}")),
    }
}

/// Calls a function in which a program may wait, on x86-64: if its thread was cancelled there, the C library
/// goes on to end the thread, when no frame of ours is left on the stack.
const WAITS_X86_64: &[&str] = &[
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {target}",
    "mov [rsp], rax",
    "call {cancelled}",
    "test rax, rax",
    "jne 2f",
    "mov rax, [rsp]",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    "2:",
    ".cfi_adjust_cfa_offset 8",
    "lea rdi, [rax + {buffer}]",
    "call qword ptr [rax]",
    ".cfi_endproc",
];

/// The same for 64-bit ARM, where a call leaves its way back in a register and not on the stack.
const WAITS_AARCH64: &[&str] = &[
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset x29, -32",
    ".cfi_offset x30, -24",
    "mov x29, sp",
    "bl {target}",
    "str x0, [sp, #16]",
    "bl {cancelled}",
    "cbnz x0, 2f",
    "ldr x0, [sp, #16]",
    ".cfi_remember_state",
    "ldp x29, x30, [sp], #32",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_def_cfa_offset 0",
    "ret",
    "2:",
    ".cfi_restore_state",
    "ldr x9, [x0]",
    "add x0, x0, #{buffer}",
    "blr x9",
    ".cfi_endproc",
];

/// One `global_asm!` per symbol. `here` is a function of that name in `crate::exports`, `waits` is one that
/// is a cancellation point, `flag` is a byte, anything else names a function in `crate::absent`.
fn trampolines(
    architecture: Architecture,
    symbols: &[Symbol<'_>],
) -> Result<String, std::fmt::Error> {
    let (jump, waits) = match architecture {
        Architecture::X86_64 => ("jmp {target}", WAITS_X86_64),
        Architecture::Aarch64 => ("b {target}", WAITS_AARCH64),
    };
    let mut text = String::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let label = format!("rockery_symbol_{index}");
        let target = match symbol.answer {
            "flag" => None,
            "here" | "waits" => Some(format!("exports::{}", symbol.name)),
            answer => Some(format!("absent::{answer}")),
        };
        let (section, kind) = match target {
            Some(_) => (format!(".text.{label},\\\"ax\\\",@progbits"), "function"),
            None => (format!(".data.{label},\\\"aw\\\",@progbits"), "object"),
        };
        let body = if target.is_some() { jump } else { ".byte 0" };
        writeln!(text, "core::arch::global_asm!(")?;
        writeln!(text, "    \".pushsection {section}\",")?;
        writeln!(text, "    \".globl {label}\", \".type {label},@{kind}\",")?;
        if symbol.answer == "waits" {
            writeln!(text, "    \"{label}:\",")?;
            waits
                .iter()
                .try_for_each(|line| writeln!(text, "    \"{line}\","))?;
        } else {
            writeln!(text, "    \"{label}: {body}\",")?;
        }
        writeln!(text, "    \".size {label}, . - {label}\",")?;
        for version in symbol.versions(&symbols[index + 1..]) {
            writeln!(text, "    \".symver {label},{version}\",")?;
        }
        writeln!(text, "    \".popsection\",")?;
        if let Some(target) = target {
            writeln!(text, "    target = sym crate::{target},")?;
        }
        if symbol.answer == "waits" {
            writeln!(text, "    cancelled = sym ffi::cancelled,")?;
            writeln!(text, "    buffer = const ffi::UNWIND_BUFFER,")?;
        }
        writeln!(text, ");")?;
    }
    Ok(text)
}

/// The family of a node: its name without the number. A public node inherits from the one before it in the
/// family.
fn family(node: &str) -> &str {
    node.rsplit_once('_').map_or(node, |(family, _)| family)
}

/// Public nodes inherit, each from the one before it; private ones stand alone. The nodes list no names: the
/// labels carry their versions.
fn versions(symbols: &[Symbol<'_>]) -> Result<String, std::fmt::Error> {
    let mut nodes: Vec<&str> = Vec::new();
    for symbol in symbols {
        if !nodes.contains(&symbol.node) {
            nodes.push(symbol.node);
        }
    }
    let mut text = String::new();
    for (index, node) in nodes.iter().enumerate() {
        if let Some(prefix) = node.strip_suffix(EVERY_PRIVATE) {
            for number in PRIVATE_NODES {
                writeln!(text, "{prefix}PRIVATE_{number} {{}};")?;
            }
            continue;
        }
        let before = nodes[..index]
            .iter()
            .rev()
            .find(|before| family(before) == family(node));
        writeln!(text, "{node} {{}} {};", before.unwrap_or(&""))?;
    }
    Ok(text)
}
