//! Credits of one virtual lane of a link (IBTA 7.9): the receiver says how many blocks it has room for, as an
//! absolute count, and the sender counts what it has sent.

/// Bytes of a block, the unit of credits.
pub const BLOCK_BYTES: u32 = 64;

/// Counters of blocks have twelve bits.
const MASK: u16 = 0xfff;

/// Blocks that a receiver offers at most: half of what counters distinguish, so that a sender can tell what
/// is ahead of it from what is behind.
pub const BLOCKS_MAX: u16 = 2_048;

/// The blocks of a packet of so many bytes, LRH to VCRC.
pub const fn blocks(length: u16) -> u16 {
    length.div_ceil(BLOCK_BYTES as u16)
}

/// What a flow control packet says about one lane in its receiver's direction: the Flow Control Credit Limit
/// (FCCL). The other count of such a packet, the blocks sent (FCTBS), is left out here: it tells a receiver
/// how many blocks were lost on the link, which the driver of the link says instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CreditUpdate {
    /// The virtual lane.
    pub lane: u8,
    /// Blocks that were sent since the link came up, modulo 4,096 (FCTBS).
    pub sent: u16,
    /// The block up to which the peer may send, modulo 4,096 (FCCL).
    pub limit: u16,
}

/// Bytes of a flow control packet: six, and two delimiters.
pub const CREDIT_PACKET_BYTES: u32 = 8;

/// The sender's half of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CreditSender {
    /// Blocks sent (FCTBS), modulo 4,096.
    sent: u16,
    /// The peer's limit (FCCL).
    limit: u16,
}

impl CreditSender {
    /// A link has been initialized, and the peer has room for so many blocks.
    pub(super) fn new(room: u16) -> Self {
        Self {
            sent: 0,
            limit: room.min(BLOCKS_MAX),
        }
    }

    /// Whether a packet of so many blocks may be sent: if (FCCL - (FCTBS + blocks)) modulo 4,096 is 2,048 at
    /// most.
    pub(super) fn allows(self, blocks: u16) -> bool {
        let after = self.sent.wrapping_add(blocks);
        self.limit.wrapping_sub(after) & MASK <= BLOCKS_MAX
    }

    /// A packet leaves.
    pub(super) fn send(&mut self, blocks: u16) {
        self.sent = self.sent.wrapping_add(blocks) & MASK;
    }

    /// The peer has another limit. An older one, which a newer one has overtaken, changes nothing.
    pub(super) fn set_limit(&mut self, limit: u16) {
        if limit.wrapping_sub(self.limit) & MASK <= BLOCKS_MAX {
            self.limit = limit & MASK;
        }
    }

    /// Blocks sent so far, modulo 4,096.
    pub(super) fn sent(self) -> u16 {
        self.sent
    }

    /// Blocks that may still be sent.
    pub(super) fn credits(self) -> u16 {
        self.limit.wrapping_sub(self.sent) & MASK
    }
}

/// The receiver's half of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CreditReceiver {
    /// Blocks received (ABR), modulo 4,096.
    received: u16,
    /// Blocks of packets that have not left.
    held: u16,
    /// Blocks of the lane's buffer.
    capacity: u16,
}

impl CreditReceiver {
    pub(super) fn new(capacity: u16) -> Self {
        Self {
            received: 0,
            held: 0,
            capacity,
        }
    }

    /// A packet has arrived.
    pub(super) fn receive(&mut self, blocks: u16) {
        self.received = self.received.wrapping_add(blocks) & MASK;
        self.held = self.held.saturating_add(blocks);
    }

    /// A packet was lost on the link: the peer's count of sent blocks says so.
    pub(super) fn skip(&mut self, blocks: u16) {
        self.received = self.received.wrapping_add(blocks) & MASK;
    }

    /// A packet has left the buffer.
    pub(super) fn release(&mut self, blocks: u16) {
        self.held = self.held.saturating_sub(blocks);
    }

    /// The limit that the peer is told: what has arrived, and room for more.
    pub(super) fn limit(self) -> u16 {
        let room = self.capacity.saturating_sub(self.held).min(BLOCKS_MAX);
        self.received.wrapping_add(room) & MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_never_has_more_under_way_than_there_is_room() {
        for capacity in [66, 130, 1_000, BLOCKS_MAX, 4_000] {
            let room = capacity.min(BLOCKS_MAX);
            let (mut sender, mut receiver) =
                (CreditSender::new(room), CreditReceiver::new(capacity));
            let mut held = alloc::collections::VecDeque::new();
            let (mut sum, mut sent) = (0, 0_u32);
            // Counters of twelve bits wrap around several times.
            for step in 0_u16..2_000 {
                let packet = 1 + step * 7 % 65;
                while !sender.allows(packet) {
                    let oldest: u16 = held.pop_front().unwrap();
                    sum -= oldest;
                    receiver.release(oldest);
                    sender.set_limit(receiver.limit());
                }
                sender.send(packet);
                receiver.receive(packet);
                held.push_back(packet);
                (sum, sent) = (sum + packet, sent + u32::from(packet));
                assert!(sum <= capacity, "{sum} blocks in {capacity}");
            }
            assert!(sent > 4 * 4_096);
        }
    }

    #[test]
    fn a_packet_needs_credits_for_all_of_its_blocks() {
        let mut sender = CreditSender::new(65);
        assert!(sender.allows(65) && !sender.allows(66));
        sender.send(60);
        assert_eq!(
            (sender.credits(), sender.allows(5), sender.allows(6)),
            (5, true, false)
        );
        assert_eq!([1, 64, 65, 4_122].map(blocks), [1, 1, 2, 65]);
    }

    #[test]
    fn an_older_limit_changes_nothing() {
        let mut sender = CreditSender::new(100);
        sender.set_limit(180);
        sender.set_limit(120);
        assert_eq!(sender.credits(), 180);
    }

    #[test]
    fn lost_blocks_come_back_when_the_receiver_hears_of_them() {
        let (mut sender, mut receiver) = (CreditSender::new(100), CreditReceiver::new(100));
        sender.send(65);
        sender.set_limit(receiver.limit());
        assert_eq!(sender.credits(), 35);
        receiver.skip(65);
        sender.set_limit(receiver.limit());
        assert_eq!(sender.credits(), 100);
    }
}
