//! Authentication: DH-HMAC-CHAP (Base 8.13.5) on both sides, without sockets, clocks or a random number
//! generator.
//!
//! ```text
//! host                                   controller
//!   ── Negotiate: hashes, groups ──────────▶
//!   ◀───────── Challenge: C1, g^x, hash ────
//!   ── Reply: R1 over C1, C2, g^y ─────────▶   R1 is right: the host has the secret
//!   ◀───────────── Success1: R2 over C2 ────
//!   ── Success2 ───────────────────────────▶   R2 is right: the controller is as well
//!   ── Success2 ───────────────────────────▶   R2 is right: the controller has it as well

mod challenge;
mod controller;
mod credentials;
mod group;
mod hash;
mod host;
mod negotiation_limiter;
mod secret;

pub use controller::{Authenticator, Progress};
pub use credentials::Credentials;
pub use group::Group;
pub use hash::Hash;
pub(crate) use hash::same;
pub use host::Supplicant;
pub(crate) use negotiation_limiter::NegotiationLimiter;
pub use secret::{Secret, SecretError};

/// Fills a slice with unpredictable bytes.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// The secrets of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// The secret of the host.
    pub secret: Secret,
    /// The secret of the controller: the host sends a challenge of its own if this is present.
    pub controller_secret: Option<Secret>,
    /// The Diffie-Hellman group; if absent, the controller takes the first of [`Group::UNASKED`] that the
    /// host offers.
    pub group: Option<Group>,
}
