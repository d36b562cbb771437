//! The text form of secrets: `DHHC-1:NN:BASE64:`, where the key is followed by its CRC-32 (Base 8.13.5.8).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Hash;
use crate::base64::{decode, encode};

/// Why a text is not a valid secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SecretError {
    /// The text does not have the form `DHHC-1:NN:BASE64:`.
    #[error("a secret looks like DHHC-1:00:BASE64:, as `nvme gen-dhchap-key` prints it")]
    Form,
    /// The transformation is not one of Base 8.13.5.8.
    #[error("a secret's second part is 00, 01, 02 or 03")]
    Transformation,
    /// The key has another length than 32, 48 or 64 bytes; its length.
    #[error("a secret's key has 32, 48 or 64 bytes, not {0}")]
    Length(usize),
    /// The CRC-32 does not match the key.
    #[error("the checksum of the secret is wrong: copy the whole secret without changes")]
    Checksum,
}

/// A secret. Its `Debug` output does not contain the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret {
    transformation: Option<Hash>,
    key: Vec<u8>,
}

const CRC: usize = 4;

impl Secret {
    /// A secret with this key.
    ///
    /// # Errors
    /// When the key does not have 32, 48 or 64 bytes.
    pub fn new(key: &[u8], transformation: Option<Hash>) -> Result<Self, SecretError> {
        match key.len() {
            32 | 48 | 64 => Ok(Self {
                transformation,
                key: key.to_vec(),
            }),
            length => Err(SecretError::Length(length)),
        }
    }

    /// The key of the HMAC: transformed with the NQN of its owner, if the secret has a transformation.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        match self.transformation {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[name.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text
            .trim()
            .strip_prefix("DHHC-1:")
            .ok_or(SecretError::Form)?;
        let (transformation, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let transformation = match transformation {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transformation),
        };
        let bytes = decode(rest.trim_end_matches(':')).ok_or(SecretError::Form)?;
        let length = bytes.len().checked_sub(CRC).ok_or(SecretError::Form)?;
        let (key, checksum) = bytes.split_at(length);
        let secret = Self::new(key, transformation)?;
        match crc32fast::hash(key).to_le_bytes() == *checksum {
            true => Ok(secret),
            false => Err(SecretError::Checksum),
        }
    }
}

impl TryFrom<String> for Secret {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        text.parse()
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        let number = secret.transformation.map_or(0, |hash| hash as u8);
        let checksum = crc32fast::hash(&secret.key).to_le_bytes();
        format!(
            "DHHC-1:{number:02}:{}:",
            encode(&[&secret.key[..], &checksum].concat())
        )
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("transformation", &self.transformation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets as `nvme gen-dhchap-key` printed them.
    const PRINTED: [&str; 2] = [
        "DHHC-1:00:FuqCi/soWsLqELKulf1B5eyAv+r5n+3aP1p8DwAEPimezRz+:",
        "DHHC-1:03:IyirjLe9VpSg4mkRWmABn7/b3/49Oerpw0VuBE9eJELqLO7KAuuEvvScb0w+YA0sneHG+Z/N\
         24yu34U2X4zBszSYI+c=:",
    ];

    #[test]
    fn secrets_of_nvme_cli_are_parsed_and_printed() {
        for text in PRINTED {
            let secret: Secret = text.parse().unwrap();
            assert_eq!(String::from(secret), text);
        }
    }

    #[test]
    fn invalid_text_gives_a_specific_error() {
        let parse = |text: &str| text.parse::<Secret>().unwrap_err();
        assert_eq!(parse("secret"), SecretError::Form);
        assert_eq!(
            parse(&PRINTED[0].replace("-1:00", "-1:07")),
            SecretError::Transformation
        );
        assert_eq!(parse("DHHC-1:00:AAAAAAAA:"), SecretError::Length(2));
        let at = "DHHC-1:00:".len();
        let other = if PRINTED[0].as_bytes()[at] == b'A' {
            "B"
        } else {
            "A"
        };
        let damaged = format!("{}{other}{}", &PRINTED[0][..at], &PRINTED[0][at + 1..]);
        assert_eq!(parse(&damaged), SecretError::Checksum);
        assert!(!format!("{:?}", PRINTED[0].parse::<Secret>()).contains("key"));
    }
}
