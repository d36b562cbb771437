//! Tables of a switch: SwitchInfo, linear and multicast forwarding (IBTA 14.2.5.4, 18.2.4).

use crate::lid::FIRST_MULTICAST;
use alloc::vec::Vec;

/// LIDs that the linear table has room for: all of unicast.
pub const LINEAR_LIDS: u16 = 49_152;
/// LIDs that the multicast table has room for.
pub const MULTICAST_LIDS: u16 = 1_024;
/// Entries of a block of the linear table.
pub const FORWARDING_BLOCK: usize = 64;
/// Entries of a block of the multicast table, for 16 ports.
pub const MULTICAST_BLOCK: usize = 32;
/// The port of LIDs that lead nowhere.
pub const DROP: u8 = 0xff;
/// Ports of one position of a multicast entry.
const POSITION_PORTS: usize = 16;
/// Positions of 16 ports.
pub(crate) const POSITIONS: usize = 16;

/// What a manager writes to a switch as a whole.
#[derive(Clone, Debug)]
pub struct SwitchTables {
    /// The port of each LID; LIDs behind its end lead nowhere.
    linear: Vec<u8>,
    /// The ports of each multicast LID.
    multicast: Vec<[u16; POSITIONS]>,
    /// The highest LID in use.
    pub linear_top: u16,
    /// The port of LIDs without an entry.
    pub default_port: u8,
    /// The port for multicast packets of groups without an entry, from other ports than that one.
    pub multicast_primary: u8,
    /// The port for multicast packets of groups without an entry that come from the primary port.
    pub multicast_not_primary: u8,
    /// The highest multicast LID in use.
    pub multicast_top: u16,
    /// Lifetime of packets, as a power of two of 4.096 us.
    pub life_time: u8,
    /// A port has changed its state since the manager cleared this.
    pub has_port_change: bool,
}

impl Default for SwitchTables {
    fn default() -> Self {
        Self {
            linear: Vec::new(),
            multicast: Vec::new(),
            linear_top: 0,
            default_port: DROP,
            multicast_primary: 0,
            multicast_not_primary: 0,
            multicast_top: 0,
            life_time: 18,
            has_port_change: false,
        }
    }
}

impl SwitchTables {
    /// The port of a unicast LID; `None` where it leads nowhere.
    pub fn port_of(&self, lid: u16) -> Option<u8> {
        let entry = self.linear.get(usize::from(lid)).copied().unwrap_or(DROP);
        Some(entry).filter(|port| *port != DROP && lid <= self.linear_top)
    }

    /// Whether a port is in a multicast LID's entry.
    pub fn is_multicast_port(&self, lid: u16, port: u8) -> bool {
        let entry = self
            .multicast
            .get(usize::from(lid.wrapping_sub(FIRST_MULTICAST)));
        let position = usize::from(port) / POSITION_PORTS;
        entry.is_some_and(|ports| {
            ports[position % POSITIONS] >> (usize::from(port) % POSITION_PORTS) & 1 != 0
        })
    }

    /// The multicast LIDs that lead to any port.
    pub fn multicast_lids(&self) -> impl Iterator<Item = u16> {
        let entries = (FIRST_MULTICAST..).zip(&self.multicast);
        entries.filter_map(|(lid, ports)| ports.iter().any(|ports| *ports != 0).then_some(lid))
    }

    /// Reads a block of the linear table.
    pub fn linear_block(&self, block: usize) -> [u8; FORWARDING_BLOCK] {
        core::array::from_fn(|entry| {
            let lid = block * FORWARDING_BLOCK + entry;
            self.linear.get(lid).copied().unwrap_or(DROP)
        })
    }

    /// Writes a block of the linear table, which must be within the capacity.
    pub fn set_linear_block(&mut self, block: usize, ports: &[u8]) {
        let first = block * FORWARDING_BLOCK;
        let end = (first + FORWARDING_BLOCK).min(usize::from(LINEAR_LIDS));
        if self.linear.len() < end {
            self.linear.resize(end, DROP);
        }
        if let Some(entries) = self.linear.get_mut(first..end) {
            let length = entries.len().min(ports.len());
            entries[..length].copy_from_slice(&ports[..length]);
        }
    }

    /// Reads 16 ports of a block of the multicast table.
    pub fn multicast_block(&self, block: usize, position: usize) -> [u16; MULTICAST_BLOCK] {
        core::array::from_fn(|entry| {
            let ports = self.multicast.get(block * MULTICAST_BLOCK + entry);
            ports.map_or(0, |ports| ports[position % POSITIONS])
        })
    }

    /// Writes 16 ports of a block of the multicast table, which must be within the capacity.
    pub fn set_multicast_block(
        &mut self,
        block: usize,
        position: usize,
        ports: [u16; MULTICAST_BLOCK],
    ) {
        let first = block * MULTICAST_BLOCK;
        if self.multicast.len() < first + MULTICAST_BLOCK {
            self.multicast
                .resize(first + MULTICAST_BLOCK, [0; POSITIONS]);
        }
        for (entry, ports) in self.multicast[first..].iter_mut().zip(ports) {
            entry[position % POSITIONS] = ports;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lids_without_an_entry_or_above_the_top_lead_nowhere() {
        let mut tables = SwitchTables::default();
        assert_eq!(tables.port_of(3), None);
        let mut block = [DROP; FORWARDING_BLOCK];
        block[3] = 7;
        block[4] = 8;
        tables.set_linear_block(0, &block);
        tables.linear_top = 3;
        assert_eq!(tables.port_of(3), Some(7));
        assert_eq!(tables.port_of(4), None);
        assert_eq!(tables.linear_block(0), block);
        assert_eq!(tables.linear_block(1), [DROP; FORWARDING_BLOCK]);
    }

    #[test]
    fn multicast_entries_are_written_by_sixteen_ports() {
        let mut tables = SwitchTables::default();
        let mut ports = [0; MULTICAST_BLOCK];
        ports[1] = 1 << 4;
        tables.set_multicast_block(0, 1, ports);
        assert!(tables.is_multicast_port(0xc001, 20));
        assert!(!tables.is_multicast_port(0xc001, 4));
        assert!(!tables.is_multicast_port(0xc000, 20));
        assert!(!tables.is_multicast_port(0xffff, 20));
        assert_eq!(tables.multicast_block(0, 1), ports);
        assert_eq!(tables.multicast_block(3, 0), [0; MULTICAST_BLOCK]);
    }
}
