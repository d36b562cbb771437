//! NVMe/TCP with TLS 1.3 and PSKs (TCP transport 1.0, 3.6), without certificates. All PDUs are encrypted, and
//! the host has proved before the first PDU that it has the PSK.

mod binder;
mod key;
mod refusal;
mod stream;

pub(crate) use binder::Offer;
pub use key::{Derivation, KeyError, Psk, TlsKey, Version};
pub(crate) use refusal::Refusal;
pub use stream::{Acceptor, Connector, TlsStream};
