//! NVMe Qualified Names of subsystems and hosts (Base 4.5).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use wire::nvme::fabrics::DISCOVERY_NQN;
use wire::nvme::text;

use crate::identifier::Uuid;
use crate::machine::MachineId;

/// The beginning of NQNs that a UUID makes unique (Base 4.5).
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

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
        text::text_of(field)?.parse().ok()
    }

    /// The NQN with a UUID, as of a host that has no other name (Base 4.5).
    pub fn of_uuid(uuid: Uuid) -> Self {
        Self(format!("{UUID_PREFIX}{uuid}"))
    }

    /// The NQN of this machine as a host: the same for all its users, and no other machine's.
    pub fn this_host() -> Self {
        Self::of_uuid(MachineId::this().host_uuid())
    }

    /// The NQN of a subsystem that has no other name: it depends on the machine and on the lasting name of
    /// the storage of its first namespace.
    pub fn of_storage(machine: &MachineId, lasting_name: &str) -> Self {
        let uuid = Uuid::of_hash(machine.derive("subsystem", &[lasting_name]));
        Self(format!("nqn.2024-01.org.rockery:disk:{uuid}"))
    }

    /// A Host Identifier that depends only on the name: the UUID of a name that has one, as libnvme's, else
    /// one of version 8 (RFC 9562, 5.8).
    pub fn to_host_id(&self) -> [u8; 16] {
        let own: Option<Uuid> = self
            .0
            .strip_prefix(UUID_PREFIX)
            .and_then(|uuid| uuid.parse().ok());
        let digest = Sha256::digest(format!("rockery host {self}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        own.unwrap_or_else(|| Uuid::of_hash(bytes)).bytes()
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
            && bytes
                .get(4..8)
                .is_some_and(|year| year.iter().all(u8::is_ascii_digit))
            && bytes.get(8) == Some(&b'-')
            && bytes
                .get(9..11)
                .is_some_and(|month| month.iter().all(u8::is_ascii_digit))
            && bytes.get(11) == Some(&b'.')
            && bytes.len() > 12
            && !text.chars().any(char::is_control);
        if is_form {
            Ok(Self(text.to_owned()))
        } else {
            Err(NqnError::Form)
        }
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
        assert!(
            parse("nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2").is_ok()
        );
        assert!(parse(DISCOVERY_NQN).unwrap().is_discovery());
        for wrong in [
            "",
            "disk",
            "nqn.",
            "nqn.20x4-08.org",
            "nqn.2014-08.",
            "nqn.2014-08.a\n",
        ] {
            assert_eq!(parse(wrong), Err(NqnError::Form), "{wrong}");
        }
        let long = format!("nqn.2014-08.{}", "x".repeat(NQN_LENGTH_MAX));
        assert_eq!(parse(&long), Err(NqnError::Length(long.len())));
        assert!(parse(&long[..NQN_LENGTH_MAX]).is_ok());
    }

    #[test]
    fn hosts_and_subsystems_of_two_machines_have_different_names() {
        let machines = [[1; 16], [2; 16]].map(MachineId::from);
        let [one, other] = machines.map(|machine| Nqn::of_uuid(machine.host_uuid()));
        assert_ne!(one, other);
        assert_ne!(one.to_host_id(), other.to_host_id());
        assert_eq!(
            Nqn::of_uuid(one.to_host_id().into()),
            one,
            "HOSTNQN and HOSTID have the same UUID"
        );
        assert_eq!(
            Nqn::this_host(),
            Nqn::of_uuid(MachineId::this().host_uuid())
        );
        let [one, other] = machines.map(|machine| Nqn::of_storage(&machine, "a"));
        assert!(one != other && one != Nqn::of_storage(&machines[0], "b"));
        assert!(one.as_str().parse::<Nqn>().is_ok());
        let zero = format!("{UUID_PREFIX}00000000-0000-0000-0000-000000000000")
            .parse::<Nqn>()
            .unwrap();
        assert_ne!(
            zero.to_host_id(),
            [0; 16],
            "a Host Identifier of zero is invalid"
        );
    }
}
