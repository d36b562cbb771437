//! Receives of RDMA connections: their number, their buffers, and what a connection costs.

use std::io;
use std::sync::Arc;

use buffer::Buffer;
use rdma::{BATCH, Connection, Domain, SharedReceives, Sizes};
use wire::nvme::COMMAND_SIZE;

use crate::limits::{CONNECTION_BYTES, RDMA_ENTRY_BYTES, RDMA_IN_CAPSULE, RECEIVES_BEFORE_TRUST};

/// The `wr_id` of a receive.
pub(super) const RECEIVE: u64 = 0;
/// Entries of the send queue beyond those for commands: for responses whose completions were not polled yet.
const SPARE: u32 = 64;
/// Outstanding RDMA READs: the limit of most adapters.
const READS: u8 = 16;
/// RNR retries without limit: receives can be shared by connections.
const RNR_RETRY: u8 = 7;

pub(super) fn other(error: rdma::Error) -> io::Error {
    match error {
        rdma::Error::Disconnected => io::Error::new(io::ErrorKind::NotConnected, error),
        error => io::Error::other(error),
    }
}

/// Queue sizes for a connection with this many queue entries.
pub(super) fn sizes(entries: u16) -> Sizes {
    let depth = u32::from(entries);
    Sizes {
        send: 2 * depth + SPARE,
        receive: depth + 1 + BATCH as u32,
        reads: READS,
        rnr_retry: RNR_RETRY,
    }
}

/// Bytes of a receive buffer, in whole pages.
pub(super) const RECEIVE_BYTES: usize =
    (COMMAND_SIZE + RDMA_IN_CAPSULE).next_multiple_of(buffer::ALIGNMENT);

/// What a connection with this many queue entries costs before its host is authenticated, in bytes.
pub(super) fn connection_bytes(entries: u16) -> usize {
    CONNECTION_BYTES
        + usize::from(entries) * RDMA_ENTRY_BYTES
        + RECEIVES_BEFORE_TRUST * RECEIVE_BYTES
}

/// A receive buffer for a capsule with in-capsule data.
pub(super) fn capsule(domain: &Arc<Domain>) -> io::Result<Buffer> {
    domain
        .registered(COMMAND_SIZE + RDMA_IN_CAPSULE)
        .map_err(other)
}

/// Posts a receive to a shared receive queue.
pub(super) fn post_shared(receives: &SharedReceives, buffer: Buffer) -> io::Result<()> {
    match receives.receive(buffer, RECEIVE) {
        // Another connection has filled the queue meanwhile: the buffer is freed.
        Err((rdma::Error::Full, _)) => Ok(()),
        posted => posted.map_err(|(error, _)| other(error)),
    }
}

/// Posts a receive to the queue of the connection or to its shared receive queue.
pub(super) fn post_receive(
    connection: &mut Connection,
    receives: Option<&SharedReceives>,
    buffer: Buffer,
) -> io::Result<()> {
    match receives {
        None => connection
            .receive(buffer, RECEIVE)
            .map_err(|(error, _)| other(error)),
        Some(receives) => post_shared(receives, buffer),
    }
}
