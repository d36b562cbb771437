//! Requests of NBD clients: their fields, which of them are valid, and what they demand.

use super::Errno;
use super::negotiation::Agreed;
use super::terms::{Export, Fault, REQUEST_BYTES_MAX, flag};

/// Bytes of a request without its data.
pub(super) const REQUEST_SIZE: usize = 28;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;

/// Types of requests, and their flags.
pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    pub(in crate::nbd) const DISCONNECT: u16 = 2;
    pub(in crate::nbd) const FLUSH: u16 = 3;
    pub(in crate::nbd) const TRIM: u16 = 4;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 7;
    pub(in crate::nbd) const FUA: u16 = 1;
    pub(in crate::nbd) const NO_HOLE: u16 = 1 << 1;
    pub(in crate::nbd) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(in crate::nbd) const ONE_EXTENT: u16 = 1 << 3;
}

/// A request of the client: its cookie, and a range in bytes. Ranges have at least one byte and lie
/// within the export; they need not be multiples of the block size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand<'a> {
    /// Read a range (NBD_CMD_READ).
    Read {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: usize,
    },
    /// Write a range (NBD_CMD_WRITE).
    Write {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The bytes to write.
        data: &'a [u8],
        /// Whether the data have to be on the medium before the reply (FUA).
        durable: bool,
    },
    /// Flush all finished writes to the medium (NBD_CMD_FLUSH).
    Flush {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
    },
    /// Deallocate a range (NBD_CMD_TRIM).
    Trim {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
    },
    /// Make a range read as zeros (NBD_CMD_WRITE_ZEROES).
    Zero {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
        /// Whether the range may be deallocated.
        may_deallocate: bool,
        /// Whether the data have to be on the medium before the reply (FUA).
        durable: bool,
    },
}

/// A request as it is on the wire, without its data.
pub(super) struct NbdRequest {
    flags: u16,
    pub(super) kind: u16,
    pub(super) cookie: u64,
    offset: u64,
    pub(super) length: u32,
}

impl NbdRequest {
    /// Reads the fields of a request.
    pub(super) fn parse(b: &[u8; REQUEST_SIZE]) -> Result<Self, Fault> {
        if u32::from_be_bytes([b[0], b[1], b[2], b[3]]) != REQUEST_MAGIC {
            return Err(Fault::Magic);
        }
        Ok(Self {
            flags: u16::from_be_bytes([b[4], b[5]]),
            kind: u16::from_be_bytes([b[6], b[7]]),
            cookie: u64::from_be_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            offset: u64::from_be_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
            length: u32::from_be_bytes([b[24], b[25], b[26], b[27]]),
        })
    }

    /// The number of data bytes that follow the request.
    pub(super) fn data_bytes(&self) -> usize {
        if self.kind == command::WRITE {
            self.length as usize
        } else {
            0
        }
    }

    /// Checks type, flags and range against what the export offers and the client has negotiated.
    pub(super) fn check_against(&self, export: &Export, agreed: &Agreed) -> Errno {
        let Self {
            flags,
            kind,
            offset,
            length,
            ..
        } = *self;
        let has = export.flags;
        // The transmission flag without which the type is unknown, and the flags that only this type has.
        let (wanted, own) = match kind {
            command::READ if agreed.structured => (0, command::DONT_FRAGMENT),
            command::READ | command::WRITE => (0, 0),
            command::FLUSH => (flag::FLUSH, 0),
            command::TRIM => (flag::TRIM, 0),
            command::WRITE_ZEROES => (flag::WRITE_ZEROES, command::NO_HOLE),
            command::BLOCK_STATUS if agreed.allocation => (0, command::ONE_EXTENT),
            _ => return Errno::Invalid,
        };
        let writes = matches!(kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        // FUA is allowed with every command, and means nothing to those that write nothing.
        let allowed = own
            | if has & flag::FUA != 0 {
                command::FUA
            } else {
                0
            };
        let is_inside = offset
            .checked_add(length.into())
            .is_some_and(|end| end <= export.size);
        match kind {
            _ if writes && has & flag::READ_ONLY != 0 => Errno::Permission,
            _ if flags & !allowed != 0 || has & wanted != wanted => Errno::Invalid,
            command::FLUSH if offset != 0 || length != 0 => Errno::Invalid,
            command::READ if length as usize > REQUEST_BYTES_MAX => Errno::Invalid,
            command::BLOCK_STATUS if length == 0 => Errno::Invalid,
            command::WRITE | command::WRITE_ZEROES if !is_inside => Errno::NoSpace,
            _ if !is_inside => Errno::Invalid,
            _ => Errno::Success,
        }
    }

    /// The action that the request asks for; `data` are the bytes behind it.
    pub(super) fn demand<'a>(&self, data: &'a [u8]) -> Demand<'a> {
        let Self {
            flags,
            kind,
            cookie,
            offset,
            length,
        } = *self;
        let durable = flags & command::FUA != 0;
        match kind {
            command::READ => Demand::Read {
                cookie,
                offset,
                length: length as usize,
            },
            command::WRITE => Demand::Write {
                cookie,
                offset,
                data,
                durable,
            },
            command::TRIM => Demand::Trim {
                cookie,
                offset,
                length: length.into(),
            },
            command::WRITE_ZEROES => {
                let may_deallocate = flags & command::NO_HOLE == 0;
                Demand::Zero {
                    cookie,
                    offset,
                    length: length.into(),
                    may_deallocate,
                    durable,
                }
            }
            // `check` refuses all other types.
            _ => Demand::Flush { cookie },
        }
    }
}
