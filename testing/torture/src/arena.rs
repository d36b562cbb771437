//! The application memory of one simulated host.

use rnic::{Fault, Gather, Memory, Payload, Piece};

/// Where the arena begins, as the device sees it: not 0, so that an offset taken for an address is noticed.
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// Memory of one host as plain bytes.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Vec<u8>,
}

/// A part of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl Slot {
    pub(super) fn address(&self) -> u64 {
        BASE + self.offset as u64
    }
}

impl Arena {
    pub(super) fn new(length: usize) -> Self {
        Self {
            bytes: vec![0; length],
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn slice(&self, slot: Slot) -> &[u8] {
        &self.bytes[slot.offset..slot.offset + slot.length]
    }

    /// Fills a slot with the pattern of `tag`.
    pub(super) fn paint(&mut self, slot: Slot, tag: u64) {
        for (index, byte) in self.bytes[slot.offset..slot.offset + slot.length]
            .iter_mut()
            .enumerate()
        {
            *byte = pattern(tag, index);
        }
    }

    /// The first byte that is not the pattern's.
    pub(super) fn blemish(&self, slot: Slot, tag: u64) -> Option<usize> {
        self.slice(slot)
            .iter()
            .enumerate()
            .position(|(index, &byte)| byte != pattern(tag, index))
    }

    pub(super) fn word(&self, slot: Slot) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.slice(Slot { length: 8, ..slot }));
        u64::from_ne_bytes(word)
    }

    pub(super) fn gather(&self, gather: Gather<'_>, into: &mut Vec<u8>) {
        match gather {
            Gather::Inline(bytes) => into.extend_from_slice(bytes),
            Gather::Pieces(pieces) => {
                for piece in pieces {
                    into.extend_from_slice(self.slice(slot_of(*piece)));
                }
            }
        }
    }

    /// Writes bytes over pieces one after the other; false where the pieces are not as long.
    pub(super) fn scatter(&mut self, into: Gather<'_>, mut bytes: &[u8]) -> bool {
        let Gather::Pieces(pieces) = into else {
            return false;
        };
        for piece in pieces {
            let Some((part, rest)) = bytes.split_at_checked(piece.length as usize) else {
                return false;
            };
            let slot = slot_of(*piece);
            self.bytes[slot.offset..slot.offset + slot.length].copy_from_slice(part);
            bytes = rest;
        }
        bytes.is_empty()
    }

    fn word_mut(&mut self, piece: Piece) -> &mut [u8] {
        let slot = slot_of(piece);
        &mut self.bytes[slot.offset..slot.offset + 8]
    }
}

/// A byte that depends on the tag and the place: a shifted or foreign copy does not match.
fn pattern(tag: u64, index: usize) -> u8 {
    let mixed = (tag ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 56) as u8
}

fn slot_of(piece: Piece) -> Slot {
    Slot {
        offset: (piece.address - BASE) as usize,
        length: piece.length as usize,
    }
}

impl Memory for Arena {
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault> {
        let slot = slot_of(piece);
        let target = &mut self.bytes[slot.offset..slot.offset + slot.length];
        match payload {
            Payload::Bytes(bytes) => target.copy_from_slice(bytes),
            Payload::Phantom(_) => {}
            Payload::Foreign { .. } => return Err(Fault::Payload),
        }
        Ok(())
    }

    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault> {
        let before = self.word(slot_of(piece));
        self.word_mut(piece)
            .copy_from_slice(&before.wrapping_add(add).to_ne_bytes());
        Ok(before)
    }

    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault> {
        let before = self.word(slot_of(piece));
        if before == compare {
            self.word_mut(piece).copy_from_slice(&swap.to_ne_bytes());
        }
        Ok(before)
    }

    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault> {
        self.word_mut(piece).copy_from_slice(&bytes);
        Ok(())
    }
}
