//! Files on memory file systems of which the program has registered shared mappings: peers map them as well.
//! System V segments are such files; they are named by their number.
//!
//! The kernel reports which file is mapped at an address (`PROCMAP_QUERY`, Linux 6.11). The file is opened by
//! its name, or found among the program's descriptors; its device and inode have to be those of the mapping.
//! Only tmpfs, hugetlbfs and memfd files are used: opening or mapping files of other kinds may have side
//! effects.
//!
//! Descriptors stay open until the process ends: closing one would drop the record locks (`fcntl(2)`) that
//! the program holds on the same file.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Limit of files that a process announces to its peers, and that it accepts from one peer.
pub(crate) const FILES_MAX: usize = 64;
/// Limit of descriptors of the program that are compared with a file.
const DESCRIPTORS_MAX: usize = 4096;

/// The part of a file that a region maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilePart {
    /// Number of the file in the process that announces it.
    pub(crate) file: u8,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
}

/// Way in which a peer opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// By a descriptor, which stays open until this process ends.
    File(RawFd),
    /// By the number of a System V segment, which is valid in this process's IPC namespace.
    Segment(i32),
}

/// A file that was announced: its device and inode, and the way to open it.
#[derive(Clone, Copy)]
struct Known {
    identity: (u64, u64),
    source: Source,
}

static FILES: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const _: () = assert!(size_of::<Query>() == 0x68);
/// `PROCMAP_QUERY_SHARED_VMA` and `PROCMAP_QUERY_FILE_BACKED_VMA`: only shared mappings of files are
/// reported.
const SHARED: u64 = 0x08;
const FILE_BACKED: u64 = 0x20;

/// The part of a file that an address range maps, if it is one shared mapping of a file that peers can map.
pub(crate) fn part_behind(address: u64, length: u64) -> Option<FilePart> {
    let mut name = [0; libc::PATH_MAX as usize];
    let found = query(address, &mut name).ok()?;
    if length == 0 || found.end - address < length {
        return None;
    }
    let identity = found.identity();
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = files.iter().position(|known| known.identity == identity);
    let file = match known {
        Some(file) => file,
        None if files.len() < FILES_MAX => {
            let name = CStr::from_bytes_until_nul(&name).ok()?;
            let source = match segment(name, identity) {
                Some(segment) => segment,
                None => Source::File(open(name, identity)?.into_raw_fd()),
            };
            files.push(Known { identity, source });
            files.len() - 1
        }
        None => return None,
    };
    Some(FilePart {
        file: file as u8,
        offset: found.offset + (address - found.start),
    })
}

/// Whether an address is in a shared mapping of a file. False also where the kernel cannot tell.
pub(crate) fn is_shared(address: u64) -> bool {
    query(address, &mut [0; libc::PATH_MAX as usize]).is_ok()
}

/// All files that were announced so far, in the order of their numbers.
pub(crate) fn files() -> Vec<Source> {
    FILES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .map(|known| known.source)
        .collect()
}

/// A descriptor of the IPC namespace in which this process numbers System V segments.
pub(crate) fn segment_namespace() -> io::Result<OwnedFd> {
    File::open("/proc/self/ns/ipc").map(OwnedFd::from)
}

/// Whether a descriptor of a peer's IPC namespace is that of our own namespace.
pub(crate) fn is_our_segment_namespace(theirs: &OwnedFd) -> bool {
    let Ok(ours) = segment_namespace() else {
        return false;
    };
    let [ours, theirs] = [&ours, theirs].map(|fd| identity_of(fd.as_raw_fd()));
    ours.is_some() && ours == theirs
}

/// The System V segment of a mapping: the kernel reports it as a file `/SYSV…` whose inode is the segment's
/// number. It is attached once more to check that the device and inode are the same.
fn segment(name: &CStr, identity: (u64, u64)) -> Option<Source> {
    if !name.to_bytes().starts_with(b"/SYSV") {
        return None;
    }
    let id = i32::try_from(identity.1).ok()?;
    let attached = Attached::new(id).ok()?;
    let found = query(
        attached.start.addr().get() as u64,
        &mut [0; libc::PATH_MAX as usize],
    )
    .ok()?;
    (found.identity() == identity).then_some(Source::Segment(id))
}

