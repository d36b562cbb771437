//! Ranges of blocks that Dataset Management and Copy name (NVM 3.2.3, 3.2.2).

use crate::layout::layouts;

/// "Deallocate": bit 2 of dword 11 of Dataset Management.
pub const DEALLOCATE: u32 = 1 << 2;

layouts! {
    /// A range of Dataset Management.
    Range[16] {
        /// Hints that are not used here.
        attributes: u32 = 0;
        /// How many blocks.
        count: u32 = 4;
        /// The first logical block of the range.
        start: u64 = 8;
    }
    /// A source range of Copy, descriptor format 0.
    CopyRange[32] {
        /// The first block.
        start: u64 = 8;
        /// How many blocks, less one.
        count_less_one: u16 = 16;
    }
}
