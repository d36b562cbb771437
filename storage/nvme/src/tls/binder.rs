//! PSK binders (RFC 8446, 4.2.11.2). A binder proves that a client has the PSK of an identity, so that the
//! server can select among several PSKs with the same identity.

use super::Psk;
use super::key::{Derivation, expand_label};
use crate::auth::{Hash, same};

/// The handshake type of the hash of the first ClientHello after a HelloRetryRequest (RFC 8446, 4.4.1).
const MESSAGE_HASH: u8 = 254;

/// The PSKs that a ClientHello offers.
pub(crate) struct Offer<'a> {
    /// Handshake messages before the ClientHello: a ClientHello and a HelloRetryRequest, or none.
    earlier: &'a [Vec<u8>],
    /// The ClientHello up to its binders.
    truncated: &'a [u8],
    /// Identities with their binders.
    pairs: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Offer<'a> {
    /// Parses the content of the extension `pre_shared_key`, which is the end of the last of the handshake
    /// messages; `None` if it is malformed.
    pub(crate) fn parse(messages: &'a [Vec<u8>], extension: &[u8]) -> Option<Self> {
        let (hello, earlier) = messages.split_last()?;
        let start = hello.len().checked_sub(extension.len())?;
        if hello[start..] != *extension {
            return None;
        }
        let (mut identities, rest) = split::<2>(&hello[start..])?;
        let truncated = &hello[..hello.len() - rest.len()];
        let (mut binders, after) = split::<2>(rest)?;
        let mut pairs = Vec::new();
        while !identities.is_empty() {
            let (identity, more) = split::<2>(identities)?;
            let (binder, others) = split::<1>(binders)?;
            pairs.push((identity, binder));
            // The obfuscated ticket age has no meaning for external PSKs.
            (identities, binders) = (more.get(4..)?, others);
        }
        (after.is_empty() && binders.is_empty()).then_some(Self {
            earlier,
            truncated,
            pairs,
        })
    }

    /// The identities, in the order of the client.
    pub(crate) fn identities(&self) -> impl Iterator<Item = &'a [u8]> {
        self.pairs.iter().map(|(identity, _)| *identity)
    }

    /// Whether the client has this PSK: it offers its identity with the right binder.
    pub(crate) fn proves(&self, psk: &Psk) -> bool {
        let binder = binder(psk.hash, &psk.key, &self.transcript(psk.hash));
        self.pairs.iter().any(|(identity, found)| {
            *identity == psk.identity.as_bytes()
                && binder.as_deref().is_some_and(|it| same(it, found))
        })
    }

    fn transcript(&self, hash: Hash) -> Vec<u8> {
        let mut transcript = Vec::new();
        if let [first, retry] = self.earlier {
            transcript.extend_from_slice(&[MESSAGE_HASH, 0, 0, hash.length() as u8]);
            transcript.extend(hash.digest(first));
            transcript.extend_from_slice(retry);
        }
        transcript.extend_from_slice(self.truncated);
        transcript
    }
}

/// The binder of an external PSK for a transcript.
fn binder(hash: Hash, key: &[u8], transcript: &[u8]) -> Option<Vec<u8>> {
    let early = hash.hmac(&vec![0; hash.length()], &[key]);
    let binder_key = expand_label(
        hash,
        &early,
        "ext binder",
        &hash.digest(&[]),
        Derivation::Rfc8446,
    )?;
    let finished = expand_label(hash, &binder_key, "finished", &[], Derivation::Rfc8446)?;
    Some(hash.hmac(&finished, &[&hash.digest(transcript)]))
}

/// Bytes behind a length of `WIDTH` bytes, and the rest.
fn split<const WIDTH: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<WIDTH>()?;
    rest.split_at_checked(
        length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(width: usize, bytes: &[u8]) -> Vec<u8> {
        let length = (bytes.len() as u32).to_be_bytes();
        [&length[4 - width..], bytes].concat()
    }

    /// A ClientHello whose only content is the extension with these identities and binders.
    fn hello(pairs: &[(&str, &[u8])]) -> (Vec<u8>, Vec<u8>) {
        let age = [0; 4];
        let identities: Vec<u8> = pairs
            .iter()
            .flat_map(|(name, _)| [&framed(2, name.as_bytes())[..], &age].concat())
            .collect();
        let binders: Vec<u8> = pairs
            .iter()
            .flat_map(|(_, binder)| framed(1, binder))
            .collect();
        let extension = [framed(2, &identities), framed(2, &binders)].concat();
        ([&b"ClientHello"[..], &extension].concat(), extension)
    }

    #[test]
    fn only_the_binder_of_the_psk_proves_it() {
        let psk = |byte: u8, hash: Hash| Psk {
            identity: "NVMe0R01 a b".to_owned(),
            hash,
            host: crate::Nqn::discovery(),
            subsystem: crate::Nqn::discovery(),
            key: vec![byte; hash.length()],
        };
        for hash in [Hash::Sha256, Hash::Sha384] {
            let (own, other) = (psk(1, hash), psk(2, hash));
            let blank = vec![0; hash.length()];
            let (message, extension) = hello(&[("x", &blank), ("NVMe0R01 a b", &blank)]);
            let truncated = message.len() - 2 - 2 * (1 + blank.len());
            let right = binder(hash, &own.key, &message[..truncated]).unwrap();
            assert!(!Offer::parse(&[message], &extension).unwrap().proves(&own));
            let (message, extension) = hello(&[("x", &blank), ("NVMe0R01 a b", &right)]);
            let messages = [message];
            let offer = Offer::parse(&messages, &extension).unwrap();
            assert!(offer.proves(&own) && !offer.proves(&other));
            assert_eq!(offer.identities().count(), 2);
            // After a HelloRetryRequest the transcript contains both messages before.
            let messages = [vec![1], vec![2], messages[0].clone()];
            assert!(!Offer::parse(&messages, &extension).unwrap().proves(&own));
        }
    }

    #[test]
    fn malformed_extensions_are_no_offer() {
        let (message, extension) = hello(&[("a", &[7; 32]), ("b", &[8; 32])]);
        let messages = [message];
        assert!(Offer::parse(&messages, &extension).is_some());
        assert!(Offer::parse(&[], &extension).is_none());
        for length in 0..extension.len() {
            let short = extension[..length].to_vec();
            assert!(
                Offer::parse(std::slice::from_ref(&short), &short).is_none(),
                "{length}"
            );
            assert!(
                Offer::parse(&messages, &short).is_none(),
                "not at the end of the message"
            );
        }
    }
}
