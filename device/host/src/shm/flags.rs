//! Flags of the records in a ring.

/// Flag of a record: source and destination are those of the record before it, and are left out.
pub(super) const SAME_PATH: u16 = 1;
/// Flag of a record: a forwarded XRC request. The fields of [`super::forwarded`] replace the addresses.
pub(super) const FORWARDED: u16 = 2;
/// Flag of a record: a [`super::fetch::Reference`] to the payload, which the reader fetches, takes the
/// payload's place.
pub(super) const BY_REFERENCE: u16 = 4;
