//! The process of each range of queue pair numbers: the agent's table, which its clients can read.
//!
//! A device names its range when it requests a shared-memory channel from a peer. The kernel reports the
//! process that sent that message, and this table the process of the range, so no process can claim the range
//! of another one. The table is memory that only the agent can write (the file is sealed against it): reading
//! it does not wait for the agent.

use link::unix::Identity;
use link::write_signals::without_signals;
use std::io;
use std::marker::PhantomData;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Ranges of queue pair numbers.
const SLOTS: usize = 1 << 10;
/// Seals: no new writable mapping (the agent's exists before), and no change of the size.
const SEALS: i32 =
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

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

/// The agent's side of the table, which is writable.
#[derive(Debug)]
pub(crate) struct Writes;
/// A client's side of the table, which is read-only.
#[derive(Debug)]
pub(crate) struct Reads;

/// The table, mapped.
#[derive(Debug)]
pub(crate) struct Owners<Who = Reads> {
    table: NonNull<Table>,
    _who: PhantomData<Who>,
}

// SAFETY: a mapping that lives as long as this, and all of it is atomics.
unsafe impl<Who> Send for Owners<Who> {}

impl<Who> Owners<Who> {
    fn map(fd: &impl AsFd, rights: i32) -> io::Result<Self> {
        let (length, fd) = (size_of::<Table>(), fd.as_fd().as_raw_fd());
        // SAFETY: a new range, wherever the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let table = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            table,
            _who: PhantomData,
        })
    }

    fn table(&self) -> &Table {
        // SAFETY: mapped, page-aligned, long enough (as was checked), and any contents are valid.
        unsafe { self.table.as_ref() }
    }
}

impl<Who> Drop for Owners<Who> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not used any more.
        unsafe { libc::munmap(self.table.as_ptr().cast(), size_of::<Table>()) };
    }
}

impl Owners<Writes> {
    /// Makes an empty table, and the descriptor that clients get. It allocates nothing.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that lives until the call returns.
        let fd = unsafe { libc::memfd_create(c"rockery-owners".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bytes = size_of::<Table>() as i64;
        // SAFETY: no pointers.
        if without_signals(|| unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) }) < 0 {
            return Err(io::Error::last_os_error());
        }
        let owners = Self::map(&fd, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        owners
            .table()
            .namespace
            .store(pid_namespace(), Ordering::Relaxed);
        Ok((owners, fd))
    }

    /// Records the process of a range, before the process gets the range.
    pub(crate) fn set(&self, range: usize, owner: Identity) {
        if let Some(entry) = self.table().slots.get(range) {
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
        let raw = fd.as_fd().as_raw_fd();
        // SAFETY: all zeros is a valid value, and there is room for one.
        let (seals, length) = unsafe {
            let mut stat: libc::stat = zeroed();
            let seals = libc::fcntl(raw, libc::F_GET_SEALS);
            if seals < 0 || libc::fstat(raw, &mut stat) < 0 {
                return Err(io::Error::last_os_error());
            }
            (seals, stat.st_size)
        };
        if seals & SEALS != SEALS || length != size_of::<Table>() as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(fd, libc::PROT_READ)
    }

    /// Whether a process has a range. Where pidfds have no inode (before Linux 6.9), and this PID namespace
    /// is not the agent's, nothing can be compared, and the answer is yes.
    pub(crate) fn has(&self, range: u32, process: Identity) -> bool {
        let Some(entry) = self.table().slots.get(range as usize) else {
            return false;
        };
        let number = entry.process.load(Ordering::Relaxed);
        match entry.inode.load(Ordering::Relaxed) {
            0 if self.table().namespace.load(Ordering::Relaxed) != pid_namespace() => true,
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
        assert!(Owners::<Reads>::map(&fd, libc::PROT_READ | libc::PROT_WRITE).is_err());
        assert!(Owners::open(&std::fs::File::open("/proc/self/exe").unwrap()).is_err());
    }
}
