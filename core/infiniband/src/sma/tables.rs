//! Tables of ports and switches: partitions, lanes, arbitration, forwarding, and SwitchInfo
//! (IBTA 14.2.5.4, 14.2.5.7 to 14.2.5.12).

use super::{Answered, Effect, PortEvent};
use crate::mad::{Mad, get, put, status};
use crate::node::{
    FORWARDING_BLOCK, LANES, LINEAR_LIDS, MULTICAST_BLOCK, MULTICAST_LIDS, Node, PARTITION_BLOCK,
    PARTITIONS, Port, SwitchTables,
};
use alloc::vec::Vec;

/// The port that a number of a modifier names: that of arrival at an adapter, whatever the number is.
fn port_mut(node: &mut Node, arrival: u8, number: u32) -> Result<(u8, &mut Port), u16> {
    let number = if node.is_switch() {
        u8::try_from(number).map_err(|_| status::BAD_VALUE)?
    } else {
        arrival
    };
    let port = node.ports.get_mut(usize::from(number));
    port.map(|port| (number, port)).ok_or(status::BAD_VALUE)
}

pub(super) fn partitions(
    node: &mut Node,
    arrival: u8,
    sets: bool,
    reply: &mut Mad,
    effects: &mut Vec<Effect>,
) -> Answered {
    let modifier = reply.modifier();
    let first = (modifier & 0xffff) as usize * PARTITION_BLOCK;
    let is_switch = node.is_switch();
    let (_, port) = port_mut(node, arrival, modifier >> 16)?;
    if first >= PARTITIONS {
        return Err(status::BAD_VALUE);
    }
    let keys = &mut port.partitions.0[first..first + PARTITION_BLOCK];
    if sets {
        let new: [u16; PARTITION_BLOCK] =
            core::array::from_fn(|entry| get(reply.data(), 2 * entry));
        if keys != new {
            keys.copy_from_slice(&new);
            if !is_switch {
                effects.push(Effect::Event(PortEvent::PartitionChange));
            }
        }
    }
    for (entry, key) in keys.iter().enumerate() {
        put(reply.data_mut(), 2 * entry, *key);
    }
    Ok(())
}

pub(super) fn lanes(node: &mut Node, arrival: u8, sets: bool, reply: &mut Mad) -> Answered {
    let modifier = reply.modifier();
    let input = if node.is_switch() {
        (modifier >> 8 & 0xff) as usize
    } else {
        0
    };
    let (_, port) = port_mut(node, arrival, modifier & 0xff)?;
    let lanes = port.lanes.get_mut(input).ok_or(status::BAD_VALUE)?;
    let data = reply.data_mut();
    if sets {
        *lanes = core::array::from_fn(|level| data[level / 2] >> (4 * (1 - level % 2)) & 0xf);
    }
    data.fill(0);
    for level in 0..LANES {
        data[level / 2] |= lanes[level] << (4 * (1 - level % 2));
    }
    Ok(())
}

/// Parts of the arbitration tables: 1 and 2 are the low table, 3 and 4 the high one.
pub(super) fn arbitration(node: &mut Node, arrival: u8, sets: bool, reply: &mut Mad) -> Answered {
    const ENTRIES: usize = 32;
    let modifier = reply.modifier();
    let part = (modifier >> 16).wrapping_sub(1) as usize;
    let (_, port) = port_mut(node, arrival, modifier & 0xffff)?;
    let table = port
        .arbitration
        .get_mut(part / 2)
        .ok_or(status::BAD_VALUE)?;
    let first = part % 2 * ENTRIES;
    let data = reply.data_mut();
    for (entry, pair) in table[first..first + ENTRIES].iter_mut().enumerate() {
        if sets {
            *pair = [data[2 * entry] & 0xf, data[2 * entry + 1]];
        }
        data[2 * entry..2 * entry + 2].copy_from_slice(pair);
    }
    Ok(())
}

fn tables(node: &mut Node) -> Result<&mut SwitchTables, u16> {
    node.switch_tables_mut().ok_or(status::BAD_ATTRIBUTE)
}

pub(super) fn linear(node: &mut Node, sets: bool, reply: &mut Mad) -> Answered {
    let block = reply.modifier() as usize;
    let ports = node.port_count();
    let tables = tables(node)?;
    if block * FORWARDING_BLOCK >= usize::from(LINEAR_LIDS) {
        return Err(status::BAD_VALUE);
    }
    if sets {
        // A port that the switch does not have drops, as the specification has it for such entries.
        let entries = reply.data().iter();
        let entries: Vec<u8> = entries
            .map(|port| {
                if *port > ports {
                    crate::node::DROP
                } else {
                    *port
                }
            })
            .collect();
        tables.set_linear_block(block, &entries);
    }
    reply
        .data_mut()
        .copy_from_slice(&tables.linear_block(block));
    Ok(())
}

pub(super) fn multicast(node: &mut Node, sets: bool, reply: &mut Mad) -> Answered {
    let modifier = reply.modifier();
    let (block, position) = ((modifier & 0x1ff) as usize, (modifier >> 28) as usize);
    let tables = tables(node)?;
    if block * MULTICAST_BLOCK >= usize::from(MULTICAST_LIDS) {
        return Err(status::BAD_VALUE);
    }
    if sets {
        let entries = core::array::from_fn(|entry| get(reply.data(), 2 * entry));
        tables.set_multicast_block(block, position, entries);
    }
    for (entry, ports) in tables
        .multicast_block(block, position)
        .into_iter()
        .enumerate()
    {
        put(reply.data_mut(), 2 * entry, ports);
    }
    Ok(())
}

/// The bit by which a manager clears the note of a changed port.
const CHANGE: u8 = 1 << 2;

pub(super) fn switch_info(node: &mut Node, sets: bool, reply: &mut Mad) -> Answered {
    let tables = tables(node)?;
    let data = reply.data_mut();
    let mut answer = Ok(());
    if sets {
        let top: u16 = get(data, 6);
        if top < LINEAR_LIDS {
            tables.linear_top = top;
        } else {
            answer = Err(status::BAD_VALUE);
        }
        [
            tables.default_port,
            tables.multicast_primary,
            tables.multicast_not_primary,
        ] = [data[8], data[9], data[10]];
        tables.life_time = data[11] >> 3;
        if data[11] & CHANGE != 0 {
            tables.has_port_change = false;
        }
        tables.multicast_top = get(data, 18);
    }
    data.fill(0);
    put(data, 0, LINEAR_LIDS);
    put(data, 4, MULTICAST_LIDS);
    put(data, 6, tables.linear_top);
    data[8..11].copy_from_slice(&[
        tables.default_port,
        tables.multicast_primary,
        tables.multicast_not_primary,
    ]);
    data[11] = tables.life_time << 3 | u8::from(tables.has_port_change) << 2;
    put(data, 14, PARTITIONS as u16);
    put(data, 18, tables.multicast_top);
    answer
}
