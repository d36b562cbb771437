//! `rockery device-plugin`: RDMA as a resource of a Kubernetes node.

use std::path::PathBuf;

use k8s_device_plugin::{Allocation, Mount, Notice, Plugin};

use crate::{Error, cdi};

/// The resource to offer.
#[derive(Debug, clap::Args)]
pub(crate) struct DevicePlugin {
    /// Name of the resource, DOMAIN/NAME, as pods request it.
    #[arg(long, value_name = "NAME", default_value = "rdma/hca_shared_devices_a")]
    resource: String,
    /// Number of containers of this node that may have the resource at a time, 1 to 10000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(k8s_device_plugin::DEVICES_MAX)))]
    count: u32,
    /// Give containers the name of the CDI device instead of mounts and variables: for a kubelet of 1.29 or
    /// newer, and a runtime that reads the file of `rockery cdi`.
    #[arg(long)]
    cdi: bool,
    /// Folder of the kubelet's socket.
    #[arg(long, value_name = "FOLDER", default_value = k8s_device_plugin::FOLDER)]
    folder: PathBuf,
}

/// Serves until the process ends.
///
/// # Errors
/// When the libraries are not installed, or the plugin cannot listen.
pub(crate) fn serve(what: &DevicePlugin) -> Result<(), Error> {
    let edits = cdi::edits()?;
    let hosts: Vec<PathBuf> = edits.mounts.iter().map(|(host, _)| host.clone()).collect();
    let allocation = match what.cdi {
        true => Allocation::Cdi(cdi::NAME.to_owned()),
        false => Allocation::Edits {
            mounts: edits
                .mounts
                .into_iter()
                .map(|(host, container)| Mount {
                    host: host.display().to_string(),
                    container,
                })
                .collect(),
            environment: edits.environment,
        },
    };
    let plugin = Plugin {
        resource: what.resource.clone(),
        count: what.count,
        allocation,
        folder: what.folder.clone(),
        is_healthy: Box::new(move || hosts.iter().all(|path| path.exists())),
    };
    Ok(k8s_device_plugin::serve(plugin, |notice: &Notice| {
        crate::output::note!("rockery: {notice}")
    })?)
}