/// A System V segment, attached until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: u64,
}

impl Attached {
    pub(crate) fn new(id: i32) -> io::Result<Self> {
        // SAFETY: an address that the kernel chooses.
        let start = unsafe { libc::shmat(id, null(), 0) };
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut attached = Self { start, bytes: 0 };
        // SAFETY: all zeros is a valid value, and there is room for one.
        attached.bytes = unsafe {
            let mut about: libc::shmid_ds = zeroed();
            if libc::shmctl(id, libc::IPC_STAT, &raw mut about) != 0 {
                return Err(io::Error::last_os_error());
            }
            about.shm_segsz as u64
        };
        Ok(attached)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: attached by us, and not used any more.
        unsafe { libc::shmdt(self.start.as_ptr().cast()) };
    }
}

impl Query {
    fn identity(&self) -> (u64, u64) {
        (libc::makedev(self.dev_major, self.dev_minor), self.inode)
    }
}

/// Device and inode of an open file.
fn identity_of(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all zeros is a valid value, and there is room for one.
    unsafe {
        let mut stat: libc::stat = zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

fn query(address: u64, name: &mut [u8]) -> io::Result<Query> {
    static MAPS: OnceLock<Option<File>> = OnceLock::new();
    let maps = MAPS.get_or_init(|| File::open("/proc/self/maps").ok());
    let maps = maps.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    // SAFETY: all zeros is a valid question.
    let mut query: Query = unsafe { zeroed() };
    (query.size, query.flags, query.address) =
        (size_of::<Query>() as u64, SHARED | FILE_BACKED, address);
    (query.name, query.name_size) = (name.as_mut_ptr() as u64, name.len() as u32);
    // SAFETY: a question, and room for a name of that length.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens the file of this name, or duplicates a descriptor of the program, if device and inode are as
/// expected.
fn open(name: &CStr, identity: (u64, u64)) -> Option<OwnedFd> {
    let is_it = |fd: RawFd| identity_of(fd) == Some(identity) && is_in_memory(fd);
    // First with O_PATH: opening some files for reading or writing has side effects.
    let place = path(name, libc::O_PATH);
    if place.is_some_and(|place| is_it(place.as_raw_fd())) {
        return path(name, libc::O_RDWR).filter(|fd| is_it(fd.as_raw_fd()));
    }
    let own = std::fs::read_dir("/proc/self/fd")
        .ok()?
        .take(DESCRIPTORS_MAX);
    let numbers = own.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found = { numbers }.find(|fd| is_it(*fd) && is_writable(*fd))?;
    // SAFETY: no pointers.
    let fd = unsafe { libc::fcntl(found, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: a new descriptor that nothing else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn path(name: &CStr, rights: i32) -> Option<OwnedFd> {
    let flags = rights | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: a name that lives until the call returns.
    let fd = unsafe { libc::open(name.as_ptr(), flags) };
    // SAFETY: a new descriptor that nothing else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_writable(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE == libc::O_RDWR }
}

/// The page size of a file in bytes; `None` for a file that is not on tmpfs or hugetlbfs.
pub(crate) fn page_bytes(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeros is a valid value, and there is room for one.
    let stat = unsafe {
        let mut stat: libc::statfs = zeroed();
        (libc::fstatfs(fd, &mut stat) == 0).then_some(stat)?
    };
    let in_memory = stat.f_type == libc::TMPFS_MAGIC || stat.f_type == libc::HUGETLBFS_MAGIC;
    in_memory.then_some((stat.f_bsize as u64).max(4096))
}

fn is_in_memory(fd: RawFd) -> bool {
    page_bytes(fd).is_some()
}
