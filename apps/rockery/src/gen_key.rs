//! `rockery nvme gen-key`: secrets for DH-HMAC-CHAP and pre-shared keys for TLS, in the forms of NVMe (Base
//! 8.13.5.8, TCP transport 3.6.1.5).

use ::nvme::auth::{Hash, Secret};
use ::nvme::tls::TlsKey;
use clap::ValueEnum;

use crate::{Error, output};

/// What the key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// A secret of a host or a controller for DH-HMAC-CHAP.
    Dhchap,
    /// A pre-shared key of a host for TLS over TCP.
    Tls,
}

/// The length of a key, which for TLS chooses the hash function as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bits {
    /// 32 bytes; SHA-256.
    #[value(name = "256")]
    Bits256,
    /// 48 bytes; SHA-384.
    #[value(name = "384")]
    Bits384,
    /// 64 bytes; SHA-512, which TLS does not have.
    #[value(name = "512")]
    Bits512,
}

impl Bits {
    const fn bytes(self) -> usize {
        match self {
            Self::Bits256 => 32,
            Self::Bits384 => 48,
            Self::Bits512 => 64,
        }
    }

    const fn hash(self) -> Hash {
        match self {
            Self::Bits256 => Hash::Sha256,
            Self::Bits384 => Hash::Sha384,
            Self::Bits512 => Hash::Sha512,
        }
    }
}

/// The key to make.
#[derive(Debug, clap::Args)]
pub(crate) struct GenKey {
    /// What the key is for.
    #[arg(value_enum)]
    purpose: Purpose,
    /// Length of the key in bits; for TLS it also chooses the hash function and cipher: 256 is SHA-256 with
    /// AES-128-GCM, 384 is SHA-384 with AES-256-GCM.
    #[arg(long, value_enum, default_value = "256")]
    bits: Bits,
}

/// Prints a new key.
///
/// # Errors
/// When the system has no random numbers, or TLS no key of that length.
pub(crate) fn print(what: &GenKey) -> Result<(), Error> {
    let mut key = vec![0; what.bits.bytes()];
    getrandom::fill(&mut key).map_err(|error| Error::Key(error.to_string()))?;
    output::line(text(what, &key)?)
}

/// The key in its form. The secret of a host or controller is used as it is: without a transformation it
/// does not depend on the name of its owner.
fn text(what: &GenKey, key: &[u8]) -> Result<String, Error> {
    let made = match what.purpose {
        Purpose::Dhchap => Secret::new(key, None).ok().map(String::from),
        Purpose::Tls => TlsKey::new(key, Some(what.bits.hash()))
            .ok()
            .map(String::from),
    };
    made.ok_or_else(|| Error::Key("TLS has keys of 256 and 384 bits: --bits 256 or 384".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(purpose: Purpose, bits: Bits) -> Result<String, Error> {
        text(&GenKey { purpose, bits }, &vec![0x5a; bits.bytes()])
    }

    #[test]
    fn keys_have_the_forms_that_servers_read() {
        for bits in [Bits::Bits256, Bits::Bits384, Bits::Bits512] {
            let secret = made(Purpose::Dhchap, bits).unwrap();
            assert!(secret.starts_with("DHHC-1:00:"), "{secret}");
            assert_eq!(String::from(secret.parse::<Secret>().unwrap()), secret);
        }
        for (bits, form) in [
            (Bits::Bits256, "NVMeTLSkey-1:01:"),
            (Bits::Bits384, "NVMeTLSkey-1:02:"),
        ] {
            let key = made(Purpose::Tls, bits).unwrap();
            assert!(key.starts_with(form), "{key}");
            assert_eq!(String::from(key.parse::<TlsKey>().unwrap()), key);
        }
        assert!(made(Purpose::Tls, Bits::Bits512).is_err());
    }
}
