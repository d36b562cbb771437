//! Why a server refuses the PSKs of a client, for its log and for the alert that the client gets.

use std::fmt;

/// The longest part of a PSK identity in the log, in characters: two names, a digest and spaces.
const SHOWN_MAX: usize = 540;

/// Why a server refuses the PSKs of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The client offers no PSK.
    NoPsk,
    /// The extension `pre_shared_key` is malformed, or longer than an identity of NVMe needs.
    Malformed,
    /// No configured key has the identity.
    UnknownIdentity(String),
    /// The client does not have the key of the identity.
    WrongKey(String),
}

impl Refusal {
    /// The alert for the client (RFC 8446, 6.2); `None` if OpenSSL refuses the handshake for its own reason.
    pub(crate) const fn alert(&self) -> Option<u8> {
        match self {
            Self::NoPsk => None,
            // illegal_parameter
            Self::Malformed => Some(47),
            // unknown_psk_identity
            Self::UnknownIdentity(_) => Some(115),
            // decrypt_error
            Self::WrongKey(_) => Some(51),
        }
    }

    /// An identity, which may be any bytes, for [`Refusal`].
    pub(crate) fn shown(identity: &[u8]) -> String {
        let text = String::from_utf8_lossy(identity);
        let mut shown: String = text.chars().take(SHOWN_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        shown
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPsk => f.write_str(
                "the host offers no pre-shared key: it needs TLS 1.3 with the key that is configured here",
            ),
            Self::Malformed => f.write_str("the host's list of PSK identities is malformed or too long"),
            Self::UnknownIdentity(identity) => write!(
                f,
                "unknown PSK identity {identity:?}: configure this host's TLS key for this subsystem \
                 (rockery serve secrets SUBNQN HOSTNQN --tls-key KEY), or correct names and key at the host"
            ),
            Self::WrongKey(identity) => write!(
                f,
                "the host does not have the key of PSK identity {identity:?}: configure the same TLS key \
                 here and at the host"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_shown_escaped_and_bounded() {
        let refusal = Refusal::UnknownIdentity(Refusal::shown(b"a\n\x1b[31m\xff\""));
        assert!(
            refusal
                .to_string()
                .starts_with("unknown PSK identity \"a\\n\\u{1b}[31m\u{fffd}\\\"\"")
        );
        let long = Refusal::shown(&[b'x'; 60_000]);
        assert_eq!(long.chars().count(), SHOWN_MAX + 1);
        assert_eq!(Refusal::shown(&[b'x'; SHOWN_MAX]).len(), SHOWN_MAX);
    }
}
