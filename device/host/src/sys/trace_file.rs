//! The file of a trace, mapped. Its form is [`trace::layout`].

use os::mapping::{Mapping, READ_WRITE};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use trace::Kind;
use trace::layout::{
    AT_LIMIT, AT_LOST, AT_NEXT, AT_VERSION, CHUNK_BYTES, CHUNK_HEAD_BYTES, HEADER_BYTES, MAGIC,
    TEXT_BYTES_MAX, VERSION, chunk_head, record_head,
};

/// The file: its path and its header. Chunks open it anew, since programs close descriptors that they do not
/// know.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    header: Mapping,
    limit: u64,
}

/// A part of the file that one thread fills.
#[derive(Debug)]
pub(crate) struct Chunk {
    mapping: Mapping,
    used: usize,
}

/// The machine's monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn errno() -> i32 {
    // SAFETY: the error number of this thread.
    unsafe { *libc::__errno_location() }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// The name of a process or thread, as the kernel has it.
fn name(path: &str) -> String {
    let name = std::fs::read_to_string(path).unwrap_or_default();
    name.trim_end().to_owned()
}

impl TraceFile {
    /// Opens a trace that `rockery run` has made.
    ///
    /// # Errors
    /// Those of the system calls; `InvalidData` where the file is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        if file.metadata()?.len() < HEADER_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let header = Mapping::shared(file.as_raw_fd(), 0, HEADER_BYTES, READ_WRITE)?;
        let mut file = Self {
            path: path.to_owned(),
            header,
            limit: 0,
        };
        let is_trace = file.word(0).load(Ordering::Relaxed) == u64::from_le_bytes(MAGIC)
            && file.word(AT_VERSION).load(Ordering::Relaxed) == VERSION;
        if !is_trace {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.limit = file.word(AT_LIMIT).load(Ordering::Relaxed);
        Ok(file)
    }

    /// A word of the header, which all traced processes have mapped.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the header, which is mapped as long as this lives, and aligned; all processes use
        // atomic accesses for it.
        unsafe { AtomicU64::from_ptr(self.header.start().add(offset).cast().as_ptr()) }
    }

    /// Counts a record that had no room.
    pub(crate) fn count_lost(&self) {
        self.word(AT_LOST).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a chunk for this thread; `None` where the file has its most bytes, or the disk is full.
    pub(crate) fn next_chunk(&self) -> Option<Chunk> {
        let bytes = CHUNK_BYTES as u64;
        let room = self.limit.saturating_sub(HEADER_BYTES as u64) / bytes;
        // A full file is not counted further.
        if self.word(AT_NEXT).load(Ordering::Relaxed) >= room {
            return None;
        }
        let number = self.word(AT_NEXT).fetch_add(1, Ordering::Relaxed);
        let offset = HEADER_BYTES as u64 + number * bytes;
        if number >= room {
            return None;
        }
        let errno = errno();
        let chunk = self.map(offset).ok();
        // The program reads the error number of the call that is traced.
        // SAFETY: the error number of this thread.
        unsafe { *libc::__errno_location() = errno };
        chunk
    }

    fn map(&self, offset: u64) -> io::Result<Chunk> {
        let file = open(&self.path)?;
        let fd = file.as_raw_fd();
        let start = i64::try_from(offset).map_err(io::Error::other)?;
        // Without blocks of its own a store to the mapping would raise SIGBUS on a full disk.
        let error = os::write_signals::without_signals(|| {
            // SAFETY: numbers only.
            unsafe { libc::posix_fallocate(fd, start, CHUNK_BYTES as i64) }
        });
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mapping = Mapping::shared(fd, offset, CHUNK_BYTES, READ_WRITE)?;
        // The function came with glibc 2.30.
        // SAFETY: no argument.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        let names = [name("/proc/self/comm"), name("/proc/thread-self/comm")];
        let head = chunk_head(std::process::id(), thread as u32, [&names[0], &names[1]]);
        // SAFETY: a new chunk, which no other process or thread has.
        unsafe {
            core::ptr::copy_nonoverlapping(
                head.as_ptr(),
                mapping.start().as_ptr(),
                CHUNK_HEAD_BYTES,
            );
        }
        Ok(Chunk {
            mapping,
            used: CHUNK_HEAD_BYTES,
        })
    }
}

