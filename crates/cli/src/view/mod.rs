//! What programs see of our devices in `/sys` and `/dev`, where a kernel shows its own.
//!
//! [`tree`] says which files there are. They reach a program in one of two ways: [`folder`] writes them to a
//! folder that `librockery-view.so` answers from, [`namespace`] mounts them where they belong, for this
//! process and what it becomes.

mod folder;
mod namespace;
mod tree;

use std::path::PathBuf;

use host::DeviceInfo;

use crate::Error;

/// The variable that tells `librockery-view.so` where the folder is.
pub(crate) const VARIABLE: &str = "ROCKERY_VIEW";

/// A folder that shows `devices`.
///
/// # Errors
/// When there is no place where one can be written.
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
