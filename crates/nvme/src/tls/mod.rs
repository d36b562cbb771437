//! NVMe/TCP with TLS 1.3 and PSKs (TCP transport 1.0, 3.6), without certificates. All PDUs are encrypted, and
//! the host has proved before the first PDU that it has the PSK.

mod key;
mod stream;

pub use key::{KeyError, Psk, TlsKey, Version};
pub use stream::{Acceptor, Connector, TlsStream};