impl Chunk {
    /// Adds a record; false where it has no room. Its first word is there last, so a program that is killed
    /// leaves no half of one. Readers come when the program has ended: the kernel copies the file in no order
    /// that 64-bit ARM would keep.
    pub(crate) fn push(&mut self, at_ns: u64, kind: Kind, fields: &[u64], text: &str) -> bool {
        let text = text.as_bytes();
        let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        let text_words = text.len().div_ceil(8);
        let end = self.used + 8 * (2 + fields.len() + text_words);
        if end > self.mapping.length() {
            return false;
        }
        // SAFETY: the record ends within the mapping, whose chunk this thread alone fills; the place is
        // aligned, as the head and all records have whole words.
        unsafe {
            let place = self.mapping.start().add(self.used).cast::<u64>();
            place.add(1).write(at_ns);
            let words = place.add(2);
            core::ptr::copy_nonoverlapping(fields.as_ptr(), words.as_ptr(), fields.len());
            let rest = words.add(fields.len()).cast::<u8>();
            core::ptr::copy_nonoverlapping(text.as_ptr(), rest.as_ptr(), text.len());
            let head = record_head(kind as u8, fields.len(), text.len());
            AtomicU64::from_ptr(place.as_ptr()).store(head, Ordering::Release);
        }
        self.used = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Trace;
    use trace::layout::header;

    fn fresh(limit: u64) -> (tempfile::NamedTempFile, TraceFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), header(limit, 0)).unwrap();
        let opened = TraceFile::open(file.path()).unwrap();
        (file, opened)
    }

    #[test]
    fn what_threads_write_is_read_in_the_order_of_time() {
        let (file, traced) = fresh(1 << 20);
        std::thread::scope(|scope| {
            for first in [1, 2] {
                let traced = &traced;
                scope.spawn(move || {
                    let mut chunk = traced.next_chunk().unwrap();
                    for at in 0..10 {
                        let text = "ä".repeat(usize::try_from(at).unwrap());
                        assert!(chunk.push(first + 2 * at, Kind::Destroy, &[at], &text));
                    }
                });
            }
        });
        let bytes = std::fs::read(file.path()).unwrap();
        let read = Trace::read(&[&bytes]).unwrap();
        let times: Vec<u64> = read.events().map(|(_, event)| event.at_ns).collect();
        assert_eq!(times, (1..=20).collect::<Vec<_>>());
        let last = read.event(19).unwrap();
        assert_eq!((last.field("qpn"), last.text), (Some(9), "äääääääää"));
        assert_eq!(last.process, std::process::id());
    }

    #[test]
    fn a_full_file_has_no_chunk_and_stays_within_its_limit() {
        let limit = (HEADER_BYTES + 2 * CHUNK_BYTES) as u64 + 100;
        let (file, traced) = fresh(limit);
        let mut chunk = traced.next_chunk().unwrap();
        while chunk.push(1, Kind::Destroy, &[1], "") {}
        assert!(traced.next_chunk().is_some() && traced.next_chunk().is_none());
        traced.count_lost();
        assert!(file.path().metadata().unwrap().len() <= limit);
        let bytes = std::fs::read(file.path()).unwrap();
        let read = Trace::read(&[&bytes]).unwrap();
        assert_eq!(read.lost(), 1);
        assert!(read.len() > 10_000);
    }

    #[test]
    fn another_file_is_no_trace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; HEADER_BYTES]).unwrap();
        let error = TraceFile::open(file.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
