//! Memory regions and windows, and their keys.
//!
//! A key is 32 bits. The low byte is the consumer's part (type 2 windows choose it, IBTA 10.6.7.2.2); the
//! upper 24 are the registration's serial number, hidden by a keyed permutation so that a known key does not
//! help to guess another one (ReDMArk, USENIX Security 2021, attack on predictable keys). Serial numbers
//! count up through all 2^24 values before one is used again, so that a deregistered key stays invalid for
//! millions of registrations. The number of slots of the table is a power of two, and an entry is in the slot
//! with the low bits of its serial number. A look-up costs four multiplications and no hash table.

mod permutation;
mod window;

pub use window::WindowKind;

use crate::access::Access;
use crate::error::Error;
use crate::grant::RegionGrant;
use crate::handle::{Lkey, Pd};
use crate::memory::{Backing, Piece};
use crate::random::Random;
use crate::work::Sge;
use alloc::vec::Vec;
use core::cell::Cell;
use permutation::{Permutation, SERIAL_BITS};
use wire::{Qpn, Rkey};

/// Limit of regions and windows. The table has at most twice as many slots, so each slot is shared by eight
/// serial numbers or more.
const ENTRIES_MAX: u32 = 1 << 20;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;

/// Keys of a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionKeys {
    /// Key for the owner's work requests.
    pub lkey: Lkey,
    /// Key for peers; the same number. A region without remote rights refuses it.
    pub rkey: Rkey,
}

/// Parameters of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionInit {
    /// Address of the memory.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// I/O virtual address of the first byte: `address` normally, 0 when zero-based.
    pub iova: u64,
    /// Access rights of the owner and of peers.
    pub access: Access,
}

/// Changes that `reregister` makes; `None` leaves a property as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionChange {
    /// New address, length and iova.
    pub translation: Option<(u64, u64, u64)>,
    /// New protection domain of the region.
    pub pd: Option<Pd>,
    /// New access rights.
    pub access: Option<Access>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Region {
        bindings: u32,
    },
    /// `region` is the serial number of the region that the window is bound to.
    Window {
        kind: WindowKind,
        region: Option<u32>,
        qpn: Qpn,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u32,
    pd: Pd,
    start: u64,
    length: u64,
    iova: u64,
    access: Access,
    kind: Kind,
    /// Whether the region is a null region, which has no memory.
    is_null: bool,
}

impl Entry {
    /// The memory at `address`, if all `length` bytes belong to the entry.
    #[inline(always)]
    fn piece(&self, address: u64, length: u32) -> Option<Piece> {
        let offset = address.checked_sub(self.iova)?;
        let end = offset.checked_add(u64::from(length))?;
        (end <= self.length).then_some(Piece {
            address: self.start.wrapping_add(offset),
            length,
            backing: self.backing(),
        })
    }

    fn backing(&self) -> Backing {
        match self.access.contains(Access::ON_DEMAND) {
            _ if self.is_null => Backing::Null,
            true => Backing::OnDemand,
            false => Backing::Pinned,
        }
    }
}

/// The table of a device's regions and windows.
#[derive(Debug)]
pub(crate) struct Regions {
    permutation: Permutation,
    /// A power of two of slots, at least half of them free.
    slots: Vec<Option<Entry>>,
    /// The serial number to try next.
    next_serial: u32,
    limit: u32,
    used: u32,
    /// The last key that was looked up, and its serial number.
    last: Cell<(u32, u32)>,
    /// Whether changes of keys are recorded in `changed`.
    pub(crate) is_watched: bool,
    pub(crate) changed: Vec<Rkey>,
}

impl Regions {
    pub(crate) fn new(limit: u32, random: &mut Random) -> Self {
        let permutation = Permutation::new(random);
        Self {
            permutation,
            slots: Vec::new(),
            next_serial: 0,
            limit: limit.min(ENTRIES_MAX),
            used: 0,
            last: Cell::new((0, permutation.serial_of(0))),
            is_watched: false,
            changed: Vec::new(),
        }
    }

