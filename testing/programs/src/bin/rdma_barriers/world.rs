//! A target with one disk in a file, and two hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nvme::Nqn;
use nvme::serve::{
    BackendConfig, BlockSize, Bytes, Config, NamespaceConfig, PortConfig, Server, SubsystemConfig,
    TransportConfig, Tuning,
};
use programs::rdma_queue::{RdmaHost, RdmaQueue, TIMEOUT};
use programs::storage::NQN;
use tempfile::TempDir;
use wire::nvme::command::Blocks;
use wire::nvme::dsm::{CopyRange, DEALLOCATE, Range};
use wire::nvme::{Command, Fuse, Io};

use crate::WithData;

pub(crate) const BLOCK: usize = 512;
const BLOCKS: u64 = 4096;
/// The blocks that commands change: as many as a capsule holds.
const RANGE: Blocks = Blocks {
    start: 3500,
    count: 8,
};
pub(crate) const RANGE_BYTES: usize = RANGE.count as usize * BLOCK;
/// The content of the disk before; its first blocks, from which Copy reads, have [`AFTER`].
pub(crate) const BEFORE: u8 = 0x11;
/// What commands write.
pub(crate) const AFTER: u8 = 0xbb;
/// A block that no change concerns, and its content.
const MARKER: u64 = 512;
const MARKED: u8 = 0x77;
/// The size after resizing: without [`RANGE`].
pub(crate) const RESIZED: u64 = 1024 * BLOCK as u64;
/// The port identifier of the target.
pub(crate) const PORT: u16 = 1;

/// Kinds of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    CompareAndWrite,
    WriteZeroes,
    Deallocate,
    Copy,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::CompareAndWrite,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::Copy,
    ];

    /// The commands, with the data that the host sends.
    pub(crate) fn commands(self) -> Vec<WithData> {
        let fused = |kind, fuse: Fuse| Command {
            flags: fuse as u8,
            ..blocks(kind, RANGE)
        };
        let written = vec![AFTER; RANGE_BYTES];
        match self {
            Self::Read => vec![(blocks(Io::Read, RANGE), Vec::new())],
            Self::Write => vec![(blocks(Io::Write, RANGE), written)],
            Self::CompareAndWrite => vec![
                (fused(Io::Compare, Fuse::First), vec![BEFORE; RANGE_BYTES]),
                (fused(Io::Write, Fuse::Second), written),
            ],
            Self::WriteZeroes => vec![(blocks(Io::WriteZeroes, RANGE), Vec::new())],
            Self::Deallocate => {
                let range = Range {
                    attributes: 0,
                    count: RANGE.count,
                    start: RANGE.start,
                };
                let command = Command {
                    cdw11: DEALLOCATE,
                    ..of_namespace(Io::DatasetManagement)
                };
                vec![(command, range.to_bytes().to_vec())]
            }
            Self::Copy => {
                let range = CopyRange {
                    start: 0,
                    count_less_one: RANGE.count as u16 - 1,
                };
                let command = Command {
                    cdw10: RANGE.start as u32,
                    ..of_namespace(Io::Copy)
                };
                vec![(command, range.to_bytes().to_vec())]
            }
        }
    }
}

pub(crate) fn of_namespace(kind: Io) -> Command {
    Command {
        opcode: kind as u8,
        nsid: 1,
        ..Command::default()
    }
}

fn blocks(kind: Io, blocks: Blocks) -> Command {
    of_namespace(kind).with_blocks(blocks)
}

/// A read of the first block, whose content is [`AFTER`].
pub(crate) fn read_first_block() -> Command {
    blocks(Io::Read, Blocks { start: 0, count: 1 })
}

/// A write of that many bytes, to blocks behind [`RESIZED`].
pub(crate) fn write_of(bytes: usize) -> Command {
    let start = RESIZED / BLOCK as u64;
    let count = (bytes / BLOCK) as u32;
    blocks(Io::Write, Blocks { start, count })
}

/// A write that [`World::has_marker`] sees.
pub(crate) fn marker() -> WithData {
    let at = Blocks {
        start: MARKER,
        count: 1,
    };
    (blocks(Io::Write, at), vec![MARKED; BLOCK])
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("waited in vain for {what}"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The content of the disk.
#[derive(PartialEq, Eq)]
pub(crate) struct Medium(Vec<u8>);

impl Medium {
    /// The blocks that commands change.
    pub(crate) fn range(&self) -> &[u8] {
        let start = RANGE.start as usize * BLOCK;
        self.0.get(start..start + RANGE_BYTES).unwrap_or_default()
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    /// The host whose commands wait, with one I/O queue.
    pub(crate) victim: RdmaHost,
    /// A second I/O queue of the victim, on which receives are posted.
    pub(crate) second: RdmaQueue,
    /// The host that takes rights away.
    pub(crate) other: RdmaHost,
    path: PathBuf,
    _folder: TempDir,
}

/// A port that no other world has.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A port of the target with this address.
pub(crate) fn port() -> PortConfig {
    PortConfig {
        id: Some(PORT),
        transport: TransportConfig::Rdma,
        tls: false,
        shared_receives: None,
        address: SocketAddr::from(([127, 0, 0, 1], next_port())),
        subsystems: None,
    }
}

pub(crate) fn name() -> Nqn {
    NQN.parse().expect("a name")
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl World {
    pub(crate) fn new() -> Result<Self, String> {
        let folder = TempDir::new().map_err(text)?;
        let path = folder.path().join("disk");
        let bytes = BLOCKS * BLOCK as u64;
        let mut content = vec![BEFORE; bytes as usize];
        content[..RANGE_BYTES].fill(AFTER);
        fs::write(&path, content).map_err(text)?;
        let backend = BackendConfig::File {
            path: path.clone(),
            size: Some(Bytes(bytes)),
            direct: false,
        };
        let namespace = NamespaceConfig {
            block_size: BlockSize::B512,
            ..NamespaceConfig::new(1, backend)
        };
        let subsystem = SubsystemConfig {
            namespaces: vec![namespace],
            ..SubsystemConfig::new(name())
        };
        let port = port();
        let address = port.address;
        let config = Config {
            subsystems: vec![subsystem],
            ports: vec![port],
            referrals: Vec::new(),
        };
        let tuning = Tuning {
            stall_timeout: 2 * TIMEOUT,
            ..Tuning::default()
        };
        let server = Server::start(config, None, tuning).map_err(text)?;
        let mut victim = RdmaHost::new(address, NQN, 1, 2)?;
        let second = victim.io.pop().ok_or("no second queue")?;
        let other = RdmaHost::new(address, NQN, 2, 1)?;
        Ok(Self {
            server,
            victim,
            second,
            other,
            path,
            _folder: folder,
        })
    }

    pub(crate) fn medium(&self) -> Medium {
        Medium(fs::read(&self.path).unwrap_or_default())
    }

    /// Whether the marker has been written.
    pub(crate) fn has_marker(&self) -> bool {
        let start = MARKER as usize * BLOCK;
        let content = self.medium().0;
        content
            .get(start..start + BLOCK)
            .is_some_and(|block| block.iter().all(|byte| *byte == MARKED))
    }
}
