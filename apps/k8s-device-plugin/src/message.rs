//! Messages of the kubelet's device plugin interface, `v1beta1`, with the field numbers of its `api.proto`.
//!
//! Fields that a plugin neither sends nor reads are left out; protobuf skips them.

use std::collections::HashMap;

/// The version that a plugin registers with.
pub(crate) const VERSION: &str = "v1beta1";
/// Paths of the calls.
pub(crate) const REGISTER: &str = "/v1beta1.Registration/Register";
pub(crate) const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub(crate) const LIST: &str = "/v1beta1.DevicePlugin/ListAndWatch";
pub(crate) const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";

/// Health of a device.
pub(crate) const HEALTHY: &str = "Healthy";
pub(crate) const UNHEALTHY: &str = "Unhealthy";

/// The argument or result of calls that have none.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Empty {}

/// Optional calls that the plugin requests; both fields absent: none.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct DevicePluginOptions {
    #[prost(bool, tag = "1")]
    pub(crate) pre_start_required: bool,
    #[prost(bool, tag = "2")]
    pub(crate) get_preferred_allocation_available: bool,
}

/// The registration of a plugin at the kubelet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    /// Name of the plugin's socket in the folder of the kubelet's.
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    #[prost(string, tag = "3")]
    pub(crate) resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<DevicePluginOptions>,
}

/// A device. Topology is left out: software has no NUMA node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Device {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) health: String,
}

/// All devices, at the beginning and after each change.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Device>,
}

/// Devices that the kubelet has chosen for containers of one pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerAllocateRequest>,
}

/// Devices for one container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) devices_ids: Vec<String>,
}

/// The allocations of the containers, in the order of the requests.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerAllocateResponse>,
}

/// The allocation of one container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ContainerAllocateResponse {
    #[prost(map = "string, string", tag = "1")]
    pub(crate) envs: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mounts: Vec<MountMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) cdi_devices: Vec<CdiDevice>,
}

/// A file or folder of the node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct MountMessage {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) read_only: bool,
}

/// The full name of a device of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}