    pub(crate) fn register(
        &mut self,
        pd: Pd,
        init: RegionInit,
        random: &mut Random,
    ) -> Result<RegionKeys, Error> {
        check_range(init.address, init.length, init.iova)?;
        check_rights(init.access)?;
        let entry = Entry {
            key: 0,
            pd,
            start: init.address,
            length: init.length,
            iova: init.iova,
            access: init.access,
            kind: Kind::Region { bindings: 0 },
            is_null: false,
        };
        let key = self.insert(entry, random)?;
        Ok(RegionKeys {
            lkey: Lkey(key),
            rkey: Rkey(key),
        })
    }

    /// Registers a region of all addresses without memory, for local use.
    pub(crate) fn register_null(&mut self, pd: Pd, random: &mut Random) -> Result<Lkey, Error> {
        let (access, kind) = (Access::LOCAL_WRITE, Kind::Region { bindings: 0 });
        let entry = Entry {
            key: 0,
            pd,
            start: 0,
            length: u64::MAX,
            iova: 0,
            access,
            kind,
            is_null: true,
        };
        Ok(Lkey(self.insert(entry, random)?))
    }

    /// Changes a region. Where its memory or domain changes it gets a new key, and the old one is no longer
    /// valid (IBTA 11.2.8.4).
    pub(crate) fn reregister(
        &mut self,
        lkey: Lkey,
        change: RegionChange,
        random: &mut Random,
    ) -> Result<RegionKeys, Error> {
        let mut entry = *self.entry(lkey.0).ok_or(Error::NoSuchObject)?;
        match entry.kind {
            _ if entry.is_null => {
                return Err(Error::Invalid("a null region has nothing to change"));
            }
            Kind::Region { bindings: 0 } => {}
            Kind::Region { .. } => return Err(Error::Busy),
            Kind::Window { .. } => return Err(Error::NoSuchObject),
        }
        if let Some((address, length, iova)) = change.translation {
            check_range(address, length, iova)?;
            (entry.start, entry.length, entry.iova) = (address, length, iova);
        }
        if let Some(access) = change.access {
            check_rights(access)?;
            entry.access = access;
        }
        entry.pd = change.pd.unwrap_or(entry.pd);
        if change.translation.is_none() && change.pd.is_none() {
            // Only the rights change: peers that hold the key continue to use it, as on Linux.
            let serial = self.serial(lkey.0);
            if let Some(known) = self.entry_mut(serial) {
                *known = entry;
            }
            self.note_change(lkey.0);
            return Ok(RegionKeys {
                lkey,
                rkey: Rkey(lkey.0),
            });
        }
        self.remove(lkey.0);
        let key = self.insert(entry, random)?;
        Ok(RegionKeys {
            lkey: Lkey(key),
            rkey: Rkey(key),
        })
    }

    pub(crate) fn deregister(&mut self, lkey: Lkey) -> Result<(), Error> {
        match self.entry(lkey.0).map(|entry| entry.kind) {
            Some(Kind::Region { bindings: 0 }) => {
                self.remove(lkey.0);
                Ok(())
            }
            Some(Kind::Region { .. }) => Err(Error::Busy),
            _ => Err(Error::NoSuchObject),
        }
    }

    /// Whether any region or window belongs to `pd`.
    pub(crate) fn uses(&self, pd: Pd) -> bool {
        self.slots.iter().flatten().any(|entry| entry.pd == pd)
    }

    /// The memory of a local scatter/gather element. Inlined, as those below: a result that a call returns
    /// through memory is read in other widths than it was written, and the load stalls.
    #[inline(always)]
    pub(crate) fn local(&self, pd: Pd, sge: &Sge, need: Access) -> Option<Piece> {
        let entry = self.entry(sge.lkey.0)?;
        let fits = matches!(entry.kind, Kind::Region { .. })
            && entry.pd == pd
            && entry.access.contains(need);
        if fits {
            entry.piece(sge.address, sge.length)
        } else {
            None
        }
    }

