//! NodeDescription, NodeInfo and GUIDInfo (IBTA 14.2.5.2, 14.2.5.3, 14.2.5.5).

use super::Answered;
use crate::mad::{BASE_VERSION, Mad, put, status};
use crate::node::{DEVICE, Node, PARTITIONS, VENDOR};

const CLASS_VERSION: u8 = 1;
/// Entries of a block of GUIDs.
const GUIDS: usize = 8;
/// The revision of the device.
const REVISION: u32 = 0;

pub(super) fn description(node: &Node, reply: &mut Mad) -> Answered {
    let text = node.identity.description.as_bytes();
    let data = reply.data_mut();
    data.fill(0);
    let length = text.len().min(data.len());
    data[..length].copy_from_slice(&text[..length]);
    Ok(())
}

pub(super) fn node_info(node: &Node, arrival: u8, reply: &mut Mad) -> Answered {
    let port_guid = if node.is_switch() {
        node.identity.port_guid
    } else {
        port(node, arrival).map_or(node.identity.port_guid, |port| port.guid)
    };
    let data = reply.data_mut();
    data.fill(0);
    data[..4].copy_from_slice(&[
        BASE_VERSION,
        CLASS_VERSION,
        node.type_code(),
        node.port_count(),
    ]);
    put(data, 4, node.identity.guid);
    put(data, 12, node.identity.guid);
    put(data, 20, port_guid);
    put(data, 28, PARTITIONS as u16);
    put(data, 30, DEVICE);
    put(data, 32, REVISION);
    put(data, 36, u32::from(arrival) << 24 | VENDOR);
    Ok(())
}

/// The GUIDs of a port: one, which the port has from the factory. Others cannot be set.
pub(super) fn guid_info(node: &Node, arrival: u8, reply: &mut Mad) -> Answered {
    let block = reply.modifier() as usize;
    let port = port(node, node.addressed_port(arrival)).ok_or(status::BAD_VALUE)?;
    if block * GUIDS >= usize::from(GUID_CAPACITY) {
        return Err(status::BAD_VALUE);
    }
    let data = reply.data_mut();
    let asked_for_more = data[8..].iter().any(|byte| *byte != 0);
    let sets = reply.method() == crate::mad::method::SET;
    let data = reply.data_mut();
    data.fill(0);
    put(data, 0, port.guid);
    if sets && asked_for_more {
        return Err(status::BAD_VALUE);
    }
    Ok(())
}

/// GUIDs of a port, as PortInfo names their number.
pub(super) const GUID_CAPACITY: u8 = 8;

fn port(node: &Node, number: u8) -> Option<&crate::node::Port> {
    node.ports.get(usize::from(number))
}
