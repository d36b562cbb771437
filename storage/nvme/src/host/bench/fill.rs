//! Fills a disk before it is measured.

use std::io;

use buffer::Buffer;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use wire::nvme::Io;

use super::super::HostError;
use super::super::client::transfer;
use super::super::commands::Payload;
use super::super::namespace::Namespace;
use super::super::queue::Queue;
use crate::store::Store;

/// Fills a buffer with pseudo-random data: reads of blocks that were never written are faster than others.
fn fill_buffer(buffer: &mut Buffer, seed: u64) {
    let mut generator = SplitMix64::seed_from_u64(seed);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&generator.next_u64().to_le_bytes());
    }
}

/// Writes the whole namespace, `bytes` at a time.
///
/// # Errors
/// When the connection is broken, or a write fails.
pub fn fill(queue: &mut Queue, namespace: &Namespace, bytes: usize) -> Result<(), HostError> {
    let most = (bytes / namespace.block_size) as u64;
    let mut buffer = queue.buffer(bytes)?;
    fill_buffer(&mut buffer, 1);
    let mut start = 0;
    while start < namespace.blocks {
        let count = most.min(namespace.blocks - start) as u32;
        let payload = Payload::Out(buffer, count as usize * namespace.block_size);
        let done = queue.call(
            "Write",
            transfer(Io::Write, namespace.nsid, start, count),
            payload,
        )?;
        buffer = done
            .buffer
            .ok_or(HostError::Protocol("a write without its buffer"))?;
        start += u64::from(count);
    }
    Ok(())
}

/// Writes the whole store of this process.
///
/// # Errors
/// The error of the store.
pub fn fill_local(store: &Store, size: u64) -> io::Result<()> {
    const PIECE: usize = 1 << 20;
    let mut buffer = Buffer::zeroed(PIECE);
    fill_buffer(&mut buffer, 1);
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(PIECE as u64);
        store.write(offset, &buffer[..length as usize], false)?;
        offset += length;
    }
    Ok(())
}
