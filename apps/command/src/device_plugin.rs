//! Arguments of the device plugin of Kubernetes: `rockery device-plugin` has them for its help, completions
//! and manual pages, and `rockery-device-plugin` carries them out.

use std::path::PathBuf;

/// The folder of the kubelet's and of plugins' sockets on every node.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// The most devices: the list is one message, which gRPC limits to 4 MiB.
pub const DEVICES_MAX: u32 = 10_000;

/// The resource to offer.
#[derive(Debug, clap::Args)]
pub struct DevicePlugin {
    /// Name of the resource, DOMAIN/NAME, as pods request it.
    #[arg(long, value_name = "NAME", default_value = "rdma/hca_shared_devices_a")]
    pub resource: String,
    /// Number of containers of this node that may have the resource at a time, 1 to 10000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX)))]
    pub count: u32,
    /// Give containers the name of the CDI device instead of mounts and variables: for a kubelet of 1.29 or
    /// newer, and a runtime that reads the file of `rockery cdi`.
    #[arg(long)]
    pub cdi: bool,
    /// Folder of the kubelet's socket.
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub folder: PathBuf,
}
