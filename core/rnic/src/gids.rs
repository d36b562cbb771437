//! The GID table: the address at each index.

use crate::address::Gid;

/// Entries of the GID table: it is small, since programs read all of it.
pub(crate) const GID_TABLE_LENGTH: usize = 16;
/// Indices that programs name without looking at the table: 0 by default, 1 and 3 as the RoCE v2 entries of
/// adapters' first IPv4 address (3 on mlx5, where every address has a RoCE v1 entry before it).
const COMMON_INDICES: usize = 4;

/// The GID table. An address keeps its index for as long as the interface has it, because queue pairs and
/// programs use the index, and gets it back when it returns.
#[derive(Clone, Debug, Default)]
pub struct GidTable {
    entries: [Option<Gid>; GID_TABLE_LENGTH],
    /// The last address of each index, which gets the index back when it returns.
    former: [Option<Gid>; GID_TABLE_LENGTH],
}

impl GidTable {
    /// Creates the table of an interface with these addresses, in the order that Linux gives them
    /// (link-local, IPv4, IPv6). Index 0 is for the link-local address. Indices up to 3 that no address takes
    /// repeat the first IPv4 address, and so does index 0 without a link-local address; without IPv4 it
    /// repeats the first address.
    pub fn new(addresses: &[Gid]) -> Self {
        let mut table = Self::default();
        table.follow(addresses);
        table
    }

    /// The GID at an index.
    pub fn get(&self, index: u8) -> Option<Gid> {
        self.entries.get(usize::from(index)).copied().flatten()
    }

    /// All entries up to the last one in use. Those of [`Self::new`] have no gap.
    pub fn used(&self) -> impl Iterator<Item = Gid> {
        self.entries.iter().copied().flatten()
    }

    /// Whether the table contains the address.
    pub fn contains(&self, gid: Gid) -> bool {
        self.entries.contains(&Some(gid))
    }

    /// Whether both tables have the same address at each index.
    pub(crate) fn has_same_entries(&self, other: &Self) -> bool {
        self.entries == other.entries
    }

    /// Sets or clears an entry. Indices beyond the table are ignored.
    pub(crate) fn set(&mut self, index: u8, gid: Option<Gid>) {
        if let Some(entry) = self.entries.get_mut(usize::from(index)) {
            *entry = gid;
        }
    }

    /// Updates the table after a change of the interface's addresses, ordered as for [`Self::new`]. The
    /// entries of an address that was removed become empty, and are reserved for its return. A new address
    /// takes the first index that never had another one, or else the first empty one. Addresses beyond the
    /// table's length have no entry.
    pub(crate) fn follow(&mut self, addresses: &[Gid]) {
        for (entry, former) in self.entries.iter_mut().zip(&mut self.former) {
            *former = entry.or(*former);
            *entry = former.filter(|gid| addresses.contains(gid));
        }
        for gid in addresses {
            if !self.contains(*gid) {
                self.place_gid(*gid);
            }
        }
        self.repeat(addresses);
    }

    fn place_gid(&mut self, gid: Gid) {
        let first = usize::from(!gid.is_link_local());
        let empty = |index: &usize| self.entries[*index].is_none();
        let free = (first..GID_TABLE_LENGTH).filter(empty);
        let unused = free.clone().find(|index| self.former[*index].is_none());
        let chosen = unused.or(free.clone().next());
        if let Some(index) = chosen {
            self.entries[index] = Some(gid);
        }
    }

