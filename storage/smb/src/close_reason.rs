//! Why a relayed connection has ended.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::direct::{Closed, SendError};

/// The reason for the end of a connection, with the field or the limit that was violated.
#[derive(Debug, Error)]
pub enum Ended {
    /// The SMB Direct peer has disconnected.
    #[error("the SMB Direct peer has disconnected")]
    Disconnected,
    /// The TCP peer has closed its connection.
    #[error("the TCP peer has closed the connection")]
    TcpClosed,
    /// The SMB Direct peer violates the protocol, or is silent.
    #[error(transparent)]
    Direct(#[from] Closed),
    /// A message cannot be sent to the SMB Direct peer.
    #[error("{0}; set smb2 max trans, rsize and wsize to at most 131072")]
    Send(#[from] SendError),
    /// The client has set up no session in time.
    #[error("no session within {0:?}")]
    NoSession(Duration),
    /// Another client needs the memory of this one, which has not authenticated.
    #[error(
        "the memory of unauthenticated clients is used up: the oldest connection of the address with the \
         most of it gives way"
    )]
    Displaced,
    /// An unauthenticated client needs more memory than is left.
    #[error("the memory of unauthenticated clients is used up")]
    Unauthenticated,
    /// The SMB server takes no connections.
    #[error("the SMB server cannot be reached: {0}")]
    Unreachable(io::Error),
    /// Verbs or the connection manager report an error.
    #[error(transparent)]
    Rdma(rdma::Error),
    /// An RDMA request has failed, as one to memory that the peer did not open does.
    #[error("an RDMA request has failed with verbs status {}{}", .0, meaning(*.0))]
    Work(u32),
    /// The TCP connection has failed.
    #[error("TCP: {0}")]
    Tcp(#[from] io::Error),
    /// The first four bytes of a message over TCP are not those of SMB.
    #[error("TCP: message type {0:#04x}, only session messages (0) and keepalives (0x85) are SMB")]
    Frame(u8),
    /// A message over TCP has no byte, or more than its 24-bit length can express.
    #[error("a message of {0} bytes cannot pass over TCP: the longest has 16777215")]
    Length(u64),
    /// A request has the number of one that is not answered.
    #[error("MessageId {0} was used again before its answer")]
    MessageId(u64),
    /// More requests with buffer descriptors than a client can have credits for.
    #[error("more than {0} requests with buffer descriptors are unanswered")]
    TooManyRequests(usize),
    /// More buffer descriptors than are kept.
    #[error("more than {0} buffer descriptors of unanswered requests")]
    TooManyDescriptors(usize),
    /// A compound that has to be collected as a whole is too long.
    #[error("a compound of {length} bytes, at most {limit} are collected{}", if_unauthenticated(*.limit))]
    Compound {
        /// The length of the message, in bytes.
        length: u32,
        /// The limit, in bytes.
        limit: u32,
    },
    /// The server's answer does not fit the request.
    #[error("the server answered READ {message_id} with {length} bytes, {limit} were asked for")]
    Answer {
        /// The MessageId of the request.
        message_id: u64,
        /// The bytes of the answer.
        length: u64,
        /// The requested length in bytes.
        limit: u32,
    },
}

/// The meaning of the status of a work request (`enum ibv_wc_status`) for a connection.
const fn meaning(status: u32) -> &'static str {
    match status {
        5 => ": the connection was lost",
        9 => ": the peer refuses the request as invalid",
        10 => ": the peer has not opened the memory that its buffer descriptor names",
        12 => ": the peer does not acknowledge",
        13 => ": the peer has posted no receive",
        _ => "",
    }
}

fn if_unauthenticated(limit: u32) -> &'static str {
    if limit == crate::limits::UNAUTHENTICATED_MESSAGE_MAX {
        " before a session is set up"
    } else {
        ""
    }
}

impl From<rdma::Error> for Ended {
    fn from(error: rdma::Error) -> Self {
        match error {
            rdma::Error::Disconnected => Self::Disconnected,
            error => Self::Rdma(error),
        }
    }
}
