//! The hash functions, and HMAC over them.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A hash function (Base figure 453).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// SHA-256 (FIPS 180-4): digests of 32 bytes.
    Sha256 = 1,
    /// SHA-384 (FIPS 180-4): digests of 48 bytes.
    Sha384 = 2,
    /// SHA-512 (FIPS 180-4): digests of 64 bytes.
    Sha512 = 3,
}

impl Hash {
    /// All hash functions, the strongest first.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    /// The hash function with this identifier; `None` for an identifier that is reserved.
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == number)
    }

    /// The length of a digest in bytes.
    pub const fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The digest of `bytes`, of [`Hash::length`] bytes.
    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// The HMAC of several pieces (RFC 2104). A key may have any length.
    pub(crate) fn hmac(self, key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, pieces),
            Self::Sha384 => hmac::<Hmac<Sha384>>(key, pieces),
            Self::Sha512 => hmac::<Hmac<Sha512>>(key, pieces),
        }
    }
}

fn hmac<M: Mac + hmac::digest::KeyInit>(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    // HMAC accepts keys of any length; the error exists for other MACs of the same trait.
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else {
        return Vec::new();
    };
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Compares two digests in constant time, so that the time does not reveal where they differ.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one
        .iter()
        .zip(other)
        .fold(0, |sum, (one, other)| sum | one ^ other);
    one.len() == other.len() && std::hint::black_box(differences) == 0
}
