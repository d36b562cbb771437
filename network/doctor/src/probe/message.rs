//! Messages between two ends of a probe, as payload of UD packets. Integers are big-endian.
//!
//! ```text
//! magic 0..8, kind 8..12, eight words 12..44, padding up to the size that is tested
//! ```

const MAGIC: [u8; 8] = *b"rkprobe1";
const WORDS: usize = 8;

/// Bytes of a message without padding.
pub const MESSAGE_BYTES: usize = MAGIC.len() + 4 + 4 * WORDS;

/// The report of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// The number of the question.
    pub question: u32,
    /// DSCP and ECN as they arrived.
    pub traffic_class: u8,
    /// TTL or hop limit as it arrived.
    pub hop_limit: u8,
    /// Bytes of the UDP payload.
    pub bytes: u32,
    /// Value for this peer that its [`LoadOrder`] has to repeat: the sender of a forged source address does
    /// not receive it.
    pub nonce: u64,
    /// The highest load in kb/s that this end sends on request; 0 where it sends none.
    pub load_kbps: u32,
}

/// A request for load: packets of one size at one rate, for a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoadOrder {
    /// The last nonce that the listener gave this peer.
    pub nonce: u64,
    /// Names the stream in its packets.
    pub stream: u32,
    /// DSCP and ECN of its packets.
    pub traffic_class: u8,
    /// Bytes of an IP packet.
    pub bytes: u32,
    /// The rate in kb/s of IP packets.
    pub kbps: u32,
    /// The duration in milliseconds.
    pub millis: u32,
}

/// The sender's counters of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoadEnd {
    /// The name of the stream.
    pub stream: u32,
    /// Packets that were handed to the network.
    pub sent: u32,
    /// Packets that were due while the interface took none: it was paused, or is slower than the rate.
    pub held_back: u32,
    /// Packets that were due while the sender's program was not scheduled.
    pub behind: u32,
}

impl LoadEnd {
    /// Returns the counters where the sender's own interface has dropped so many of the packets that it was
    /// handed: they were held back, and not lost in the network.
    #[must_use]
    pub fn without_own_drops(mut self, dropped: u32) -> Self {
        let dropped = dropped.min(self.sent);
        (self.sent, self.held_back) = (self.sent - dropped, self.held_back.saturating_add(dropped));
        self
    }
}

/// A message between two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeMessage {
    /// Requests a report on this packet; the answer has this traffic class.
    Look {
        /// The number of the question.
        question: u32,
        /// DSCP and ECN of the answer.
        traffic_class: u8,
    },
    /// The answer to a look.
    Seen(Seen),
    /// Requests load from the receiver.
    Order(LoadOrder),
    /// Refuses load: not allowed, or not at this rate.
    Refused {
        /// The name of the stream.
        stream: u32,
        /// The highest rate that is allowed for this peer, in kb/s.
        allowed_kbps: u32,
    },
    /// A packet of a stream.
    Load {
        /// The name of the stream.
        stream: u32,
        /// Counts the packets of the stream.
        index: u32,
    },
    /// The end of a stream.
    Ended(LoadEnd),
    /// The sender, a host of a mesh, has no more requests.
    Finished,
}

impl ProbeMessage {
    /// The bytes of the message, padded to so many and to a multiple of four.
    pub fn to_bytes(self, bytes: usize) -> Vec<u8> {
        let halves = |number: u64| [(number >> 32) as u32, number as u32];
        let (kind, words): (u32, Vec<u32>) = match self {
            Self::Look {
                question,
                traffic_class,
            } => (1, vec![question, traffic_class.into()]),
            Self::Seen(seen) => {
                let [high, low] = halves(seen.nonce);
                let marks = [seen.traffic_class.into(), seen.hop_limit.into(), seen.bytes];
                (
                    2,
                    [&[seen.question][..], &marks, &[high, low, seen.load_kbps]].concat(),
                )
            }
            Self::Order(order) => {
                let [high, low] = halves(order.nonce);
                let class = order.traffic_class.into();
                (
                    3,
                    vec![
                        high,
                        low,
                        order.stream,
                        class,
                        order.bytes,
                        order.kbps,
                        order.millis,
                    ],
                )
            }
            Self::Refused {
                stream,
                allowed_kbps,
            } => (4, vec![stream, allowed_kbps]),
            Self::Load { stream, index } => (5, vec![stream, index]),
            Self::Ended(end) => (6, vec![end.stream, end.sent, end.held_back, end.behind]),
            Self::Finished => (7, Vec::new()),
        };
        let mut out = Vec::with_capacity(bytes.max(MESSAGE_BYTES) + 3);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        out.resize(bytes.max(MESSAGE_BYTES).next_multiple_of(4), 0);
        out
    }

    /// Parses a message; `None` for anything else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let word = |index: usize| {
            let bytes = rest.get(4 * index..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let byte = |index| word(index).and_then(|word| u8::try_from(word).ok());
        let both = |index| Some(u64::from(word(index)?) << 32 | u64::from(word(index + 1)?));
        // All messages have room for all words, so that a request is never shorter than its answer.
        word(WORDS)?;
        Some(match word(0)? {
            1 => Self::Look {
                question: word(1)?,
                traffic_class: byte(2)?,
            },
            2 => Self::Seen(Seen {
                question: word(1)?,
                traffic_class: byte(2)?,
                hop_limit: byte(3)?,
                bytes: word(4)?,
                nonce: both(5)?,
                load_kbps: word(7)?,
            }),
            3 => Self::Order(LoadOrder {
                nonce: both(1)?,
                stream: word(3)?,
                traffic_class: byte(4)?,
                bytes: word(5)?,
                kbps: word(6)?,
                millis: word(7)?,
            }),
            4 => Self::Refused {
                stream: word(1)?,
                allowed_kbps: word(2)?,
            },
            5 => Self::Load {
                stream: word(1)?,
                index: word(2)?,
            },
            6 => Self::Ended(LoadEnd {
                stream: word(1)?,
                sent: word(2)?,
                held_back: word(3)?,
                behind: word(4)?,
            }),
            7 => Self::Finished,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_at_every_size_and_shorter_ones_are_refused() {
        let seen = Seen {
            question: 7,
            traffic_class: 106,
            hop_limit: 63,
            bytes: 4140,
            nonce: 0x0123_4567_89ab_cdef,
            load_kbps: 40_000,
        };
        let order = LoadOrder {
            nonce: u64::MAX - 5,
            stream: 2,
            traffic_class: 106,
            bytes: 4160,
            kbps: 9,
            millis: 2000,
        };
        let end = LoadEnd {
            stream: 2,
            sent: 9,
            held_back: 8,
            behind: 7,
        };
        for message in [
            ProbeMessage::Look {
                question: 7,
                traffic_class: 106,
            },
            ProbeMessage::Seen(seen),
            ProbeMessage::Order(order),
            ProbeMessage::Refused {
                stream: 2,
                allowed_kbps: 11,
            },
            ProbeMessage::Load {
                stream: 2,
                index: u32::MAX,
            },
            ProbeMessage::Ended(end),
            ProbeMessage::Finished,
        ] {
            for bytes in [0, 45, 4109] {
                let written = message.to_bytes(bytes);
                assert!(written.len() >= bytes && written.len().is_multiple_of(4));
                assert_eq!(ProbeMessage::parse(&written), Some(message));
            }
            assert_eq!(
                ProbeMessage::parse(&message.to_bytes(0)[..MESSAGE_BYTES - 1]),
                None
            );
        }
    }
}
