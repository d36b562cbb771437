//! Limits of work requests.

/// Scatter/gather elements per work request at most: the device's `max_sge`.
pub(crate) const SGES: usize = 32;
/// Bytes of inline data at most: the device's limit.
pub(crate) const INLINE: usize = 1024;
