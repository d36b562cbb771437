//! Generates the exported names and the version script of `librockery-providers.so` from the table of
//! symbols.

use architecture::Architecture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let architecture = Architecture::of_target()?;
    symbols::generate(architecture, "providers", "librockery-providers.so")
}

#[path = "../abi/symbols/architecture.rs"]
mod architecture;
#[path = "../abi/symbols/generate.rs"]
mod symbols;
