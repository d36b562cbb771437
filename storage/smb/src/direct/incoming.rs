//! Fragments of messages that arrive (MS-SMBD 3.1.5.8). They are passed on as they come: the first contains
//! the length of the whole message, so that nothing has to be collected.

use thiserror::Error;

/// A part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    /// The bytes of the part.
    pub data: &'a [u8],
    /// The length of the whole message, in its first fragment.
    pub begins: Option<u32>,
    /// How many bytes of the message are still to come; 0 in its last fragment.
    pub remaining: u32,
}

/// Why a fragment is out of place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReassemblyError {
    /// The message is longer than this side takes.
    #[error("SMB Direct: a message of {length} bytes, this side takes {limit} (MaxFragmentedSize)")]
    TooLong {
        /// The length that the first fragment announces, in bytes.
        length: u64,
        /// This side's limit, in bytes.
        limit: u32,
    },
    /// The data and remainder of a fragment do not add up to the remainder of the fragment before it.
    #[error("SMB Direct: a fragment leaves {length} bytes, {expected} were to come")]
    Mismatch {
        /// The data and the remainder of the fragment, in bytes.
        length: u64,
        /// The remainder in the fragment before it, in bytes.
        expected: u32,
    },
}

/// The rest of the message under way.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Incoming {
    remaining: u32,
    /// A fragment with data was passed on.
    has_begun: bool,
}

impl Incoming {
    /// The next fragment; none for a message without data. Such a message is valid anywhere with a remainder
    /// of 0, and before and between fragments with the remainder of their message.
    pub(super) fn fragment<'a>(
        &mut self,
        data: &'a [u8],
        remaining: u32,
        limit: u32,
    ) -> Result<Option<Fragment<'a>>, ReassemblyError> {
        let length = data.len() as u64 + u64::from(remaining);
        match self.remaining {
            _ if length == 0 => return Ok(None),
            0 if length > u64::from(limit) => {
                return Err(ReassemblyError::TooLong { length, limit });
            }
            expected if expected != 0 && length != u64::from(expected) => {
                return Err(ReassemblyError::Mismatch { length, expected });
            }
            _ => self.remaining = remaining,
        }
        if data.is_empty() {
            return Ok(None);
        }
        let begins = (!self.has_begun).then_some(length as u32);
        self.has_begun = remaining > 0;
        Ok(Some(Fragment {
            data,
            begins,
            remaining,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_add_up() {
        let mut incoming = Incoming::default();
        let first = incoming.fragment(&[1; 10], 15, 100).unwrap().unwrap();
        assert_eq!((first.begins, first.remaining), (Some(25), 15));
        assert_eq!(incoming.fragment(&[], 0, 100), Ok(None));
        let second = incoming.fragment(&[2; 15], 0, 100).unwrap().unwrap();
        assert_eq!((second.begins, second.remaining), (None, 0));
        assert_eq!(
            incoming.fragment(&[3; 1], 0, 100).unwrap().unwrap().begins,
            Some(1)
        );
    }

    #[test]
    fn empty_messages_may_announce_the_length() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.fragment(&[], 25, 100), Ok(None));
        assert_eq!(incoming.fragment(&[], 0, 100), Ok(None));
        let first = incoming.fragment(&[1; 10], 15, 100).unwrap().unwrap();
        assert_eq!((first.begins, first.remaining), (Some(25), 15));
        assert_eq!(incoming.fragment(&[], 15, 100), Ok(None));
        let last = incoming.fragment(&[2; 15], 0, 100).unwrap().unwrap();
        assert_eq!((last.begins, last.remaining), (None, 0));
        for (announced, length) in [(101, 101), (u32::MAX, u64::from(u32::MAX))] {
            let long = incoming.fragment(&[], announced, 100);
            assert_eq!(long, Err(ReassemblyError::TooLong { length, limit: 100 }));
        }
        incoming.fragment(&[], 25, 100).unwrap();
        let other = incoming.fragment(&[1; 10], 16, 100);
        assert_eq!(
            other,
            Err(ReassemblyError::Mismatch {
                length: 26,
                expected: 25
            })
        );
    }

    #[test]
    fn fragments_that_do_not_fit_are_refused() {
        let mut incoming = Incoming::default();
        let long = incoming.fragment(&[0; 1], u32::MAX, 100);
        assert_eq!(
            long,
            Err(ReassemblyError::TooLong {
                length: 1 << 32,
                limit: 100
            })
        );
        incoming.fragment(&[0; 10], 15, 100).unwrap();
        let other = incoming.fragment(&[0; 10], 4, 100);
        assert_eq!(
            other,
            Err(ReassemblyError::Mismatch {
                length: 14,
                expected: 15
            })
        );
    }
}
