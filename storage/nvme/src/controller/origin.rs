//! Where a connection comes from, and what its TLS handshake has proved.

use std::net::{IpAddr, SocketAddr};

use crate::tls::Psk;

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The port identifier (PORTID).
    pub port: u16,
    /// The address that the host connected to.
    pub local: SocketAddr,
    /// The address of the host.
    pub peer: IpAddr,
}

/// The source of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) origin: &'a Origin,
    /// `None` without TLS.
    pub(super) proved: Option<&'a Proved>,
}

/// The PSK of a TLS connection: Connect has to name its host and subsystem, and it must not have been removed
/// or replaced since the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proved(pub Psk);
