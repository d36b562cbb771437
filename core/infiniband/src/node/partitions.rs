//! The table of partition keys of a port (IBTA 10.9.1).

/// Entries of a block, which one request reads or writes.
pub const BLOCK: usize = 32;
/// Entries of a table.
pub const PARTITIONS: usize = 32;

/// The key of the default partition, with full membership: what a table begins with.
const DEFAULT_FULL: u16 = 0xffff;
/// The bit of full membership.
const FULL: u16 = 0x8000;

/// Partition keys; 0 is an empty entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTable(pub [u16; PARTITIONS]);

impl Default for PartitionTable {
    fn default() -> Self {
        let mut keys = [0; PARTITIONS];
        keys[0] = DEFAULT_FULL;
        Self(keys)
    }
}

impl PartitionTable {
    /// The index of the key that a packet's key matches: the same partition, and one of both is a full
    /// member.
    pub fn matching(&self, key: u16) -> Option<u16> {
        let matches =
            |own: &u16| *own & !FULL != 0 && (*own ^ key) & !FULL == 0 && (*own | key) & FULL != 0;
        self.0.iter().position(matches).map(|index| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_member_matches_full_ones_alone() {
        let mut table = PartitionTable::default();
        assert_eq!(table.matching(0xffff), Some(0));
        assert_eq!(table.matching(0x7fff), Some(0));
        table.0[1] = 0x0012;
        assert_eq!(table.matching(0x8012), Some(1));
        assert_eq!(table.matching(0x0012), None);
        assert_eq!(table.matching(0x8000), None);
        assert_eq!(table.matching(0), None);
    }
}
