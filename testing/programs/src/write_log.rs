//! The contents of a disk after a power loss, from the log of all requests to it.
//!
//! QEMU's `blklogwrites` keeps the log in the format of the kernel's dm-log-writes (Documentation/
//! admin-guide/device-mapper/log-writes.rst): a sector with the length of the log, then for each request a
//! sector that describes it, and its data. A disk guarantees the data that were written before a flush that
//! has completed, and those that were written with FUA. The rest may be there or not, block by block, in any
//! order.

use rand_core::RngCore;

use crate::ledger::BLOCK;

/// Bytes of a sector of the log.
pub const SECTOR: usize = 512;
/// The magic number at the beginning of a log.
const MAGIC: u64 = 0x006a_7366_7773_6872;

mod flag {
    pub(super) const FLUSH: u64 = 1;
    pub(super) const FUA: u64 = 2;
    pub(super) const DISCARD: u64 = 4;
}

/// A request of the log: a write, a flush or a discard.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    offset: usize,
    flags: u64,
    data: &'a [u8],
}

/// The requests of a log, in their order.
#[derive(Debug)]
pub struct WriteLog<'a> {
    entries: Vec<Entry<'a>>,
}

impl<'a> WriteLog<'a> {
    /// Reads a log, including the entries behind the length that its super block has: QEMU writes the super
    /// block at a flush, so a power loss before the first flush leaves a file without one, either empty or
    /// with zeros where the super block would be. `None` when the bytes are no log, or fewer than the length
    /// in the super block.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .map(|it| u64::from_le_bytes(*it))
        };
        let (magic, length) = (word(0).unwrap_or(0), word(16).unwrap_or(0));
        if magic != MAGIC && magic != 0 {
            return None;
        }
        let mut entries = Vec::new();
        let mut at = SECTOR;
        while let Some(entry) = entry(bytes, at) {
            at += SECTOR + entry.data.len();
            entries.push(entry);
        }
        (entries.len() as u64 >= length).then_some(Self { entries })
    }

    /// The number of flush requests.
    pub fn flushes(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.flags & flag::FLUSH != 0)
            .count()
    }

    /// Applies the guaranteed writes to a disk, and of the rest those that `random` chooses. Returns how many
    /// blocks of writes were lost.
    pub fn replay(&self, disk: &mut [u8], random: &mut impl RngCore) -> usize {
        let flushed = self
            .entries
            .iter()
            .rposition(|entry| entry.flags & flag::FLUSH != 0)
            .unwrap_or(0);
        let mut lost = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            let is_promised = index <= flushed || entry.flags & flag::FUA != 0;
            for (block, data) in entry.data.chunks(BLOCK).enumerate() {
                let start = entry.offset + block * BLOCK;
                let Some(place) = disk.get_mut(start..start + data.len()) else {
                    continue;
                };
                match is_promised || random.next_u32().is_multiple_of(2) {
                    true => place.copy_from_slice(data),
                    false => lost += 1,
                }
            }
        }
        lost
    }
}

fn entry(bytes: &[u8], at: usize) -> Option<Entry<'_>> {
    let head = bytes.get(at..at + SECTOR)?;
    let word = |index: usize| Some(u64::from_le_bytes(*head.get(index * 8..)?.first_chunk()?));
    let (sector, sectors, flags) = (word(0)?, usize::try_from(word(1)?).ok()?, word(2)?);
    // The part of the log that was not written is zeros, which is no valid request.
    if sectors == 0 && flags & flag::FLUSH == 0 {
        return None;
    }
    // QEMU leaves the field for the length of data empty.
    let length = if flags & flag::DISCARD != 0 {
        0
    } else {
        sectors.checked_mul(SECTOR)?
    };
    let data = bytes.get(at + SECTOR..at + SECTOR + length)?;
    Some(Entry {
        offset: usize::try_from(sector).ok()? * SECTOR,
        flags,
        data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    fn log(requests: &[(u64, u64, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        for (block, flags, fill) in requests {
            let has_data = *fill != 0;
            let mut head = [0; SECTOR];
            let words = [block * 8, if has_data { 8 } else { 0 }, *flags];
            for (place, word) in head.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            bytes.extend(head);
            bytes.extend(vec![*fill; if has_data { BLOCK } else { 0 }]);
        }
        bytes
    }

    #[test]
    fn flushed_writes_stay_and_others_are_kept_at_random() {
        let bytes = log(&[
            (0, 0, 1),
            (1, 0, 2),
            (0, flag::FLUSH, 0),
            (1, 0, 3),
            (2, flag::FUA, 4),
        ]);
        let log = WriteLog::parse(&bytes).unwrap();
        assert_eq!((log.entries.len(), log.flushes()), (5, 1));
        let mut second = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let mut disk = vec![0; 3 * BLOCK];
            let lost = log.replay(&mut disk, &mut ChaCha8Rng::seed_from_u64(seed));
            assert_eq!((disk[0], disk[2 * BLOCK]), (1, 4));
            assert_eq!(disk[BLOCK] == 2, lost == 1);
            second.insert(disk[BLOCK]);
        }
        assert_eq!(second.into_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(WriteLog::parse(&bytes[1..]).is_none());
        let mut longer = bytes.clone();
        longer[16] = 6;
        assert!(WriteLog::parse(&longer).is_none());
    }

    #[test]
    fn a_log_without_a_super_block_has_no_flush() {
        assert!(WriteLog::parse(&[]).is_some_and(|log| log.entries.is_empty()));
        let mut bytes = log(&[(0, 0, 1)]);
        bytes[..8].fill(0);
        assert_eq!(
            WriteLog::parse(&bytes).map(|log| (log.entries.len(), log.flushes())),
            Some((1, 0))
        );
    }
}
