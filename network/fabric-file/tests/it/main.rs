//! The fabric file and the configurations of vendors, as a person meets them: text in, network or
//! message out.
#![allow(clippy::unwrap_used, reason = "tests")]

mod examples;
mod fields;
mod imported_subnet;
mod infiniband;
mod mistakes;
mod routeros;
mod sonic;
mod unused;

use fabric_file::{Document, FabricFile, FileError, Network};

/// Reads a file without includes.
fn document(text: &str) -> Result<(Document, FabricFile), FileError> {
    let document = Document::read("lab.toml", text, &mut |name| {
        Err(format!("no file {name} in this test"))
    })?;
    let file = document.fields()?;
    Ok((document, file))
}

/// Builds it; vendors' files come from `files`.
fn build_with(text: &str, files: &[(&str, &str)]) -> Result<Network, FileError> {
    let (document, file) = document(text)?;
    Network::build(&document, &file, &mut |name| {
        let found = files
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, text)| (*text).to_owned());
        found.ok_or_else(|| "there is no such file".to_owned())
    })
}

fn build(text: &str) -> Result<Network, FileError> {
    build_with(text, &[])
}
