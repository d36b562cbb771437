//! The 64 bytes of a command (Base 3.3.3.1), and its fields by command set.

use super::sgl::{Sgl, SglError};
use crate::layout::layouts;

/// Bytes of a command.
pub const COMMAND_SIZE: usize = 64;

layouts! {
    /// A command as it is laid out in a capsule.
    Command[64] {
        /// The opcode: see [`super::opcode`].
        opcode: u8 = 0;
        /// Fused operation in bits 0 and 1, how data are described in 6 and 7.
        flags: u8 = 1;
        /// The host's name for it, given back in the completion.
        cid: u16 = 2;
        /// The namespace. The first byte is the type of a fabrics command.
        nsid: u32 = 4;
        /// Command dword 2, by command.
        cdw2: u32 = 8;
        /// Command dword 3, by command.
        cdw3: u32 = 12;
        /// Metadata. Not used on fabrics.
        metadata: u64 = 16;
        /// Where the data are: an SGL descriptor on fabrics.
        data: [u8; 16] = 24;
        /// Command dword 10, by command.
        cdw10: u32 = 40;
        /// Command dword 11, by command.
        cdw11: u32 = 44;
        /// Command dword 12, by command.
        cdw12: u32 = 48;
        /// Command dword 13, by command.
        cdw13: u32 = 52;
        /// Command dword 14, by command.
        cdw14: u32 = 56;
        /// Command dword 15, by command.
        cdw15: u32 = 60;
    }
}

/// Whether a command and its neighbour are one operation (Base 3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuse {
    /// The command is not fused.
    No,
    /// First command of a fused pair.
    First,
    /// Second command of a fused pair.
    Second,
    /// The reserved value.
    Reserved,
}

/// The position of the SGL bits (PSDT) in [`Command::flags`].
const PSDT_SHIFT: u8 = 6;
/// "SGL, metadata in one buffer", which fabrics require (Base 3.3.3.1).
pub const PSDT_SGL: u8 = 1;

/// The range of blocks that a command covers: Read, Write, Compare and their like (NVM 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first logical block (SLBA).
    pub start: u64,
    /// How many, at least one.
    pub count: u32,
}

impl Command {
    /// Whether the command is part of a fused operation.
    #[inline]
    pub const fn fuse(&self) -> Fuse {
        match self.flags & 3 {
            0 => Fuse::No,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// How the data are described: [`PSDT_SGL`] on fabrics.
    #[inline]
    pub const fn psdt(&self) -> u8 {
        self.flags >> PSDT_SHIFT
    }

    /// This command with its data described by `sgl`.
    #[inline]
    #[must_use]
    pub fn with_sgl(mut self, sgl: Sgl) -> Self {
        self.flags = self.flags & 3 | PSDT_SGL << PSDT_SHIFT;
        self.data = sgl.to_bytes();
        self
    }

    /// The descriptor of its data.
    ///
    /// # Errors
    /// When the type is unknown.
    #[inline]
    pub fn sgl(&self) -> Result<Sgl, SglError> {
        Sgl::parse(&self.data)
    }

    /// The type of a fabrics command.
    #[inline]
    pub const fn fabrics_type(&self) -> u8 {
        self.nsid as u8
    }

    /// The blocks that an I/O command names: 64 bits in dwords 10 and 11, their count less one in the low
    /// half
    /// of dword 12.
    #[inline]
    pub const fn blocks(&self) -> Blocks {
        Blocks {
            start: self.qword10(),
            count: (self.cdw12 & 0xffff) + 1,
        }
    }

    /// Dwords 10 and 11 as one number.
    #[inline]
    pub const fn qword10(&self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }

    /// Dwords 12 and 13 as one number.
    #[inline]
    pub const fn qword12(&self) -> u64 {
        self.cdw12 as u64 | (self.cdw13 as u64) << 32
    }

    /// Dwords 14 and 15 as one number.
    #[inline]
    pub const fn qword14(&self) -> u64 {
        self.cdw14 as u64 | (self.cdw15 as u64) << 32
    }

    /// "Force unit access": bit 30 of dword 12 of Read and Write.
    #[inline]
    pub const fn forces_unit_access(&self) -> bool {
        self.cdw12 & 1 << 30 != 0
    }

    /// Protection information fields: bits 26 to 29 of dword 12.
    #[inline]
    pub const fn protection(&self) -> u8 {
        (self.cdw12 >> 26 & 0xf) as u8
    }

    /// The command that names these blocks.
    #[inline]
    #[must_use]
    pub const fn with_blocks(mut self, blocks: Blocks) -> Self {
        self.cdw10 = blocks.start as u32;
        self.cdw11 = (blocks.start >> 32) as u32;
        self.cdw12 = self.cdw12 & !0xffff | (blocks.count.wrapping_sub(1) & 0xffff);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_from_one() {
        let blocks = Blocks {
            start: 0x1_0000_0002,
            count: 0x1_0000,
        };
        let command = Command {
            cdw12: 1 << 30,
            ..Command::default()
        }
        .with_blocks(blocks);
        assert_eq!(
            (command.cdw10, command.cdw11, command.cdw12),
            (2, 1, 1 << 30 | 0xffff)
        );
        assert_eq!(command.blocks(), blocks);
        assert!(command.forces_unit_access());
    }

    #[test]
    fn a_descriptor_brings_its_flags() {
        let sgl = Sgl::Transport { length: 4096 };
        let command = Command {
            flags: 2,
            ..Command::default()
        }
        .with_sgl(sgl);
        assert_eq!(
            (command.psdt(), command.fuse(), command.sgl()),
            (PSDT_SGL, Fuse::Second, Ok(sgl))
        );
    }
}
