//! Messages by which two devices open a shared-memory channel, over a Unix socket.
//!
//! ```text
//! Hello:  version, range of queue pair numbers of the sender, range asked for, address of the sender's grant
//!         table; with the descriptors of the channel's memory, of the sender's wake-up socket and, if it has
//!         one, of its grant table
//! Answer: welcome, address of the grant table; with the descriptors of the wake-up socket and, if there is
//!         one, of the grant table
//!         or crossed: both asked at once, and the other request is the one that counts
//! ```

/// Version of these messages and of the layout of the shared memory. Devices of different versions use
/// packets.
const VERSION: u32 = 5;

/// Request for a channel to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// The sender's range of queue pair numbers.
    pub(super) from: u32,
    /// The receiver's range of queue pair numbers.
    pub(super) to: u32,
    /// Address of the grant table in the sender's memory.
    pub(super) grants: u64,
}

impl Hello {
    pub(super) const BYTES: usize = 20;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.to.to_le_bytes());
        bytes[12..].copy_from_slice(&self.grants.to_le_bytes());
        bytes
    }

    /// `None` for a message of another version.
    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let grants = u64::from(word(12)) | u64::from(word(16)) << 32;
        (word(0) == VERSION).then(|| Self {
            from: word(4),
            to: word(8),
            grants,
        })
    }
}

/// The answer to a [`Hello`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The channel is open. The number is the address of the grant table in the answering process's memory.
    Welcome(u64),
    /// Both devices sent a request at once, and that of the answering device is used.
    Crossed,
}

impl Answer {
    pub(super) const BYTES: usize = 9;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, grants) = match self {
            Self::Welcome(grants) => (1, grants),
            Self::Crossed => (2, 0),
        };
        let mut bytes = [kind; Self::BYTES];
        bytes[1..].copy_from_slice(&grants.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let grants = std::array::from_fn(|byte| bytes[byte + 1]);
        match bytes[0] {
            1 => Some(Self::Welcome(u64::from_le_bytes(grants))),
            2 => Some(Self::Crossed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_encoded() {
        let hello = Hello {
            from: 5,
            to: 0x3ff,
            grants: 0x7fff_1234_5678,
        };
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