    /// The line of the slot that was looked up last.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
        let (_, serial) = self.last.get();
        self.slots
            .get(self.slot(serial))
            .into_iter()
            .for_each(|slot| load(core::ptr::from_ref(slot).cast()));
    }

    /// The memory that a peer names.
    #[inline(always)]
    pub(crate) fn remote(
        &self,
        pd: Pd,
        qpn: Qpn,
        rkey: Rkey,
        address: u64,
        length: u32,
        need: Access,
    ) -> Option<Piece> {
        self.grant(rkey)?.piece(pd, qpn, address, length, need)
    }

    /// The grant of a key; `None` for a window that is not bound.
    #[inline(always)]
    pub(crate) fn grant(&self, rkey: Rkey) -> Option<RegionGrant> {
        let entry = self.entry(rkey.0)?;
        let only = match entry.kind {
            Kind::Window { region: None, .. } => return None,
            Kind::Window {
                kind: WindowKind::Type2,
                qpn: bound,
                ..
            } => Some(bound),
            _ => None,
        };
        let Entry {
            pd,
            start,
            length,
            iova,
            access,
            ..
        } = *entry;
        Some(RegionGrant {
            rkey,
            pd,
            start,
            length,
            iova,
            access,
            only,
        })
    }

    /// Records that the grant of a key may have changed.
    fn note_change(&mut self, key: u32) {
        if self.is_watched {
            self.changed.push(Rkey(key));
        }
    }

    #[inline(always)]
    fn entry(&self, key: u32) -> Option<&Entry> {
        let (last, mut serial) = self.last.get();
        if last != key {
            serial = self.permutation.serial_of(key >> 8);
            self.last.set((key, serial));
        }
        self.slots
            .get(self.slot(serial))?
            .as_ref()
            .filter(|entry| entry.key == key)
    }

    /// The entry with this serial number, which is that of a live region or window.
    fn entry_mut(&mut self, serial: u32) -> Option<&mut Entry> {
        let slot = self.slot(serial);
        self.slots.get_mut(slot)?.as_mut()
    }

    fn insert(&mut self, mut entry: Entry, random: &mut Random) -> Result<u32, Error> {
        if self.used >= self.limit {
            return Err(Error::Exhausted("memory regions or windows"));
        }
        if self.used as usize * 2 >= self.slots.len() {
            self.grow();
        }
        // At least half of the slots are free, so this skips fewer slots than registrations succeed.
        while self.slots[self.slot(self.next_serial)].is_some() {
            self.advance_serial();
        }
        let slot = self.slot(self.next_serial);
        let upper_part = self.permutation.of_serial(self.next_serial);
        entry.key = upper_part << 8 | (random.next_u32() & 0xff);
        self.advance_serial();
        self.slots[slot] = Some(entry);
        self.used += 1;
        self.note_change(entry.key);
        Ok(entry.key)
    }

    fn advance_serial(&mut self) {
        self.next_serial = (self.next_serial + 1) & ((1 << SERIAL_BITS) - 1);
    }

    /// Doubles the table. Two entries never collide: their serial numbers differed in fewer bits.
    fn grow(&mut self) {
        let length = (self.slots.len() * 2).max(SLOTS_MIN);
        let entries = core::mem::replace(&mut self.slots, alloc::vec![None; length]);
        for entry in entries.into_iter().flatten() {
            let slot = self.slot(self.serial(entry.key));
            self.slots[slot] = Some(entry);
        }
    }

    fn remove(&mut self, key: u32) {
        let slot = self.slot(self.serial(key));
        self.slots[slot] = None;
        self.note_change(key);
        self.used -= 1;
    }

    fn serial(&self, key: u32) -> u32 {
        self.permutation.serial_of(key >> 8)
    }

    /// The slot of a serial number. (The length is a power of two, or 0 before the first registration.)
    #[inline(always)]
    fn slot(&self, serial: u32) -> usize {
        serial as usize & self.slots.len().wrapping_sub(1)
    }
}

fn check_range(address: u64, length: u64, iova: u64) -> Result<(), Error> {
    // The implicit on-demand region is all of the address space: length 2^64 - 1 from 0.
    let fits = address.checked_add(length).is_some() && iova.checked_add(length).is_some();
    if fits {
        Ok(())
    } else {
        Err(Error::Invalid("the region wraps around the address space"))
    }
}