    /// Fills the common indices that are empty. One that had another address is reserved for that one: a
    /// queue pair that uses the index must not send from another address.
    fn repeat(&mut self, addresses: &[Gid]) {
        let v4 = addresses.iter().copied().find(|gid| gid.ipv4().is_some());
        for (index, entry) in self.entries.iter_mut().enumerate().take(COMMON_INDICES) {
            let is_unused = entry.is_none() && self.former[index].is_none();
            if is_unused {
                *entry = if index == 0 {
                    v4.or(addresses.first().copied())
                } else {
                    v4
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LINK_LOCAL: Gid = gid(0xfe80, 5);
    const GLOBAL: Gid = gid(0x2001, 5);
    const A: Gid = Gid::from_ipv4([10, 0, 0, 1]);
    const B: Gid = Gid::from_ipv4([10, 0, 0, 2]);

    const fn gid(first: u128, last: u128) -> Gid {
        Gid((first << 112 | last).to_be_bytes())
    }

    fn entries(table: &GidTable) -> Vec<Option<Gid>> {
        let last = table
            .entries
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |last| last + 1);
        table.entries[..last].to_vec()
    }

    fn used(addresses: &[Gid]) -> Vec<Gid> {
        let table = GidTable::new(addresses);
        assert_eq!(
            entries(&table).len(),
            table.used().count(),
            "a new table has no gap"
        );
        table.used().collect()
    }

    #[test]
    fn common_indices_repeat_the_first_ipv4_address() {
        assert_eq!(used(&[LINK_LOCAL, A]), [LINK_LOCAL, A, A, A]);
        assert_eq!(used(&[LINK_LOCAL, A, GLOBAL]), [LINK_LOCAL, A, GLOBAL, A]);
        assert_eq!(
            used(&[LINK_LOCAL, A, B, GLOBAL]),
            [LINK_LOCAL, A, B, GLOBAL]
        );
        assert_eq!(used(&[LINK_LOCAL, GLOBAL]), [LINK_LOCAL, GLOBAL]);
    }

    #[test]
    fn without_a_link_local_address_index_0_is_the_ipv4_address() {
        assert_eq!(used(&[A]), [A, A, A, A]);
        assert_eq!(used(&[A, B, GLOBAL]), [A, A, B, GLOBAL]);
        assert_eq!(used(&[GLOBAL]), [GLOBAL, GLOBAL]);
    }

    #[test]
    fn an_address_that_returns_gets_its_indices_back() {
        let all = [LINK_LOCAL, A, B, GLOBAL];
        let mut table = GidTable::new(&all);
        let before = table.clone().entries;
        table.follow(&[LINK_LOCAL]);
        assert_eq!(entries(&table), [Some(LINK_LOCAL)]);
        // Another order than before.
        table.follow(&[LINK_LOCAL, B]);
        assert_eq!(entries(&table), [Some(LINK_LOCAL), None, Some(B)]);
        table.follow(&all);
        assert_eq!(table.entries, before);

        let mut table = GidTable::new(&[LINK_LOCAL, A]);
        table.follow(&[LINK_LOCAL]);
        table.follow(&[LINK_LOCAL, A]);
        assert_eq!(
            entries(&table),
            [Some(LINK_LOCAL), Some(A), Some(A), Some(A)]
        );
    }

    #[test]
    fn a_new_address_displaces_none() {
        let mut table = GidTable::new(&[A]);
        table.follow(&[LINK_LOCAL, A, B]);
        assert_eq!(
            entries(&table),
            [
                Some(A),
                Some(A),
                Some(A),
                Some(A),
                Some(LINK_LOCAL),
                Some(B)
            ]
        );
        // The index of a removed address is taken only when no other one is free.
        table.follow(&[A, B, GLOBAL]);
        assert_eq!(table.get(4), None);
        assert_eq!(table.get(6), Some(GLOBAL));
    }

    #[test]
    fn addresses_beyond_the_table_have_no_entry() {
        let many: Vec<Gid> = (1..=40).map(|last| gid(0x2001, last)).collect();
        let mut table = GidTable::new(&many);
        assert_eq!(table.used().count(), GID_TABLE_LENGTH);
        table.follow(&many[30..]);
        assert_eq!(table.used().count(), 10);
        table.follow(&[A]);
        assert!(table.contains(A));
    }
}
