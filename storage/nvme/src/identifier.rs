//! Identifiers of 16 bytes as text: UUID and NGUID.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The text is not a UUID or an NGUID.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{0:?} is no identifier: write 32 hexadecimal digits, not all of them 0, with or without hyphens"
)]
pub struct IdentifierError(String);

/// A UUID (RFC 9562), never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uuid([u8; 16]);

/// A Namespace Globally Unique Identifier (NGUID), never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nguid([u8; 16]);

/// The 16 bytes of 32 hexadecimal digits, with or without hyphens between them.
pub(crate) fn of_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Result<[u8; 16], IdentifierError> {
    let found = of_hex(text).filter(|bytes| *bytes != [0; 16]);
    found.ok_or_else(|| IdentifierError(text.to_owned()))
}

impl Uuid {
    /// A UUID of version 8 (RFC 9562, 5.8) from the bytes of a hash.
    pub fn of_hash(mut bytes: [u8; 16]) -> Self {
        bytes[6] = 0x80 | bytes[6] & 0x0f;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        Self(bytes)
    }

    /// Bytes of the identifier, in the order of the text.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl Nguid {
    /// Bytes of the identifier, in the order of the text.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl From<[u8; 16]> for Nguid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Uuid {
    type Err = IdentifierError;

    fn from_str(text: &str) -> Result<Self, IdentifierError> {
        parse(text).map(Self)
    }
}

impl FromStr for Nguid {
    type Err = IdentifierError;

    fn from_str(text: &str) -> Result<Self, IdentifierError> {
        parse(text).map(Self)
    }
}

impl TryFrom<String> for Uuid {
    type Error = IdentifierError;

    fn try_from(text: String) -> Result<Self, IdentifierError> {
        text.parse()
    }
}

impl TryFrom<String> for Nguid {
    type Error = IdentifierError;

    fn try_from(text: String) -> Result<Self, IdentifierError> {
        text.parse()
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.to_string()
    }
}

impl From<Nguid> for String {
    fn from(nguid: Nguid) -> Self {
        nguid.to_string()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = hex(&self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..]
        )
    }
}

impl fmt::Display for Nguid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A serial number (SN): 1 to 20 printable characters of ASCII (Base 1.4.2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial(String);

/// The text is not a serial number.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is no serial number: write 1 to 20 printable characters of ASCII")]
pub struct SerialError(String);

impl Serial {
    /// The first 8 bytes of a hash in hexadecimal digits.
    pub fn of_hash(bytes: [u8; 16]) -> Self {
        Self(hex(&bytes[..8]))
    }

    /// The serial number as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Serial {
    type Err = SerialError;

    fn from_str(text: &str) -> Result<Self, SerialError> {
        let is_printable = text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let is_serial = (1..=20).contains(&text.len()) && is_printable && text.trim() == text;
        if is_serial {
            Ok(Self(text.to_owned()))
        } else {
            Err(SerialError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Serial {
    type Error = SerialError;

    fn try_from(text: String) -> Result<Self, SerialError> {
        text.parse()
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> Self {
        serial.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_parsed_with_and_without_hyphens() {
        const TEXT: &str = "36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2";
        let uuid: Uuid = TEXT.parse().unwrap();
        assert_eq!(uuid.to_string(), TEXT);
        let plain = TEXT.replace('-', "");
        assert_eq!(plain.to_uppercase().parse(), Ok(uuid));
        let nguid: Nguid = TEXT.parse().unwrap();
        assert_eq!(nguid.to_string(), plain);
        for wrong in [
            "",
            "36ebf5a9",
            &"0".repeat(32),
            &"g".repeat(32),
            &"1".repeat(33),
            "ü",
        ] {
            assert!(
                wrong.parse::<Uuid>().is_err() && wrong.parse::<Nguid>().is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn serial_numbers_fit_their_field() {
        assert_eq!("A 1".parse::<Serial>().unwrap().as_str(), "A 1");
        for wrong in ["", " a", "a ", "ü", "a\n", &"x".repeat(21)] {
            assert!(wrong.parse::<Serial>().is_err(), "{wrong}");
        }
    }
}
