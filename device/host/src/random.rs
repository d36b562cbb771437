//! Random bytes of the system: keys and numbers that a peer must not be able to guess.

use std::io;

/// `N` random bytes.
///
/// # Errors
/// When the system has none, as in a sandbox that forbids both the system call and `/dev/urandom`.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
