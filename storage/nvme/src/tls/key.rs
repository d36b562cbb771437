//! Configured PSKs in their text form, `NVMeTLSkey-1:NN:BASE64:`, and the PSKs for TLS that are derived from
//! them (TCP transport 1.0, 3.6.1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::auth::Hash;
use crate::base64::{decode, encode};
use crate::nqn::Nqn;

/// Why a text is not a valid key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    /// The text does not have the form `NVMeTLSkey-1:NN:BASE64:`.
    #[error("a TLS key looks like NVMeTLSkey-1:01:BASE64:, as `nvme gen-tls-key` prints it")]
    Form,
    /// The hash function is not one of TCP transport 3.6.1.
    #[error("a TLS key's second part is 00, 01 or 02")]
    Hash,
    /// The key does not have the length of the digests of its hash function; its length.
    #[error("a TLS key has 32 bytes with 01 and 48 with 02, not {0}")]
    Length(usize),
    /// The CRC-32 does not match the key.
    #[error("the checksum of the TLS key is wrong: copy the whole key without changes")]
    Checksum,
}

const CRC: usize = 4;

/// A configured PSK. Its `Debug` output does not contain the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TlsKey {
    /// The hash function of the retained PSK; `None` if the configured PSK is used as it is.
    binding: Option<Hash>,
    key: Vec<u8>,
}

/// The version of a PSK identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// `NVMe0`: names alone. Targets before 2023 accept only this version.
    Names,
    /// `NVMe1`: with a digest of the PSK, so that a key can be replaced without interruption.
    #[default]
    Digest,
}

/// How PSKs are derived from a configured PSK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Derivation {
    /// HKDF-Expand-Label of RFC 8446, as the TCP transport specification has it.
    #[default]
    Rfc8446,
    /// As libnvme before 1.16, and `nvme --compat` since: labels and contexts without their length, and the
    /// length of the output in little endian.
    Compat,
}

impl Derivation {
    /// Both derivations, that of the specification first.
    pub const ALL: [Self; 2] = [Self::Rfc8446, Self::Compat];
}

/// A PSK for TLS, with its identity.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// The PSK identity, which is sent unencrypted.
    pub identity: String,
    /// The hash function, which determines the cipher suite.
    pub hash: Hash,
    /// The NQN of the host.
    pub host: Nqn,
    /// The NQN of the subsystem.
    pub subsystem: Nqn,
    pub(crate) key: Vec<u8>,
}

impl TlsKey {
    /// A configured PSK of 32 or 48 bytes.
    ///
    /// # Errors
    /// When the key has another length.
    pub fn new(key: &[u8], binding: Option<Hash>) -> Result<Self, KeyError> {
        match (binding, key.len()) {
            (None | Some(Hash::Sha256), 32) | (None | Some(Hash::Sha384), 48) => Ok(Self {
                binding,
                key: key.to_vec(),
            }),
            (Some(Hash::Sha512), _) => Err(KeyError::Hash),
            (_, length) => Err(KeyError::Length(length)),
        }
    }

    /// The PSK for TLS; `None` if the names are too long for the derivation (255 bytes in all), which only
    /// [`Version::Names`] allows.
    pub fn psk(
        &self,
        host: &Nqn,
        subsystem: &Nqn,
        version: Version,
        derivation: Derivation,
    ) -> Option<Psk> {
        let (identity, hash, key) =
            self.derive(host.as_str(), subsystem.as_str(), version, derivation)?;
        Some(Psk {
            identity,
            hash,
            host: host.clone(),
            subsystem: subsystem.clone(),
            key,
        })
    }

    /// All PSKs for TLS that hosts derive from this key. PSKs of different derivations may have the same
    /// identity: always in version 0, and in version 1 if the configured PSK is used as it is.
    pub fn psks(&self, host: &Nqn, subsystem: &Nqn) -> Vec<Psk> {
        let forms = [Version::Digest, Version::Names]
            .into_iter()
            .flat_map(|version| Derivation::ALL.map(|derivation| (version, derivation)));
        forms
            .filter_map(|(version, derivation)| self.psk(host, subsystem, version, derivation))
            .collect()
    }

    fn derive(
        &self,
        host: &str,
        subsystem: &str,
        version: Version,
        derivation: Derivation,
    ) -> Option<(String, Hash, Vec<u8>)> {
        let hash = if self.key.len() == 48 {
            Hash::Sha384
        } else {
            Hash::Sha256
        };
        let retained = match self.binding {
            None => self.key.clone(),
            Some(hash) => derived(hash, &self.key, "HostNQN", host, derivation)?,
        };
        let number = hash as u8;
        let (identity, context) = match version {
            Version::Names => {
                let identity = format!("NVMe0R{number:02} {host} {subsystem}");
                (identity.clone(), identity)
            }
            Version::Digest => {
                let names = format!("{host} {subsystem} NVMe-over-Fabrics");
                let digest = encode(&hash.hmac(&retained, &[names.as_bytes()]));
                (
                    format!("NVMe1R{number:02} {host} {subsystem} {digest}"),
                    format!("{number:02} {digest}"),
                )
            }
        };
        let key = derived(hash, &retained, "nvme-tls-psk", &context, derivation)?;
        Some((identity, hash, key))
    }
}

/// HKDF-Extract without salt (RFC 5869), then HKDF-Expand-Label; the output has the length of a digest.
fn derived(
    hash: Hash,
    key: &[u8],
    label: &str,
    context: &str,
    derivation: Derivation,
) -> Option<Vec<u8>> {
    let extracted = hash.hmac(&vec![0; hash.length()], &[key]);
    expand_label(hash, &extracted, label, context.as_bytes(), derivation)
}

