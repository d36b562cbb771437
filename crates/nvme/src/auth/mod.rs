//! Authentication: DH-HMAC-CHAP (Base 8.13.5), both sides of it, without sockets, clocks or randomness of its
//! own.
//!
//! ```text
//! host                                   controller
//!   ── Negotiate: hashes, groups ──────────▶
//!   ◀───────── Challenge: C1, g^x, hash ────
//!   ── Reply: R1 over C1, C2, g^y ─────────▶   R1 is right: the host is who it says
//!   ◀───────────── Success1: R2 over C2 ────
//!   ── Success2 ───────────────────────────▶   R2 is right: the controller is as well
//! ```

mod challenge;
mod controller;
mod credentials;
mod group;
mod hash;
mod host;
mod secret;

pub use controller::{Authenticator, Progress};
pub use credentials::Credentials;
pub use group::Group;
pub use hash::Hash;
pub use host::Supplicant;
pub use secret::{Secret, SecretError};

/// Fills its argument with bytes that nobody can guess.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// The secrets of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// Which the host proves that it has.
    pub secret: Secret,
    /// Which the controller proves that it has, when the host asks.
    pub controller_secret: Option<Secret>,
    /// The group for Diffie and Hellman's exchange; the first of [`Group::ALL`] that the host has when
    /// absent.
    pub group: Option<Group>,
}
