//! Reads and writes stores: immediately where the store does not block, with io_uring where the kernel waits
//! for a disk, and otherwise by blocking calls in the thread of the connection.

mod blocking;
mod executed;
mod in_kernel;
mod task;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Once};

use slab::Slab;
use wire::nvme::Status;

use crate::controller::{Admitted, Barrier, Effect, Namespace};
use crate::latency::{Observer, QueueName};
use crate::store::{FileStore, Store};
use crate::sys::ring::Ring;

use blocking::run;
use executed::status_of_write;
use in_kernel::InKernel;
pub use task::{Action, Finished, Task};

/// Entries of the io_uring of one connection; further operations wait.
const RING_ENTRIES: u32 = 256;
/// Completions of the ring that are processed in one round. After many completions at once the disk is idle
/// until the hosts have their responses and send new commands; a limit per round sends the first responses
/// while the others are still queued.
const ROUND_COMPLETIONS: usize = 2;
/// Operations that are submitted to the kernel at once. The kernel prepares all operations of a submission,
/// at 2 us each, before the disk gets the first one. A disk that has no other work is idle meanwhile.
const SUBMITTED_AT_ONCE: usize = 4;

/// Executes the tasks of one connection.
#[derive(Debug, Default)]
pub struct Engine {
    ring: RingState,
    in_kernel: Slab<InKernel>,
    /// Completions of the ring that were processed in this round.
    taken: usize,
    finished: VecDeque<Finished>,
    /// Tasks whose barrier has not passed.
    behind: Vec<Task>,
    observer: Observer,
}

#[derive(Debug, Default)]
enum RingState {
    /// No task has needed a ring yet.
    #[default]
    Untried,
    Here(Box<Ring>),
    /// The kernel refuses io_uring to this process: files are read and written by blocking calls.
    Refused,
}

impl Engine {
    /// An engine without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A descriptor that is readable when [`Engine::finished`] has a result; `None` while there is no ring.
    pub fn descriptor(&self) -> Option<RawFd> {
        match &self.ring {
            RingState::Here(ring) => Some(ring.as_raw_fd()),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// Begins a round of the thread: the latency of tasks that begin in it counts from `now_ns`.
    pub fn begin_round(&mut self, now_ns: u64) {
        self.taken = 0;
        self.observer.begin_round(now_ns);
    }

    /// Ends a round: tasks that finished in it count as finished at `now_ns`, for the queue that `name`
    /// returns.
    pub fn end_round(&mut self, now_ns: u64, name: &dyn Fn() -> Option<QueueName>) {
        self.observer.end_round(now_ns, name);
    }

    /// The number of tasks that the kernel executes.
    pub fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    /// Begins a task, which may finish at once. [`Engine::submit`] has to be called before waiting.
    pub fn begin(&mut self, mut task: Task) {
        if task
            .behind
            .as_ref()
            .is_some_and(|barrier| !barrier.has_passed())
        {
            return self.behind.push(task);
        }
        let Some(namespace) = task.namespace.take() else {
            let finished = self.run_on_all(task);
            return self.finished.push_back(finished);
        };
        let finished = match task.action.effect() {
            None => self.run_alone(task, &namespace),
            Some(effect) => match self.admit(namespace, effect) {
                Err(status) => task.failed(status),
                Ok(namespace) => match self.hand_over(task, namespace) {
                    None => return self.submit_if_many(),
                    Some((task, namespace)) => run(task, &namespace, &mut self.observer),
                },
            },
        };
        self.finished.push_back(finished);
    }

    /// Executes a task at once, if its store is in memory. Returns any other task.
    ///
    /// # Errors
    /// The task, for [`Engine::begin`].
    #[expect(
        clippy::result_large_err,
        reason = "the task is not an error, and boxing it would allocate"
    )]
    pub fn run_in_memory(&mut self, mut task: Task) -> Result<Finished, Task> {
        let Some(namespace) = task.namespace.take_if(|it| it.store().is_memory()) else {
            return Err(task);
        };
        Ok(match task.action.effect() {
            None => self.run_alone(task, &namespace),
            Some(effect) => match self.admit(namespace, effect) {
                Err(status) => task.failed(status),
                Ok(namespace) => run(task, &namespace, &mut self.observer),
            },
        })
    }