/// HKDF-Expand-Label (RFC 8446, 7.1); the output has the length of a digest. `None` if the context is too
/// long.
pub(super) fn expand_label(
    hash: Hash,
    secret: &[u8],
    label: &str,
    context: &[u8],
    derivation: Derivation,
) -> Option<Vec<u8>> {
    let label = format!("tls13 {label}");
    let length = hash.length() as u16;
    let (label_length, context_length) = (
        u8::try_from(label.len()).ok()?,
        u8::try_from(context.len()).ok()?,
    );
    let (big, little) = (length.to_be_bytes(), length.to_le_bytes());
    // The output is one block of HKDF-Expand, whose number is 1.
    Some(match derivation {
        Derivation::Rfc8446 => {
            let info = [
                &big,
                &[label_length][..],
                label.as_bytes(),
                &[context_length],
                context,
                &[1],
            ];
            hash.hmac(secret, &info)
        }
        Derivation::Compat => hash.hmac(secret, &[&little, label.as_bytes(), context, &[1]]),
    })
}

impl Psk {
    /// The names in a PSK identity: of the host and of the subsystem.
    pub(crate) fn names(identity: &str) -> Option<(Nqn, Nqn)> {
        let mut parts = identity.split(' ').skip(1);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl FromStr for TlsKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let rest = text
            .trim()
            .strip_prefix("NVMeTLSkey-1:")
            .ok_or(KeyError::Form)?;
        let (binding, rest) = rest.split_once(':').ok_or(KeyError::Form)?;
        let binding = match binding {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return Err(KeyError::Hash),
        };
        let bytes = decode(rest.trim_end_matches(':')).ok_or(KeyError::Form)?;
        let length = bytes.len().checked_sub(CRC).ok_or(KeyError::Form)?;
        let (key, checksum) = bytes.split_at(length);
        let made = Self::new(key, binding)?;
        match crc32fast::hash(key).to_le_bytes() == *checksum {
            true => Ok(made),
            false => Err(KeyError::Checksum),
        }
    }
}

impl TryFrom<String> for TlsKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<TlsKey> for String {
    fn from(key: TlsKey) -> Self {
        let number = key.binding.map_or(0, |hash| hash as u8);
        let checksum = crc32fast::hash(&key.key).to_le_bytes();
        format!(
            "NVMeTLSkey-1:{number:02}:{}:",
            encode(&[&key.key[..], &checksum].concat())
        )
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey")
            .field("binding", &self.binding)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and identities of the tests of libnvme: from 1.16 on, and before.
    const KNOWN: [(&str, &str, &str); 2] = [
        (
            "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
        ),
        (
            "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
        ),
    ];

    #[test]
    fn keys_and_identities_match_libnvme() {
        let (host, subsystem) = ("nqn.psk-test-host", "nqn.psk-test-subsys");
        for (text, rfc8446, compat) in KNOWN {
            let key: TlsKey = text.parse().unwrap();
            assert_eq!(String::from(key.clone()), text);
            let mut keys = Vec::new();
            for (derivation, expected) in Derivation::ALL.into_iter().zip([rfc8446, compat]) {
                let derive = |version| key.derive(host, subsystem, version, derivation).unwrap();
                let (identity, hash, psk) = derive(Version::Digest);
                assert_eq!(identity, expected);
                assert_eq!(psk.len(), hash.length());
                let (identity, _, other) = derive(Version::Names);
                assert_eq!(
                    identity,
                    format!("NVMe0R{:02} {host} {subsystem}", hash as u8)
                );
                keys.extend([psk, other]);
            }
            keys.sort();
            keys.dedup();
            assert_eq!(
                keys.len(),
                4,
                "derivations and versions give different keys"
            );
        }
    }

    #[test]
    fn invalid_text_gives_a_specific_error() {
        let parse = |text: &str| text.parse::<TlsKey>().unwrap_err();
        let (text, ..) = KNOWN[0];
        assert_eq!(
            parse("DHHC-1:00:FuqCi/soWsLqELKulf1B5eyAv+r5n+3aP1p8DwAEPimezRz+:"),
            KeyError::Form
        );
        assert_eq!(parse(&text.replace(":01:", ":03:")), KeyError::Hash);
        assert_eq!(parse(&text.replace(":01:", ":02:")), KeyError::Length(32));
        assert_eq!(parse(&text.replace("VRL", "VRK")), KeyError::Checksum);
        assert!(!format!("{:?}", text.parse::<TlsKey>().unwrap()).contains("key:"));
    }

    #[test]
    fn identities_are_parsed_and_too_long_names_refused() {
        let (host, subsystem) = (
            "nqn.2014-08.org.example:host".parse::<Nqn>().unwrap(),
            Nqn::discovery(),
        );
        let key: TlsKey = KNOWN[0].0.parse().unwrap();
        for version in [Version::Names, Version::Digest] {
            let psk = key
                .psk(&host, &subsystem, version, Derivation::Rfc8446)
                .unwrap();
            assert_eq!(
                Psk::names(&psk.identity),
                Some((host.clone(), subsystem.clone()))
            );
        }
        let long: Nqn = format!("nqn.2014-08.org.example:{}", "h".repeat(190))
            .parse()
            .unwrap();
        assert!(
            key.psk(&long, &subsystem, Version::Names, Derivation::Rfc8446)
                .is_none()
        );
        assert!(
            key.psk(&long, &subsystem, Version::Digest, Derivation::Rfc8446)
                .is_some()
        );
        assert!(Psk::names("nobody").is_none() && Psk::names("NVMe0R01 a b").is_none());
    }
}
