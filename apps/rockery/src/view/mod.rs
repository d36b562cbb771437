//! The view that programs have of our devices in `/sys` and `/dev`, where a kernel shows its own.
//!
//! [`tree`] has the files. A program sees them in one of two ways: [`folder`] writes them to a folder, from
//! which `librockery-view.so` serves them, and [`namespace`] mounts them at their paths, for this process and
//! the program that replaces it.

mod folder;
mod namespace;
mod tree;

use std::path::PathBuf;

use host::DeviceInfo;

use crate::Error;

/// The variable with the path of the folder for `librockery-view.so`.
pub(crate) const VARIABLE: &str = "ROCKERY_VIEW";

/// A folder that shows `devices`.
///
/// # Errors
/// When no folder can be written.
pub(crate) fn in_folder(devices: &[DeviceInfo]) -> Result<PathBuf, Error> {
    folder::of(&tree::of(devices))
}

/// Moves this process to where `/sys` and `/dev` show `devices`.
///
/// # Errors
/// When this user may make no namespace, or a mount fails.
pub(crate) fn enter(devices: &[DeviceInfo]) -> Result<(), Error> {
    namespace::enter(&tree::of(devices))
}
