//! The devices of the view, as `rockery run` wrote them to its folder.

use crate::translate;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the file in the view's folder: one device per line.
const FILE: &str = "rdma-devices";

/// A device of the view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    /// Index of its network interface, which is the device's index too.
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) interface: String,
    pub(crate) firmware: String,
    /// Node GUID as a number in host byte order.
    pub(crate) guid: u64,
}

impl Device {
    /// Parses a line: index, name, interface, firmware version and GUID, separated by tabs.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let index = parts.next()?.parse().ok()?;
        let (name, interface) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let firmware = parts.next()?.to_owned();
        let guid = u64::from_str_radix(parts.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(Self {
            index,
            name,
            interface,
            firmware,
            guid,
        })
    }
}

/// All devices; `None` where this process has no view.
pub(crate) fn all() -> Option<Vec<Device>> {
    let folder = Path::new(OsStr::from_bytes(translate::folder()?));
    let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
    Some(text.lines().filter_map(Device::parse).collect())
}
