//! The adapter that a command of Linux names by its interface.

use crate::facts::{Adapter, HostFacts};
use crate::sections::Section;
use crate::text::ReadError;

/// The adapter of an interface that a command names; none where no RDMA device has it.
///
/// # Errors
/// An interface that is nearly one of an RDMA device, and one of a snapshot that names no interface of a
/// device: what the output shows would be lost.
pub(super) fn interface<'h>(
    section: &Section<'_>,
    host: &'h mut HostFacts,
    name: &str,
) -> Result<Option<&'h mut Adapter>, ReadError> {
    if host.adapter_of(name).is_some() {
        return Ok(host.adapter_of(name));
    }
    let what = match host.interface_like(name) {
        Some(meant) => format!("no RDMA device has the interface {name}; {meant} is one"),
        None if host.adapters.iter().all(|own| own.netdev.is_none()) => {
            "the RDMA device of the interface is not known: the output of show_gids, or sysfs of rockery \
             doctor snapshot, names it"
                .to_owned()
        }
        None => return Ok(None),
    };
    Err(section.wrong(&section.head, &what))
}
