//! FreeBSD's `iovctl`: SR-IOV functions of an adapter (iovctl.conf(5)). It has no QoS.

pub(crate) mod read;
pub(crate) mod shown;
pub(crate) mod write;
