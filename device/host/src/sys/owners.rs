//! The process of each range of queue pair numbers: the agent's table, which its clients can read.
//!
//! A device names its range when it requests a shared-memory channel from a peer. The kernel reports the
//! process that sent that message, and this table the process of the range, so no process can claim the range
//! of another one. The table is memory that only the agent can write (the file is sealed against it): reading
//! it does not wait for the agent.

use link::unix::Identity;
use os::sealed_table::{SealedTable, Shared};
use std::io;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Ranges of queue pair numbers.
const SLOTS: usize = 1 << 10;

#[repr(C)]
struct Entry {
    /// Process ID in the agent's PID namespace.
    process: AtomicU32,
    _unused: u32,
    /// Inode of the process's pidfd.
    inode: AtomicU64,
}

#[repr(C)]
struct Table {
    /// The inode of the agent's PID namespace.
    namespace: AtomicU64,
    slots: [Entry; SLOTS],
}

// SAFETY: atomics, and a field that nothing reads.
unsafe impl Shared for Table {}

/// The agent's side of the table, which is writable.
#[derive(Debug)]
pub(crate) struct Writes;
/// A client's side of the table, which is read-only.
#[derive(Debug)]
pub(crate) struct Reads;

/// The table, mapped.
#[derive(Debug)]
pub(crate) struct Owners<Who = Reads> {
    table: SealedTable<Table>,
    _who: PhantomData<Who>,
}

impl Owners<Writes> {
    /// Makes an empty table, and the descriptor that clients get. It allocates nothing.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let (table, fd) = SealedTable::<Table>::create(c"rockery-owners", 0)?;
        table.namespace.store(pid_namespace(), Ordering::Relaxed);
        let owners = Self {
            table,
            _who: PhantomData,
        };
        Ok((owners, fd))
    }

    /// Records the process of a range, before the process gets the range. The two words have no order of
    /// their own: readers look after a message of the process, which has had one of the agent before, and
    /// system calls are barriers on every processor.
    pub(crate) fn set(&self, range: usize, owner: Identity) {
        if let Some(entry) = self.table.slots.get(range) {
            entry.process.store(owner.process, Ordering::Relaxed);
            entry.inode.store(owner.inode, Ordering::Relaxed);
        }
    }

    /// Clears the entry of a range.
    pub(crate) fn clear(&self, range: usize) {
        self.set(
            range,
            Identity {
                process: 0,
                inode: 0,
            },
        );
    }
}

impl Owners<Reads> {
    /// Maps the agent's table. It must have the size and the seals of [`Owners::create`].
    pub(crate) fn open(fd: &impl AsFd) -> io::Result<Self> {
        Ok(Self {
            table: SealedTable::open(fd)?,
            _who: PhantomData,
        })
    }

    /// Whether a process has a range. Where pidfds have no inode (before Linux 6.9), and this PID namespace
    /// is not the agent's, nothing can be compared, and the answer is yes.
    pub(crate) fn has(&self, range: u32, process: Identity) -> bool {
        let Some(entry) = self.table.slots.get(range as usize) else {
            return false;
        };
        let number = entry.process.load(Ordering::Relaxed);
        match entry.inode.load(Ordering::Relaxed) {
            0 if self.table.namespace.load(Ordering::Relaxed) != pid_namespace() => true,
            inode if inode != 0 && process.inode != 0 => inode == process.inode,
            _ => number != 0 && number == process.process,
        }
    }
}

/// The inode of this process's PID namespace; 0 where it is not available.
fn pid_namespace() -> u64 {
    // SAFETY: a name that lives until the call returns; all zeros is a valid value, with room for one.
    unsafe {
        let mut stat: libc::stat = zeroed();
        if libc::stat(c"/proc/self/ns/pid".as_ptr(), &mut stat) == 0 {
            stat.st_ino
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_range_is_its_owners_alone() {
        let (agent, fd) = Owners::create().unwrap();
        let owners = Owners::open(&fd).unwrap();
        let process = |process, inode| Identity { process, inode };
        assert!(!owners.has(5, process(7, 0)), "nobody has it");
        agent.set(5, process(7, 0));
        assert!(owners.has(5, process(7, 0)) && owners.has(5, process(7, 99)));
        assert!(!owners.has(5, process(8, 0)) && !owners.has(6, process(7, 0)));
        // Where the kernel reports inodes, they are compared: numbers differ between PID namespaces.
        agent.set(5, process(7, 99));
        assert!(owners.has(5, process(1, 99)) && !owners.has(5, process(7, 98)));
        agent.clear(5);
        assert!(!owners.has(5, process(7, 99)) && !owners.has(5, process(0, 0)));
        assert!(!owners.has(SLOTS as u32, process(7, 99)));
    }

    #[test]
    fn clients_cannot_write_it() {
        let (_agent, fd) = Owners::create().unwrap();
        let file = std::fs::File::from(fd);
        assert!(std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).is_err());
        let mapped = os::mapping::Mapping::shared(
            file.as_raw_fd(),
            0,
            size_of::<Table>(),
            os::mapping::READ_WRITE,
        );
        assert!(mapped.is_err());
        assert!(Owners::open(&std::fs::File::open("/proc/self/exe").unwrap()).is_err());
    }
}
