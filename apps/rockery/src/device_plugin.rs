//! `rockery device-plugin`: RDMA as a resource of a Kubernetes node.

use std::convert::Infallible;
use std::ffi::OsString;

use crate::companion::DEVICE_PLUGIN;
use crate::{Error, cdi};

/// Replaces this process by the device plugin, with the edits of `rockery cdi` for each container.
///
/// # Errors
/// When the libraries are not installed, or the program is missing.
pub(crate) fn replace_this_process() -> Result<Infallible, Error> {
    DEVICE_PLUGIN.replace_this_process(&arguments(cdi::edits()?))
}

/// The arguments that tell the plugin what a container gets.
fn arguments(edits: cdi::Edits) -> Vec<OsString> {
    let mounts = edits
        .mounts
        .into_iter()
        .flat_map(|(host, container)| ["--mount".into(), host.into_os_string(), container.into()]);
    let variables = edits
        .environment
        .into_iter()
        .flat_map(|(name, value)| ["--env", &name, &value].map(OsString::from));
    let device = ["--cdi-device", cdi::NAME].map(OsString::from);
    mounts.chain(variables).chain(device).collect()
}
