//! The resource that a plugin offers, and what containers get.

use std::path::PathBuf;

use command::device_plugin::DEVICES_MAX;

/// A file or folder of the node that a container gets, read-only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    /// Path of the file on the node.
    pub(crate) host: String,
    /// Path of the file in the container.
    pub(crate) container: String,
}

/// The contents of a container's allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Allocation {
    /// Files and variables.
    Edits {
        /// Files and folders.
        mounts: Vec<Mount>,
        /// Variables and their values.
        environment: Vec<(String, String)>,
    },
    /// The full name of a device of the Container Device Interface, which the runtime looks up.
    Cdi(String),
}

/// A resource that this node offers.
pub(crate) struct Plugin {
    /// Its name, `DOMAIN/NAME`.
    pub(crate) resource: String,
    /// How many containers of the node may have it at a time.
    pub(crate) count: u32,
    /// The allocation of each container.
    pub(crate) allocation: Allocation,
    /// Folder of the sockets.
    pub(crate) folder: PathBuf,
    /// Whether the resource can be used now.
    pub(crate) is_healthy: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why the kubelet would refuse a resource.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Not a valid name of a resource.
    #[error("{0:?} is no name of a resource: write DOMAIN/NAME, such as rdma/hca_shared_devices_a")]
    Resource(String),
    /// None, or more than a message can list.
    #[error("the number of devices has to be from 1 to {DEVICES_MAX}")]
    Count,
}

impl Plugin {
    /// Checks that the kubelet accepts name and number.
    pub(crate) fn check_resource(&self) -> Result<(), Refused> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // Kubernetes' qualified names begin and end with a letter or digit.
        let ends = |part: &str| {
            let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            is_word(part.as_bytes().first()) && is_word(part.as_bytes().last())
        };
        let is_name = |part: &str| part.len() <= 63 && part.bytes().all(is_plain) && ends(part);
        match self.resource.split_once('/') {
            Some((domain, name)) if is_name(domain) && is_name(name) => {}
            _ => return Err(Refused::Resource(self.resource.clone())),
        }
        if (1..=DEVICES_MAX).contains(&self.count) {
            Ok(())
        } else {
            Err(Refused::Count)
        }
    }

    /// The name of the plugin's socket: each resource has one.
    pub(crate) fn endpoint(&self) -> String {
        format!("rockery-{}.sock", self.resource.replace('/', "-"))
    }

    /// Identifiers of the devices.
    pub(crate) fn ids(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|number| format!("rockery-{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(resource: &str, count: u32) -> Plugin {
        Plugin {
            resource: resource.to_owned(),
            count,
            allocation: Allocation::Cdi("rockery.dev/rdma=all".to_owned()),
            folder: PathBuf::from("/sockets"),
            is_healthy: Box::new(|| true),
        }
    }

    #[test]
    fn names_and_numbers_are_checked_before_the_kubelet_refuses_them() {
        assert!(
            plugin("rdma/hca_shared_devices_a", 100)
                .check_resource()
                .is_ok()
        );
        for name in ["rdma", "rdma/", "/a", "rdma/a/b", "rdma/a b", "../a"] {
            assert!(
                matches!(plugin(name, 1).check_resource(), Err(Refused::Resource(_))),
                "{name}"
            );
        }
        for count in [0, DEVICES_MAX + 1] {
            assert!(matches!(
                plugin("rdma/a", count).check_resource(),
                Err(Refused::Count)
            ));
        }
    }

    #[test]
    fn each_resource_has_a_socket_and_each_device_a_name() {
        let plugin = plugin("rdma/a", 2);
        assert_eq!(plugin.endpoint(), "rockery-rdma-a.sock");
        assert_eq!(plugin.ids().collect::<Vec<_>>(), ["rockery-0", "rockery-1"]);
    }
}
