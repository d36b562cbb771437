//! From a table of symbols to exported names with versions. Used by the build scripts of the drop-in
//! libraries.
//!
//! The Rust compiler exports names without versions, and `dlvsym` does not find those. So the exported
//! names are labels in assembly, each a jump to a Rust function, with `.symver` beside them: it has to
//! stand in the object that defines the label. The version script names the nodes and leaves the rest to
//! the compiler's own.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

struct Symbol<'a> {
    name: &'a str,
    node: &'a str,
    answer: &'a str,
}

/// Writes `symbols.rs` and the version script of `library`, and tells the linker.
pub(crate) fn generate(library: &str, prefix: &str) -> Result<(), Box<dyn Error>> {
    let table = format!("../abi/symbols/{library}.tsv");
    println!("cargo:rerun-if-changed={table}");
    println!("cargo:rerun-if-changed=../abi/symbols/generate.rs");
    let text = std::fs::read_to_string(&table)?;
    let symbols = text.lines().skip(1).map(parse).collect::<Result<Vec<_>, _>>()?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("symbols.rs"), trampolines(&symbols, prefix)?)?;
    let script = Path::new(&out).join("versions.map");
    std::fs::write(&script, versions(&symbols, prefix)?)?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{library}.so.1");
    Ok(())
}

fn parse(line: &str) -> Result<Symbol<'_>, String> {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields[..] {
        [name, node, answer] => Ok(Symbol { name, node, answer }),
        _ => Err(format!("symbol, node and answer expected, not {line:?}")),
    }
}

/// One `global_asm!` per symbol. `here` is a function of that name in `crate::exports`, `flag` is a byte,
/// anything else names a function in `crate::absent`.
fn trampolines(symbols: &[Symbol<'_>], prefix: &str) -> Result<String, std::fmt::Error> {
    let private = format!("{prefix}PRIVATE_");
    let mut text = String::new();
    for (index, Symbol { name, node, answer }) in symbols.iter().enumerate() {
        // A name that stands in several private nodes has one default: that of most distributions.
        let default = !node.starts_with(&private) || node.ends_with("_34") || !listed(symbols, name);
        let at = if default { "@@" } else { "@" };
        let label = format!("rockery_symbol_{index}");
        writeln!(text, "core::arch::global_asm!(")?;
        if *answer == "flag" {
            writeln!(text, "    \".pushsection .data.{label},\\\"aw\\\",@progbits\",")?;
            writeln!(text, "    \".globl {label}\", \".type {label},@object\", \".size {label},1\",")?;
            writeln!(
                text,
                "    \"{label}: .byte 0\", \".symver {label},{name}{at}{node}\", \".popsection\",\n);"
            )?;
            continue;
        }
        let target = match *answer {
            "here" => format!("exports::{name}"),
            answer => format!("absent::{answer}"),
        };
        writeln!(text, "    \".pushsection .text.{label},\\\"ax\\\",@progbits\",")?;
        writeln!(text, "    \".globl {label}\", \".type {label},@function\",")?;
        writeln!(text, "    \"{label}: jmp {{target}}\", \".size {label}, . - {label}\",")?;
        writeln!(text, "    \".symver {label},{name}{at}{node}\", \".popsection\",")?;
        writeln!(text, "    target = sym crate::{target},\n);")?;
    }
    Ok(text)
}

/// Whether the name is in the private node of most distributions.
fn listed(symbols: &[Symbol<'_>], name: &str) -> bool {
    symbols.iter().any(|symbol| symbol.name == name && symbol.node.ends_with("PRIVATE_34"))
}

/// Public nodes inherit, each from the one before it; private ones stand alone.
fn versions(symbols: &[Symbol<'_>], prefix: &str) -> Result<String, std::fmt::Error> {
    let mut nodes: Vec<&str> = Vec::new();
    for symbol in symbols {
        if !nodes.contains(&symbol.node) {
            nodes.push(symbol.node);
        }
    }
    let mut text = String::new();
    let mut before = "";
    for node in nodes {
        writeln!(text, "{node} {{\n  global:")?;
        for symbol in symbols.iter().filter(|symbol| symbol.node == node) {
            writeln!(text, "    {};", symbol.name)?;
        }
        if node.starts_with(&format!("{prefix}PRIVATE_")) {
            writeln!(text, "}};")?;
        } else {
            writeln!(text, "}} {before};")?;
            before = node;
        }
    }
    Ok(text)
}
