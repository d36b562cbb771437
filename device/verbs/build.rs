//! Generates the exported names and the version script of `libibverbs.so.1` from the table of symbols.

use architecture::Architecture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let architecture = Architecture::of_target()?;
    symbols::generate(architecture, "libibverbs", "libibverbs.so.1")?;
    machine::calls(architecture)?;
    raw_calls::generate(architecture)
}

#[path = "../abi/symbols/architecture.rs"]
mod architecture;
#[path = "../abi/symbols/machine.rs"]
mod machine;
#[path = "../abi/symbols/raw_calls.rs"]
mod raw_calls;
#[path = "../abi/symbols/generate.rs"]
mod symbols;