    /// Waits until a task may act on its namespace. Before the thread sleeps for that, the tasks that it has
    /// in the kernel are finished: the other commands may wait for them.
    fn admit(&mut self, namespace: Arc<Namespace>, effect: Effect) -> Result<Admitted, Status> {
        match Admitted::at_once(namespace, effect) {
            Ok(admitted) => Ok(admitted),
            Err(namespace) => {
                self.drain()?;
                Ok(Admitted::in_turn(namespace, effect))
            }
        }
    }

    /// Executes a task that excludes all changes by other commands.
    fn run_alone(&mut self, task: Task, namespace: &Namespace) -> Finished {
        if let Err(status) = self.drain() {
            return task.failed(status);
        }
        let _alone = namespace.exclude_changes();
        run(task, namespace, &mut self.observer)
    }

    /// Flushes the namespaces of a task that has several.
    fn run_on_all(&mut self, task: Task) -> Finished {
        let Task {
            cid,
            action,
            underway,
            tag,
            ..
        } = task;
        let (all, buffer) = match action {
            Action::FlushAll(all) => (all, None),
            Action::Nothing(buffer) => (Vec::new(), buffer),
            _ => (Vec::new(), None),
        };
        let flush = |namespace| {
            let namespace = self.admit(namespace, Effect::Reads)?;
            match status_of_write(&namespace.store().flush()) {
                Status::SUCCESS => Ok(()),
                status => Err(status),
            }
        };
        // All are flushed, also behind one that fails.
        let results: Vec<_> = all.into_iter().map(flush).collect();
        let status = results
            .into_iter()
            .find_map(Result::err)
            .unwrap_or(Status::SUCCESS);
        Finished {
            buffer,
            ..Finished::without_data(cid, tag, status, underway)
        }
    }

    /// Submits the queued operations to the kernel.
    pub fn submit(&mut self) {
        if let RingState::Here(ring) = &mut self.ring
            && let Err(error) = ring.submit()
        {
            // The kernel took none of the operations.
            tracing::warn!(
                "io_uring took no operations, and gets them again in the next round: {error}"
            );
        }
    }

    /// Submits the queued operations once there are [`SUBMITTED_AT_ONCE`].
    fn submit_if_many(&mut self) {
        if matches!(&self.ring, RingState::Here(ring) if ring.unsubmitted() >= SUBMITTED_AT_ONCE) {
            self.submit();
        }
    }

    /// The next finished task. A round returns a few; the others follow in the next round.
    pub fn finished(&mut self) -> Option<Finished> {
        let has_passed = |task: &Task| task.behind.as_ref().is_none_or(Barrier::has_passed);
        if let Some(at) = self.behind.iter().position(has_passed) {
            let task = self.behind.remove(at);
            self.begin(task);
        }
        if let Some(finished) = self.finished.pop_front() {
            return Some(finished);
        }
        if self.taken >= ROUND_COMPLETIONS {
            return None;
        }
        let RingState::Here(ring) = &mut self.ring else {
            return None;
        };
        let completion = ring.completed()?;
        self.taken += 1;
        let waiting = self.in_kernel.try_remove(completion.token as usize)?;
        Some(waiting.conclude(completion, &mut self.observer))
    }

    /// Waits until the kernel has finished all tasks.
    ///
    /// # Errors
    /// Internal Error, when the kernel does not say whether it has finished.
    fn drain(&mut self) -> Result<(), Status> {
        while !self.in_kernel.is_empty() {
            let RingState::Here(ring) = &mut self.ring else {
                return Err(Status::INTERNAL_ERROR);
            };
            if let Err(error) = ring.wait() {
                tracing::error!("io_uring cannot be waited for: {error}");
                return Err(Status::INTERNAL_ERROR);
            }
            while let Some(completion) = ring.completed() {
                if let Some(waiting) = self.in_kernel.try_remove(completion.token as usize) {
                    self.finished
                        .push_back(waiting.conclude(completion, &mut self.observer));
                }
            }
        }
        Ok(())
    }

