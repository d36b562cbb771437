//! NVMe Qualified Names of subsystems and hosts (Base 4.5).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use wire::nvme::fabrics::DISCOVERY_NQN;
use wire::nvme::text;

/// The longest NQN in bytes.
pub const NQN_LENGTH_MAX: usize = 223;

/// An NVMe Qualified Name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nqn(String);

/// Why a text is not a valid NQN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NqnError {
    /// The text has more than [`NQN_LENGTH_MAX`] bytes; its length.
    #[error("an NQN has at most {NQN_LENGTH_MAX} bytes, this one has {0}")]
    Length(usize),
    /// The name is empty.
    #[error("a name has 1 to {NQN_LENGTH_MAX} bytes, this one is empty")]
    Empty,
    /// The name contains a NUL byte, which ends it in a field of Connect.
    #[error("a name cannot contain a NUL byte")]
    Nul,
    /// The text does not begin as Base 4.5 says.
    #[error("an NQN begins with nqn. and a date, as in nqn.2024-01.org.example:disk")]
    Form,
}

impl Nqn {
    /// The NQN of every discovery subsystem.
    pub fn discovery() -> Self {
        Self(DISCOVERY_NQN.to_owned())
    }

    /// Whether this is the NQN of discovery subsystems.
    pub fn is_discovery(&self) -> bool {
        self.0 == DISCOVERY_NQN
    }

    /// A name as a user typed it, which a host sends whether it has the form of an NQN or not: many targets
    /// accept other names.
    ///
    /// # Errors
    /// When a field of Connect cannot hold the name.
    pub fn as_typed(text: &str) -> Result<Self, NqnError> {
        match text.len() {
            0 => Err(NqnError::Empty),
            1..=NQN_LENGTH_MAX if text.contains('\0') => Err(NqnError::Nul),
            1..=NQN_LENGTH_MAX => Ok(Self(text.to_owned())),
            length => Err(NqnError::Length(length)),
        }
    }

    /// Whether the name has the form of Base 4.5.
    pub fn has_form(&self) -> bool {
        self.0.parse::<Self>().is_ok()
    }

    /// The NQN in a field of Connect; `None` when the field has no valid NQN.
    pub fn of_field(field: &[u8]) -> Option<Self> {
        text::of(field)?.parse().ok()
    }

    /// The NQN of a host that gave none: made from its Host Identifier (Base 4.5).
    pub(crate) fn of_host_id(id: &[u8; 16]) -> Self {
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        Self(format!("nqn.2014-08.org.nvmexpress:uuid:{a}-{b}-{c}-{d}-{e}"))
    }

    /// A Host Identifier that depends only on the name: a UUID of version 8 (RFC 9562, 5.8).
    pub fn to_host_id(&self) -> [u8; 16] {
        let digest = Sha256::digest(format!("rockery host {self}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[6] = 0x80 | bytes[6] & 0x0f;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        bytes
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Self, NqnError> {
        if text.len() > NQN_LENGTH_MAX {
            return Err(NqnError::Length(text.len()));
        }
        let bytes = text.as_bytes();
        let is_form = text.starts_with("nqn.")
            && bytes.get(4..8).is_some_and(|year| year.iter().all(u8::is_ascii_digit))
            && bytes.get(8) == Some(&b'-')
            && bytes.get(9..11).is_some_and(|month| month.iter().all(u8::is_ascii_digit))
            && bytes.get(11) == Some(&b'.')
            && bytes.len() > 12
            && !text.chars().any(char::is_control);
        if is_form { Ok(Self(text.to_owned())) } else { Err(NqnError::Form) }
    }
}

impl TryFrom<String> for Nqn {
    type Error = NqnError;

    fn try_from(text: String) -> Result<Self, NqnError> {
        text.parse()
    }
}

impl From<Nqn> for String {
    fn from(nqn: Nqn) -> Self {
        nqn.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused() {
        let parse = |text: &str| text.parse::<Nqn>();
        assert!(parse("nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2").is_ok());
        assert!(parse(DISCOVERY_NQN).unwrap().is_discovery());
        for wrong in ["", "disk", "nqn.", "nqn.20x4-08.org", "nqn.2014-08.", "nqn.2014-08.a\n"] {
            assert_eq!(parse(wrong), Err(NqnError::Form), "{wrong}");
        }
        let long = format!("nqn.2014-08.{}", "x".repeat(NQN_LENGTH_MAX));
        assert_eq!(parse(&long), Err(NqnError::Length(long.len())));
        assert!(parse(&long[..NQN_LENGTH_MAX]).is_ok());
    }
}
