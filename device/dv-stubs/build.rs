//! Generates the exported names and the version script of `librockery-providers.so` from the table of
//! symbols.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    symbols::generate("providers", "librockery-providers.so")
}

#[path = "../abi/symbols/generate.rs"]
mod symbols;
