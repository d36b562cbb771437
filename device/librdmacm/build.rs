//! Generates the exported names and the version script of `librdmacm.so.1` from the table of symbols.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    symbols::generate("librdmacm", "librdmacm.so.1")?;
    machine::calls()?;
    raw_calls::generate()
}

#[path = "../abi/symbols/machine.rs"]
mod machine;
#[path = "../abi/symbols/raw_calls.rs"]
mod raw_calls;
#[path = "../abi/symbols/generate.rs"]
mod symbols;
