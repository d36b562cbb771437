//! The terms of a session between a client and an export: properties, limits, and faults that end it.

use thiserror::Error;

/// The longest request in bytes. A longer one ends the session, because the block sizes that the client
/// received contain the limit.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Transmission flags of an export.
pub mod flag {
    /// The flags field is valid.
    pub const HAS_FLAGS: u16 = 1;
    /// The export is read-only.
    pub const READ_ONLY: u16 = 1 << 1;
    /// NBD_CMD_FLUSH is supported.
    pub const FLUSH: u16 = 1 << 2;
    /// NBD_CMD_FLAG_FUA is supported.
    pub const FUA: u16 = 1 << 3;
    /// NBD_CMD_TRIM is supported.
    pub const TRIM: u16 = 1 << 5;
    /// NBD_CMD_WRITE_ZEROES is supported.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// NBD_CMD_FLAG_DF is supported. A session adds it where the client has negotiated structured replies.
    pub const DONT_FRAGMENT: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all (NBD_FLAG_CAN_MULTI_CONN).
    pub const MULTIPLE: u16 = 1 << 8;
}

/// The properties of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The name of the export. The empty name selects it too.
    pub name: String,
    /// What the export is, for people (NBD_INFO_DESCRIPTION).
    pub description: String,
    /// The size in bytes.
    pub size: u64,
    /// The block size of the disk in bytes, which clients that ask get as the minimum block size. Requests
    /// that are no multiples of it are carried out too.
    pub block_size: u32,
    /// Transmission flags: a sum of constants of [`flag`].
    pub flags: u16,
}

impl Export {
    pub(super) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }
}

/// Why a session ends before the client disconnects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// The client set unknown handshake flags, or sent an option that needs fixed newstyle negotiation
    /// without having agreed to it.
    #[error("the client does not use the newstyle negotiation of NBD")]
    Handshake,
    /// A magic number is wrong.
    #[error("the client sent a wrong magic number")]
    Magic,
    /// An option or a request is longer than the limit.
    #[error("the client sent an option or a request longer than the limit")]
    TooLong,
    /// The client sent more options than the limit.
    #[error("the client sent too many options")]
    TooMany,
    /// The client requested an export that does not exist.
    #[error("the client requested an export that does not exist")]
    NoSuchExport,
}
