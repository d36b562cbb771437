//! What two devices say to each other before they share memory, over a Unix socket.
//!
//! ```text
//! Hello: version, the asker's slot, the slot asked for; the memory's descriptor comes with it
//! Answer: welcome, or crossed (both asked at once, and the other way it is)
//! ```

/// Changes whenever what is said, or what is in the memory, means something else. Another version has no
/// lane, and is reached by packets.
const VERSION: u32 = 1;

/// Asks for a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Hello {
    pub(super) const BYTES: usize = 12;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }

    /// `None` when it is of another version.
    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (word(0) == VERSION).then(|| Self { from: word(4), to: word(8) })
    }
}

/// What is said to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Welcome,
    Crossed,
}

impl Answer {
    pub(super) const BYTES: usize = 4;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        (self as u32 + 1).to_le_bytes()
    }

    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        [Self::Welcome, Self::Crossed].into_iter().find(|answer| answer.to_bytes() == bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let hello = Hello { from: 5, to: 0x3ff };
        assert_eq!(Hello::parse(hello.to_bytes()), Some(hello));
        let mut newer = hello.to_bytes();
        newer[0] += 1;
        assert_eq!(Hello::parse(newer), None);
        for answer in [Answer::Welcome, Answer::Crossed] {
            assert_eq!(Answer::parse(answer.to_bytes()), Some(answer));
        }
        assert_eq!(Answer::parse([0; 4]), None);
    }
}
