//! What two devices say to each other before they share memory, over a Unix socket.
//!
//! ```text
//! Hello: version, the asker's slot, the slot asked for, the address of its book;
//!        with the descriptors of the lane's memory, of the bell and, if there is one, of the book
//! Answer: welcome, the address of the book; with the bell's descriptor and, if there is one, the book's
//!         crossed (both asked at once, and the other way it is)
//! ```

/// Changes whenever what is said, or what is in the memory, means something else. Another version has no
/// lane, and is reached by packets.
const VERSION: u32 = 4;

/// Asks for a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Where the asker has its book.
    pub(super) book: u64,
}

impl Hello {
    pub(super) const BYTES: usize = 20;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.to.to_le_bytes());
        bytes[12..].copy_from_slice(&self.book.to_le_bytes());
        bytes
    }

    /// `None` when it is of another version.
    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let book = u64::from(word(12)) | u64::from(word(16)) << 32;
        (word(0) == VERSION).then(|| Self { from: word(4), to: word(8), book })
    }
}

/// What is said to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// With the address of a book.
    Welcome(u64),
    Crossed,
}

impl Answer {
    pub(super) const BYTES: usize = 9;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, book) = match self {
            Self::Welcome(book) => (1, book),
            Self::Crossed => (2, 0),
        };
        let mut bytes = [kind; Self::BYTES];
        bytes[1..].copy_from_slice(&book.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let book = std::array::from_fn(|byte| bytes[byte + 1]);
        match bytes[0] {
            1 => Some(Self::Welcome(u64::from_le_bytes(book))),
            2 => Some(Self::Crossed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let hello = Hello { from: 5, to: 0x3ff, book: 0x7fff_1234_5678 };
        assert_eq!(Hello::parse(hello.to_bytes()), Some(hello));
        let mut newer = hello.to_bytes();
        newer[0] += 1;
        assert_eq!(Hello::parse(newer), None);
        for answer in [Answer::Welcome(0x7f00_0000_0001), Answer::Crossed] {
            assert_eq!(Answer::parse(answer.to_bytes()), Some(answer));
        }
        assert_eq!(Answer::parse([0; Answer::BYTES]), None);
    }
}
