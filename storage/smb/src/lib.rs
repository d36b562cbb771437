//! SMB Direct (MS-SMBD) in user space: the transport that carries SMB 2 and 3 over an RDMA connection.
//!
//! [`direct`] is the protocol without input or output of its own: received messages, posted receives and a
//! clock go in; messages to send, fragments for the layer above and deadlines come out.

pub mod direct;

pub mod close_reason;
pub mod limits;
pub mod memory;
pub mod peer;
pub mod relay;
pub mod serve;
pub mod transport;