    fn ring(&mut self) -> Option<&mut Ring> {
        if matches!(self.ring, RingState::Untried) {
            self.ring = match Ring::new(RING_ENTRIES) {
                Ok(ring) => RingState::Here(Box::new(ring)),
                Err(error) => {
                    static ONCE: Once = Once::new();
                    ONCE.call_once(|| {
                        tracing::warn!(
                            "io_uring is refused, and blocking calls are used instead: {error}"
                        );
                    });
                    RingState::Refused
                }
            };
        }
        match &mut self.ring {
            RingState::Here(ring) => Some(ring),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// Returns the task when the kernel cannot execute it as one operation: there is no ring, or it is full.
    fn hand_over(&mut self, task: Task, namespace: Admitted) -> Option<(Task, Admitted)> {
        let Some(file) = self.file_for_ring(&task, &namespace) else {
            return Some((task, namespace));
        };
        let offset = task.offset;
        match InKernel::of(task, namespace, self.observer.now_ns()) {
            Err(returned) => Some(returned),
            Ok((waiting, operation)) => {
                let token = self.in_kernel.insert(waiting) as u64;
                if let RingState::Here(ring) = &mut self.ring {
                    let pushed = ring.push(file.file(), offset, operation, token);
                    debug_assert!(pushed.is_ok(), "it had room");
                }
                None
            }
        }
    }

    /// The file for an operation of the ring; `None` when the task has to be executed in this thread.
    fn file_for_ring(&mut self, task: &Task, namespace: &Namespace) -> Option<Arc<FileStore>> {
        let Store::File(file) = namespace.store() else {
            return None;
        };
        if !task.action.suits_a_ring() || !self.ring().is_some_and(|ring| ring.has_room()) {
            return None;
        }
        // The store returns the error, in this thread.
        let refused = match &task.action {
            Action::Flush | Action::Write { durable: true, .. } => file.check_flush().is_err(),
            Action::Write { .. } => file.check_length().is_err(),
            _ => false,
        };
        (!refused).then(|| Arc::clone(file))
    }
}

impl Drop for Engine {
    /// The connection may end while the kernel executes its tasks. Their buffers, and their places among the
    /// commands of the namespaces, are given back when the kernel has finished, and a failed flush is noted.
    fn drop(&mut self) {
        if self.drain().is_err() {
            // The kernel may still change the medium.
            std::mem::forget(std::mem::take(&mut self.in_kernel));
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Identity;
    use buffer::Buffer;

    const BLOCK: u64 = 4096;

    fn file_namespace(folder: &tempfile::TempDir, bytes: u64) -> Arc<Namespace> {
        let path = folder.path().join("disk");
        FileStore::extend(&path, bytes).unwrap();
        let file = FileStore::open(&path, BLOCK as usize, false, true).unwrap();
        file.promise(bytes);
        let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 1);
        Arc::new(Namespace::new(
            1,
            identity,
            BLOCK as u32,
            bytes,
            Store::File(Arc::new(file)),
        ))
    }

    fn write_of(namespace: &Arc<Namespace>, cid: u16) -> Task {
        let write = Action::Write {
            data: Buffer::zeroed(4096),
            from: 0,
            durable: false,
        };
        Task::new(cid, write, Some(Arc::clone(namespace)), 0, BLOCK)
    }

    fn compare_and_write_of(namespace: &Arc<Namespace>) -> Task {
        let [expected, data] = [0, 1].map(|byte| {
            let mut buffer = Buffer::zeroed(4096);
            buffer.fill(byte);
            buffer
        });
        let action = Action::CompareAndWrite {
            first_cid: 1,
            expected,
            data,
            durable: false,
        };
        Task::new(2, action, Some(Arc::clone(namespace)), 0, BLOCK)
    }

    #[test]
    fn writes_of_an_ended_connection_do_not_hold_up_compare_and_write() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut ended = Engine::new();
        (0..3).for_each(|cid| ended.begin(write_of(&namespace, cid)));
        assert_eq!(
            (namespace.in_flight(), ended.in_kernel()),
            (3, 3),
            "the test needs io_uring"
        );
        drop(ended);
        assert_eq!(namespace.in_flight(), 0);
        let mut other = Engine::new();
        other.begin(compare_and_write_of(&namespace));
        let finished = other.finished().unwrap();
        assert_eq!(
            (finished.status, finished.first_of_pair),
            (Status::SUCCESS, Some((1, Status::SUCCESS)))
        );
        assert_eq!(namespace.in_flight(), 0);
    }

    /// A thread with writes in the kernel waits for a Compare and Write that waits for these writes.
    #[test]
    fn a_write_behind_a_waiting_compare_and_write_finishes_earlier_writes_first() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut engine = Engine::new();
        engine.begin(write_of(&namespace, 7));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Engine::new();
                other.begin(compare_and_write_of(&namespace));
                assert_eq!(
                    other.finished().unwrap().first_of_pair,
                    Some((1, Status::SUCCESS))
                );
            });
            while namespace.in_flight() != 2 {
                std::thread::yield_now();
            }
            engine.begin(write_of(&namespace, 8));
            assert_eq!(engine.finished().unwrap().cid, 7);
        });
        drop(engine);
        assert_eq!(namespace.in_flight(), 0);
    }

    /// Each of these changes the medium, and waits for a Compare and Write as for any exclusion.
    #[test]
    fn no_change_begins_while_changes_are_excluded() {
        let folder = tempfile::tempdir().unwrap();
        let memory = || {
            let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 2);
            let store = Store::Memory(crate::store::Memory::new(1 << 16).unwrap());
            Arc::new(Namespace::new(2, identity, BLOCK as u32, 1 << 16, store))
        };
        let changes: [fn() -> Action; 7] = [
            || Action::Write {
                data: Buffer::zeroed(4096),
                from: 0,
                durable: false,
            },
            || Action::Write {
                data: Buffer::zeroed(4096),
                from: 0,
                durable: true,
            },
            || Action::Zero {
                deallocate: false,
                durable: false,
            },
            || Action::Zero {
                deallocate: true,
                durable: true,
            },
            || Action::Discard(vec![(0, BLOCK)]),
            || Action::Copy {
                sources: vec![(BLOCK, BLOCK)],
                durable: false,
            },
            || {
                let [expected, data] = [(); 2].map(|()| Buffer::zeroed(4096));
                Action::CompareAndWrite {
                    first_cid: 1,
                    expected,
                    data,
                    durable: false,
                }
            },
        ];
        for namespace in [file_namespace(&folder, 1 << 16), memory()] {
            for change in changes {
                let alone = namespace.exclude_changes();
                std::thread::scope(|scope| {
                    let changing = scope.spawn(|| {
                        let mut engine = Engine::new();
                        engine.begin(Task::new(
                            9,
                            change(),
                            Some(Arc::clone(&namespace)),
                            0,
                            BLOCK,
                        ));
                        engine.drain().unwrap();
                        assert_eq!(engine.finished().unwrap().status, Status::SUCCESS);
                    });
                    // It has come, and neither acts nor has ended.
                    while namespace.in_flight() != 2 && !changing.is_finished() {
                        std::thread::yield_now();
                    }
                    assert!(!changing.is_finished(), "{:?}", change());
                    drop(alone);
                });
                assert_eq!(namespace.in_flight(), 0);
            }
        }
    }

    #[test]
    fn many_operations_reach_the_disk_before_the_round_ends() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut engine = Engine::new();
        let unsubmitted: Vec<_> = { 0..SUBMITTED_AT_ONCE as u16 + 1 }
            .map(|cid| {
                let read = Action::Read(Buffer::zeroed(4096));
                engine.begin(Task::new(cid, read, Some(Arc::clone(&namespace)), 0, 4096));
                let RingState::Here(ring) = &engine.ring else {
                    panic!("the test needs io_uring")
                };
                ring.unsubmitted()
            })
            .collect();
        assert_eq!(unsubmitted, [1, 2, 3, 0, 1]);
        engine.drain().unwrap();
        assert_eq!(
            engine
                .finished
                .iter()
                .filter(|it| it.status.is_success())
                .count(),
            unsubmitted.len()
        );
    }
}
