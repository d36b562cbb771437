//! NVMe/TCP in TLS 1.3 with keys that both sides have (TCP transport 1.0, 3.6): no certificates. What is
//! sent is
//! encrypted, and whoever connects has proved whose key it has before the first PDU.

mod key;
mod sealed;

pub use key::{KeyError, Psk, TlsKey, Version};
pub use sealed::{Acceptor, Connector, Sealed};
