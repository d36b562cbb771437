//! Relaying SMB 2 and 3 between SMB Direct and TCP without a key: what both directions share.
//!
//! [`gateway`] has the client on the SMB Direct side, [`dial`] the server. Both are without input or output
//! of their own: fragments, bytes of TCP and finished RDMA requests go in; calls of a [`Peer`] and bytes for
//! TCP come out.

pub mod dial;
pub mod elements;
pub mod frame;
pub mod gateway;
mod incoming;
pub mod requests;
pub mod responses;
pub mod trees;

use crate::close_reason::Ended;
use crate::direct::incoming::Fragment;
use crate::peer::Peer;
use buffer::Buffer;
use frame::ToTcp;
use wire::smb::message::{Header, SessionSetupResponse, command, session_flag};

/// The first dialect whose answers invalidate the key.
const DIALECT_3_0_2: u16 = 0x0302;

/// One relayed connection.
pub trait Session {
    /// Handles a fragment of a message of the SMB Direct peer.
    ///
    /// # Errors
    /// [`Ended`] when the message violates the protocol or a limit.
    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), Ended>;

    /// Takes the buffer of an operation whose RDMA READs have completed.
    fn fetched(&mut self, operation: u64, buffer: Buffer);

    /// Continues what had to wait for memory.
    ///
    /// # Errors
    /// As [`Session::fragment`].
    fn advance(&mut self, peer: &mut impl Peer) -> Result<(), Ended>;

    /// Where the next bytes of the TCP connection go; `None` while earlier ones wait for memory.
    fn tcp_place(&mut self) -> Option<&mut [u8]>;

    /// Handles bytes that were received there.
    ///
    /// # Errors
    /// As [`Session::fragment`].
    fn tcp_received(&mut self, count: usize, peer: &mut impl Peer) -> Result<(), Ended>;

    /// The queue of data to be sent over TCP.
    fn to_tcp(&mut self) -> &mut ToTcp;

    /// How far the server has authenticated the client.
    fn trust(&self) -> Trust;

    /// Whether a request waits for memory, which others may give back at any time.
    fn waits_for_memory(&self) -> bool;

    /// Bytes that wait in the session's queues, or are collected, without those in data buffers.
    fn held(&mut self) -> usize;

    /// Requests whose data moved by RDMA so far, and the bytes: reads, then writes, as the client sees them.
    fn moved(&self) -> [Moved; 2];
}

/// How far a server has authenticated a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Trust {
    /// The client has set up no session.
    #[default]
    Stranger,
    /// Its session is that of a guest or of an anonymous user: it has proved nothing.
    Guest,
    /// The client has authenticated as a user.
    User,
}

impl Trust {
    /// Learns from an answer of the server. A user stays one if its connection has a guest's session as well.
    fn learn(&mut self, header: &Header, body: &[u8]) {
        if header.command != command::SESSION_SETUP || header.status != 0 || !header.is_response() {
            return;
        }
        let nobody = session_flag::IS_GUEST | session_flag::IS_NULL;
        let found = match SessionSetupResponse::split(body) {
            Some((response, _)) if response.session_flags & nobody == 0 => Self::User,
            // A message that is cut short proves nothing either.
            _ => Self::Guest,
        };
        *self = found.max(*self);
    }
}

/// Requests whose data moved by RDMA.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The number of requests.
    pub requests: u64,
    /// Data of the transfers in bytes.
    pub bytes: u64,
}

impl Moved {
    fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes as u64;
    }
}
