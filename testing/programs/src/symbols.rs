//! Symbols of libraries, as `nm` of the package `binutils` lists them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Error, system};

/// The exported names of a library that have versions, with these: `rdma_connect@RDMACM_1.0`.
///
/// # Errors
/// When `nm` is not there, or the file is no library.
pub fn exported(library: &Path) -> Result<BTreeSet<String>, Error> {
    let listed = system::call(&["nm", "-D", "--defined-only", &library.to_string_lossy()])?
        .replace("@@", "@");
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    Ok(names
        .filter(|name| name.contains('@'))
        .map(str::to_owned)
        .collect())
}