/// Remote write and atomic rights need the local one (IBTA 11.2.8.2, and `ibv_reg_mr`).
fn check_rights(access: Access) -> Result<(), Error> {
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::Invalid(
            "remote write or atomic access needs local write access",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::WindowBinding;
    use alloc::collections::BTreeSet;

    fn table() -> (Regions, Random) {
        let mut random = Random::new([7; 32]);
        (Regions::new(1000, &mut random), random)
    }

    fn init(access: Access) -> RegionInit {
        RegionInit {
            address: 0x1000,
            length: 0x100,
            iova: 0x1000,
            access,
        }
    }

    #[test]
    fn keys_of_neighbours_tell_nothing_about_each_other() {
        let (mut regions, mut random) = table();
        let keys: Vec<u32> = (0..100)
            .map(|_| {
                regions
                    .register(Pd(0), init(Access::empty()), &mut random)
                    .unwrap()
                    .lkey
                    .0
            })
            .collect();
        let gaps: BTreeSet<u32> = keys.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(gaps.len() > 95, "gaps between keys repeat: {gaps:?}");
    }

    #[test]
    fn a_key_opens_its_own_range_for_its_own_rights_in_its_own_domain() {
        let (mut regions, mut random) = table();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let keys = regions.register(Pd(3), init(rights), &mut random).unwrap();
        let remote = |pd, key, address, length, need| {
            regions
                .remote(pd, Qpn::new(9), key, address, length, need)
                .is_some()
        };
        assert!(remote(Pd(3), keys.rkey, 0x1000, 0x100, Access::REMOTE_READ));
        assert!(!remote(
            Pd(3),
            keys.rkey,
            0x1001,
            0x100,
            Access::REMOTE_READ
        ));
        assert!(!remote(Pd(3), keys.rkey, 0xfff, 1, Access::REMOTE_READ));
        assert!(!remote(Pd(3), keys.rkey, u64::MAX, 2, Access::REMOTE_READ));
        assert!(!remote(Pd(3), keys.rkey, 0x1000, 1, Access::REMOTE_WRITE));
        assert!(!remote(Pd(4), keys.rkey, 0x1000, 1, Access::REMOTE_READ));
        assert!(!remote(
            Pd(3),
            Rkey(keys.rkey.0 ^ 1),
            0x1000,
            1,
            Access::REMOTE_READ
        ));
    }

    #[test]
    fn a_stale_key_opens_nothing_even_when_its_slot_lives_again() {
        let (mut regions, mut random) = table();
        let old = regions
            .register(Pd(0), init(Access::LOCAL_WRITE), &mut random)
            .unwrap();
        regions.deregister(old.lkey).unwrap();
        for _ in 0..500 {
            let new = regions
                .register(Pd(0), init(Access::LOCAL_WRITE), &mut random)
                .unwrap();
            assert_ne!(new.lkey, old.lkey);
            regions.deregister(new.lkey).unwrap();
        }
        assert_eq!(regions.deregister(old.lkey), Err(Error::NoSuchObject));
    }

    #[test]
    fn ten_thousand_registrations_get_ten_thousand_keys_and_revive_no_old_one() {
        let (mut regions, mut random) = table();
        // Regions that stay, so that the table grows and its serial numbers pass over slots in use.
        let long_lived: Vec<RegionKeys> = (0..100)
            .map(|_| {
                regions
                    .register(Pd(0), init(Access::empty()), &mut random)
                    .unwrap()
            })
            .collect();
        let (mut keys, mut upper_parts) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..10_000 {
            let new = regions
                .register(Pd(0), init(Access::empty()), &mut random)
                .unwrap();
            assert!(
                !keys.contains(&new.lkey.0),
                "key {:#x} is valid again",
                new.lkey.0
            );
            keys.insert(new.lkey.0);
            upper_parts.insert(new.lkey.0 >> 8);
            regions.deregister(new.lkey).unwrap();
        }
        assert_eq!((keys.len(), upper_parts.len()), (10_000, 10_000));
        assert!(
            keys.iter().all(|&key| regions.entry(key).is_none()),
            "an old key is valid"
        );
        assert!(
            long_lived
                .iter()
                .all(|keys| regions.entry(keys.lkey.0).is_some())
        );
    }

    #[test]
    fn windows_and_their_regions_are_found_after_the_table_has_grown() {
        let (mut regions, mut random) = table();
        let rights = Access::LOCAL_WRITE | Access::BIND_WINDOW;
        let region = regions
            .register(Pd(0), init(rights), &mut random)
            .unwrap()
            .lkey;
        let (window, rkey) = regions
            .alloc_window(Pd(0), WindowKind::Type2, &mut random)
            .unwrap();
        let (address, length, access) = (0x1010, 0x10, Access::REMOTE_WRITE);
        let binding = WindowBinding {
            window,
            rkey,
            region,
            address,
            length,
            access,
        };
        assert!(regions.bind(Qpn::new(5), Pd(0), &binding).is_some());
        for _ in 0..500 {
            regions
                .register(Pd(0), init(Access::empty()), &mut random)
                .unwrap();
        }
        assert!(
            regions
                .remote(Pd(0), Qpn::new(5), rkey, address, 1, access)
                .is_some()
        );
        assert_eq!(regions.deregister(region), Err(Error::Busy));
        assert_eq!(regions.dealloc_window(window), Ok(()));
        assert_eq!(regions.dealloc_window(window), Err(Error::NoSuchObject));
        assert_eq!(regions.deregister(region), Ok(()));
    }

    #[test]
    fn serial_numbers_that_are_in_use_are_passed_over_when_they_come_round() {
        let (mut regions, mut random) = table();
        let first = regions
            .register(Pd(0), init(Access::empty()), &mut random)
            .unwrap();
        regions.next_serial = (1 << SERIAL_BITS) - 1;
        let keys: BTreeSet<u32> = (0..3)
            .map(|_| {
                regions
                    .register(Pd(0), init(Access::empty()), &mut random)
                    .unwrap()
                    .lkey
                    .0
                    >> 8
            })
            .collect();
        assert_eq!(keys.len(), 3);
        assert!(!keys.contains(&(first.lkey.0 >> 8)));
        assert!(regions.entry(first.lkey.0).is_some());
    }

    #[test]
    fn a_null_region_is_everywhere_and_nowhere() {
        let (mut regions, mut random) = table();
        let lkey = regions.register_null(Pd(3), &mut random).unwrap();
        let sge = Sge {
            address: 0xdead_beef,
            length: 1 << 31,
            lkey,
        };
        let piece = regions.local(Pd(3), &sge, Access::LOCAL_WRITE).unwrap();
        assert_eq!((piece.length, piece.backing), (1 << 31, Backing::Null));
        assert!(regions.local(Pd(4), &sge, Access::LOCAL_WRITE).is_none());
        let read = Access::REMOTE_READ;
        assert!(
            regions
                .remote(Pd(3), Qpn::new(9), Rkey(lkey.0), 0, 1, read)
                .is_none()
        );
        assert!(
            regions
                .reregister(lkey, RegionChange::default(), &mut random)
                .is_err()
        );
        assert_eq!(regions.deregister(lkey), Ok(()));
    }

    #[test]
    fn a_bound_window_holds_its_region_and_type_2_serves_one_queue_pair() {
        let (mut regions, mut random) = table();
        let rights = Access::LOCAL_WRITE | Access::BIND_WINDOW;
        let keys = regions.register(Pd(0), init(rights), &mut random).unwrap();
        let (window, rkey) = regions
            .alloc_window(Pd(0), WindowKind::Type2, &mut random)
            .unwrap();
        let binding = WindowBinding {
            window,
            rkey: Rkey(rkey.0 ^ 0x55),
            region: keys.lkey,
            address: 0x1010,
            length: 0x10,
            access: Access::REMOTE_WRITE,
        };
        let qpn = Qpn::new(5);
        assert!(regions.bind(qpn, Pd(0), &binding).is_some());
        assert!(
            regions.bind(qpn, Pd(0), &binding).is_none(),
            "bound already"
        );
        assert_eq!(regions.deregister(keys.lkey), Err(Error::Busy));
        let write = Access::REMOTE_WRITE;
        assert!(
            regions
                .remote(Pd(0), qpn, binding.rkey, 0x1010, 0x10, write)
                .is_some()
        );
        assert!(
            regions
                .remote(Pd(0), qpn, binding.rkey, 0x1010, 0x11, write)
                .is_none()
        );
        assert!(
            regions
                .remote(Pd(0), Qpn::new(6), binding.rkey, 0x1010, 1, write)
                .is_none()
        );
        assert!(
            regions
                .invalidate(Qpn::new(6), Pd(0), binding.rkey)
                .is_none()
        );
        assert!(regions.invalidate(qpn, Pd(0), binding.rkey).is_some());
        assert!(
            regions
                .remote(Pd(0), qpn, binding.rkey, 0x1010, 1, write)
                .is_none()
        );
        assert_eq!(regions.deregister(keys.lkey), Ok(()));
    }
}
