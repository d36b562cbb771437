//! How data is cut: as NCCL's protocols do (2.30.7, `include/device.h`, `include/collectives.h`, `init.cc`),
//! or as the file says.

use super::FileTable;
use crate::world::{CollectiveWork, Cut, DEPTH_MAX};
use fabric_file::schema::{Collective, CollectiveProtocol, TransferTable};
use fabric_file::{FileError, Mistake};
use units::Size;

/// A step of `Simple`: an eighth of its buffer of 4 MiB.
const SIMPLE_STEP: u64 = 512 << 10;

/// Steps of a buffer.
const STEPS: u32 = 8;

/// Bytes of a chunk at least and at most, and slices of one at most.
const CHUNK_MIN: u64 = 16;
const CHUNK_MAX: u64 = 1 << 30;
const SLICES_MAX: u32 = 1 << 10;

/// Below this, messages between two ranks are shorter.
const MIDDLE: u64 = STEPS as u64 * SIMPLE_STEP;

/// A chunk of a transfer.
const TRANSFER_CHUNK: u64 = 128 << 10;

impl Cut {
    /// The cut of a collective's protocol.
    const fn of_protocol(protocol: CollectiveProtocol, work: CollectiveWork) -> Self {
        let in_ring = matches!(
            work,
            CollectiveWork::RingAllReduce
                | CollectiveWork::RingReduceScatter
                | CollectiveWork::RingAllGather
        );
        match protocol {
            CollectiveProtocol::Simple if in_ring => Self {
                chunk_bytes: 4 * SIMPLE_STEP,
                slices: 2,
                credit: STEPS / 2,
                on_wire: [1, 1],
            },
            CollectiveProtocol::Simple => Self {
                chunk_bytes: SIMPLE_STEP,
                slices: 1,
                credit: STEPS,
                on_wire: [1, 1],
            },
            CollectiveProtocol::Ll => Self {
                chunk_bytes: 32_768,
                slices: 1,
                credit: STEPS,
                on_wire: [2, 1],
            },
            CollectiveProtocol::Ll128 => Self {
                chunk_bytes: 576_000,
                slices: 1,
                credit: STEPS,
                on_wire: [16, 15],
            },
        }
    }
}

/// The sizes that chunks of some protocols depend on.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes of the collective in one channel.
    pub(super) channel_bytes: u64,
    /// Bytes that everyone sends to everyone, where that is so.
    pub(super) part: u64,
    pub(super) ranks: u32,
    pub(super) per_server: u32,
}

/// The chunk of a tree with `LL128`: halved while fewer chunks than that would be under way (`enqueue.cc`).
fn tree_chunk(whole: u64, sizes: Sizes) -> u64 {
    let servers = sizes.ranks / sizes.per_server;
    let within = f64::from(sizes.per_server);
    let stages = 1.0 + f64::from(servers.max(1).ilog2()) + 0.1 * within;
    let mut chunk = whole;
    for (times, least) in [(64.0, 131_072), (16.0, 32_768)] {
        while ((sizes.channel_bytes / chunk) as f64) < stages * times / within && chunk > least {
            chunk /= 2;
        }
    }
    chunk
}

/// How a collective is cut.
pub(super) fn of_collective(
    table: FileTable<'_>,
    collective: &Collective,
    work: CollectiveWork,
    sizes: Sizes,
) -> Result<Cut, FileError> {
    let is_direct = matches!(
        work,
        CollectiveWork::SendToNext
            | CollectiveWork::DirectAllToAll
            | CollectiveWork::DirectReduceScatter
            | CollectiveWork::DirectAllGather
    );
    let of_protocol = Cut::of_protocol(collective.protocol, work);
    let usual = match collective.protocol {
        CollectiveProtocol::Simple if is_direct => Cut {
            chunk_bytes: between_two(sizes.part),
            ..of_protocol
        },
        CollectiveProtocol::Ll128 if matches!(work, CollectiveWork::TreeAllReduce { .. }) => Cut {
            chunk_bytes: tree_chunk(of_protocol.chunk_bytes, sizes),
            ..of_protocol
        },
        _ => of_protocol,
    };
    let chunk_bytes = chunk(table, collective.chunk)?.unwrap_or(usual.chunk_bytes);
    let slices = collective.slices.unwrap_or(usual.slices);
    if !(1..=SLICES_MAX).contains(&slices) || u64::from(slices) * CHUNK_MIN > chunk_bytes {
        let what = format!("a chunk of {chunk_bytes} bytes is not cut into {slices} slices");
        let instead = format!("1 to {SLICES_MAX}, of {CHUNK_MIN} bytes at least");
        return Err(table.mistake(Mistake::Value, "slices", what, &instead));
    }
    let credit = credit(table, collective.credit.unwrap_or(usual.credit))?;
    Ok(Cut {
        chunk_bytes,
        slices,
        credit,
        ..usual
    })
}

/// How a transfer is cut.
pub(super) fn of_transfer(
    table: FileTable<'_>,
    transfer: &TransferTable,
) -> Result<Cut, FileError> {
    Ok(Cut {
        chunk_bytes: chunk(table, transfer.chunk)?.unwrap_or(between_two(transfer.bytes.0)),
        slices: 1,
        credit: credit(table, transfer.credit)?,
        on_wire: [1, 1],
    })
}

/// Bytes of the messages between two ranks that exchange so many bytes.
const fn between_two(bytes: u64) -> u64 {
    if bytes < SIMPLE_STEP {
        TRANSFER_CHUNK / 4
    } else if bytes < MIDDLE {
        TRANSFER_CHUNK / 2
    } else {
        TRANSFER_CHUNK
    }
}

fn chunk(table: FileTable<'_>, chunk: Option<Size>) -> Result<Option<u64>, FileError> {
    let Some(Size(bytes)) = chunk else {
        return Ok(None);
    };
    if (CHUNK_MIN..=CHUNK_MAX).contains(&bytes) {
        return Ok(Some(bytes));
    }
    let what = format!("a chunk of {bytes} bytes");
    Err(table.mistake(Mistake::Value, "chunk", what, "16 bytes to 1 GiB"))
}

fn credit(table: FileTable<'_>, credit: u32) -> Result<u32, FileError> {
    if (1..=DEPTH_MAX / 2).contains(&credit) {
        return Ok(credit);
    }
    let what = format!("room for {credit} messages");
    let instead = format!("1 to {}", DEPTH_MAX / 2);
    Err(table.mistake(Mistake::Value, "credit", what, &instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a rank in each server: 144,000 and less come from 576,000 by halving.
    #[test]
    fn trees_with_ll128_have_shorter_chunks_when_short() {
        let of = |bytes: u64, ranks: u32| {
            let sizes = Sizes {
                channel_bytes: bytes,
                part: 0,
                ranks,
                per_server: 1,
            };
            tree_chunk(576_000, sizes)
        };
        assert_eq!(of(1 << 30, 16), 576_000);
        assert_eq!(of(64 << 20, 16), 144_000);
        assert_eq!(of(1 << 20, 16), 18_000);
    }

    #[test]
    fn messages_between_two_are_shorter_when_few() {
        assert_eq!(between_two(4 << 20), 128 << 10);
        assert_eq!(between_two((4 << 20) - 1), 64 << 10);
        assert_eq!(between_two((512 << 10) - 1), 32 << 10);
    }
}
