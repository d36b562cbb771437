//! Writes whose data stay in the message that they arrived in, as RDMA has them: a disk in memory takes them
//! from there.

use std::ops::Range;
use std::sync::Arc;

use buffer::Buffer;
use nvme::controller::{Outcome, Plan, Queue, Target};
use nvme::engine::{Engine, Finished};
use nvme::store::Store;
use wire::nvme::tcp::Digests;
use wire::nvme::{COMMAND_SIZE, Command, Io, Sgl, Status};

use crate::support::{self, BLOCK, SUBSYSTEM, io, nqn, pattern, target};

/// Bytes of a chunk: the unit of a store in memory.
const CHUNK: usize = 1 << 20;
/// Bytes of a message: a command, and the longest data in a capsule.
const MESSAGE: usize = COMMAND_SIZE + 4096;

/// A command with data in its capsule.
fn write(start: u64, length: usize) -> Command {
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: length as u32,
    };
    io(Io::Write, start, (length / BLOCK) as u32).with_sgl(sgl)
}

/// An I/O queue without a transport.
struct Bare {
    target: Arc<Target>,
    queue: Queue,
    engine: Engine,
    admin: support::Line,
}

impl Bare {
    fn new() -> Self {
        let target = target();
        let (admin, controller_id) = support::admin(&target, 1, Digests::default());
        let queue = support::bare_queue(&target, controller_id);
        Self {
            target,
            queue,
            engine: Engine::new(),
            admin,
        }
    }

    /// Writes blocks out of a message that ends with their data. The message comes back.
    fn write(&mut self, start: u64, data: &[u8]) -> (Status, Buffer) {
        let mut message = Buffer::zeroed(MESSAGE);
        let from = MESSAGE - data.len();
        message[from..MESSAGE].copy_from_slice(data);
        let command = write(start, data.len());
        let plan = self.queue.accept(&command, data.len() as u32, 0);
        let Plan::Take(mut request) = plan else {
            panic!("{plan:?}")
        };
        assert!(request.is_written_in_place());
        request.data_at = from;
        request.prefetch();
        let (status, back) = match self.queue.execute(request, Some(message), 0) {
            Outcome::Reply(completion, back) => (completion.status(), back),
            Outcome::Task(task) => {
                let Finished { status, buffer, .. } =
                    self.engine.run_in_memory(task).expect("it is memory");
                (status, buffer)
            }
            Outcome::Waits => panic!("it waits"),
        };
        let back = back.expect("the message comes back, to be posted again");
        assert_eq!(&back[from..MESSAGE], data, "with what was in it");
        (status, back)
    }

    /// Calls a function with the store.
    fn store<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        let subsystem = self.target.subsystem(&nqn(SUBSYSTEM)).unwrap();
        look(subsystem.namespaces()[0].store())
    }

    fn read(&self, range: Range<usize>) -> Vec<u8> {
        let mut data = vec![9; range.len()];
        self.store(|store| store.read(range.start as u64, &mut data).unwrap());
        data
    }
}

#[test]
fn ranges_within_chunks_and_across_them_are_written() {
    let mut bare = Bare::new();
    let last = CHUNK / BLOCK;
    for (seed, (start, blocks)) in [
        (0, 1),
        (3, 8),
        (last - 8, 8),
        (last - 1, 2),
        (last - 4, 8),
        (last, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let (at, data) = (start * BLOCK, pattern(seed as u64, blocks * BLOCK));
        let around = at.saturating_sub(BLOCK)..at + data.len() + BLOCK;
        let mut expected = bare.read(around.clone());
        expected[at - around.start..][..data.len()].copy_from_slice(&data);
        assert_eq!(bare.write(start as u64, &data).0, Status::SUCCESS);
        assert!(
            bare.read(around) == expected,
            "block {start}, {blocks} blocks"
        );
    }
}

#[test]
fn lent_chunks_keep_their_bytes() {
    let mut bare = Bare::new();
    let (start, at) = ((CHUNK - 2 * BLOCK) / BLOCK, CHUNK - 2 * BLOCK);
    let (before, after) = (pattern(1, 4 * BLOCK), pattern(2, 4 * BLOCK));
    assert_eq!(bare.write(start as u64, &before).0, Status::SUCCESS);
    let lent = bare
        .store(|store| store.lend(at as u64, 4 * BLOCK))
        .unwrap();
    assert_eq!(lent.pieces().count(), 2, "it crosses a chunk");
    assert_eq!(bare.write(start as u64, &after).0, Status::SUCCESS);
    assert!(
        lent.pieces().flatten().eq(&before),
        "what is lent does not change"
    );
    assert!(bare.read(at..at + 4 * BLOCK) == after);
    drop(lent);
    assert_eq!(bare.write(start as u64, &before).0, Status::SUCCESS);
    assert!(bare.read(at..at + 4 * BLOCK) == before);
}

#[test]
fn a_message_comes_back_from_a_write_that_fails() {
    let mut bare = Bare::new();
    let data = pattern(3, 8 * BLOCK);
    // Accepted, and write protected before it is executed.
    let protect = |value: u32| Command {
        opcode: wire::nvme::Admin::SetFeatures as u8,
        nsid: 1,
        cdw10: 0x84,
        cdw11: value,
        ..Command::default()
    };
    let plan = bare
        .queue
        .accept(&write(0, data.len()), data.len() as u32, 0);
    let Plan::Take(mut request) = plan else {
        panic!("{plan:?}")
    };
    request.data_at = COMMAND_SIZE;
    assert!(bare.admin.plain(protect(1)).status().is_success());
    let outcome = bare
        .queue
        .execute(request, Some(Buffer::zeroed(MESSAGE)), 0);
    let Outcome::Reply(completion, back) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        completion.status().plain(),
        Status::NAMESPACE_WRITE_PROTECTED
    );
    assert!(back.is_some_and(|back| back.len() >= MESSAGE));
    assert!(
        bare.read(0..data.len()).iter().all(|byte| *byte == 0),
        "nothing was written"
    );
    assert!(bare.admin.plain(protect(0)).status().is_success());
    assert_eq!(bare.write(0, &data).0, Status::SUCCESS);
}
