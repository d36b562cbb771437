//! Sizes of queues and buffers, and their limits.

/// Work requests of a direction: more than the control messages need, and at most what the 16-bit credits can
/// count.
pub(super) const REQUESTS: core::ops::RangeInclusive<u32> = 16..=0x7ffe;
/// Buffer sizes: at least two halves of a page, and at most what one message can announce.
pub(super) const BYTES: core::ops::RangeInclusive<usize> = 4096..=256 << 20;
/// Work requests reserved for control messages.
pub(super) const CONTROL_REQUESTS: u32 = 4;
/// Access to memory that the peer writes: `IBV_ACCESS_LOCAL_WRITE` and `IBV_ACCESS_REMOTE_WRITE`.
pub(super) const PEER_WRITES: u32 = 1 | 2;
/// Inline bytes of one request at most.
pub(super) const INLINE_BYTES_MAX: u32 = 1024;
/// Sizes with which a connection is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) inline_bytes: u32,
    pub(super) send_bytes: usize,
    pub(super) receive_bytes: usize,
    pub(super) mappings: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            sends: 384,
            receives: 384,
            inline_bytes: 64,
            send_bytes: 1 << 20,
            receive_bytes: 1 << 20,
            mappings: 0,
        }
    }
}
