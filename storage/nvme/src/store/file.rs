//! A store in a regular file or on a block device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tracing::error;

use super::lasting_name::lasting_name;
use crate::sys::file::{self as sys, Clear};
use buffer::Buffer;

/// Bytes per write where the file system cannot make zeros itself.
const ZEROS: usize = 1 << 20;

/// An open file and its abilities.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: Arc<File>,
    direct: bool,
    block_device: bool,
    read_only: bool,
    // Set when the first attempt fails.
    cannot_clear: AtomicBool,
    // The size that was reported to hosts. A regular file that is shorter has lost data.
    promised: AtomicU64,
    opened: Instant,
    // The millisecond since `opened`, counted from 1, in which the file was last found long enough.
    checked: AtomicU64,
    is_reported: AtomicBool,
    flush_failed: AtomicBool,
}

/// The identity of the storage below a path, to compare two paths: the number of a block device, or device
/// and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A block device.
    Device(u64),
    /// A regular file, by device and inode.
    File(u64, u64),
}

impl FileStore {
    /// Opens a regular file or block device, with direct I/O if that is possible with this block size.
    ///
    /// # Errors
    /// The error of `open`, and when the path names another kind of file.
    pub fn open(path: &Path, block_size: usize, read_only: bool, direct: bool) -> io::Result<Self> {
        let options = || OpenOptions::new().read(true).write(!read_only).clone();
        let with_cache = open_medium(path, &mut options(), 0)?;
        let block_device = with_cache.metadata()?.file_type().is_block_device();
        let without = if direct {
            open_medium(path, &mut options(), sys::O_DIRECT).ok()
        } else {
            None
        };
        let without = without.filter(|file| takes_blocks(file, block_size));
        let direct = without.is_some();
        let file = Arc::new(without.unwrap_or(with_cache));
        Ok(Self {
            path: path.to_owned(),
            file,
            direct,
            block_device,
            read_only,
            cannot_clear: AtomicBool::new(false),
            promised: AtomicU64::new(0),
            opened: Instant::now(),
            checked: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            flush_failed: AtomicBool::new(false),
        })
    }

    /// Extends a regular file to at least this size, sparse; creates it if it does not exist.
    ///
    /// # Errors
    /// The error of `open` or `ftruncate`, and when the path names another kind of file.
    pub fn extend(path: &Path, bytes: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = open_medium(path, options.write(true).create(true).truncate(false), 0)?;
        if file.metadata()?.is_file() && file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// The identity of the storage.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub fn medium(&self) -> io::Result<Medium> {
        let found = self.file.metadata()?;
        Ok(if self.block_device {
            Medium::Device(found.rdev())
        } else {
            Medium::File(found.dev(), found.ino())
        })
    }

    /// The lasting name of the storage: the same over restarts, and another one for each copy.
    ///
    /// # Errors
    /// The error of `fstat`, or of finding the canonical path.
    pub fn lasting_name(&self) -> io::Result<String> {
        lasting_name(&self.file, &self.path)
    }

    /// Whether the file was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Sets the size that is reported to hosts, in bytes.
    pub fn promise(&self, bytes: u64) {
        self.promised.store(bytes, Ordering::Relaxed);
    }

    /// The present size in bytes.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub fn bytes(&self) -> io::Result<u64> {
        use std::io::{Seek, SeekFrom};
        if self.block_device {
            (&*self.file).seek(SeekFrom::End(0))
        } else {
            Ok(self.file.metadata()?.len())
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether direct I/O is used.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file, for an io_uring.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether io_uring can clear ranges of the file.
    pub(crate) fn can_clear(&self) -> bool {
        !self.cannot_clear.load(Ordering::Relaxed)
    }

    /// Checks at most once per millisecond that the file has the size that was reported to hosts: a write
    /// behind the end of a truncated file would turn the lost data into zeros.
    ///
    /// # Errors
    /// When the file is shorter.
    pub(crate) fn check_length(&self) -> io::Result<()> {
        let now = u64::try_from(self.opened.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        if self.block_device || self.checked.load(Ordering::Relaxed) == now {
            return Ok(());
        }
        let (found, promised) = (
            self.file.metadata()?.len(),
            self.promised.load(Ordering::Relaxed),
        );
        if found < promised {
            return Err(self.truncated(found));
        }
        self.checked.store(now, Ordering::Relaxed);
        Ok(())
    }

    fn truncated(&self, found: u64) -> io::Error {
        let (path, promised) = (self.path.display(), self.promised.load(Ordering::Relaxed));
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            error!(
                "{path} was truncated: it has {found} bytes, and {promised} are served. Reads of what is \
                 missing and all writes fail until it is restored, or its namespace is resized or removed"
            );
        }
        let text = format!("{path} was truncated to {found} bytes, and {promised} are served");
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }

    /// Processes the result of a flush outside [`FileStore::flush`], or of a write with FUA. After a failed
    /// flush none succeeds: the kernel reports lost writes once (fsync(2)), so that a later flush of another
    /// host would succeed although its writes may be lost.
    pub(crate) fn flushed(&self, result: &io::Result<()>) {
        let Err(error) = result else { return };
        let errno = error.raw_os_error().unwrap_or_default();
        let was_tried = !matches!(
            errno,
            libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ECANCELED
        );
        if was_tried && !self.flush_failed.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            error!(
                "{path} could not be flushed ({error}): writes that completed before may be lost. Flushes \
                 and durable writes fail until its namespace is removed and added again"
            );
        }
    }

    /// Checks that a flush may succeed.
    ///
    /// # Errors
    /// When the file was truncated, or a flush has failed before.
    pub(crate) fn check_flush(&self) -> io::Result<()> {
        self.check_length()?;
        match self.flush_failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(io::Error::other(format!(
                "a flush of {} has failed before",
                self.path.display()
            ))),
        }
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                Ok(0) => return Err(self.truncated(offset + done as u64)),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        self.check_length()?;
        self.file.write_all_at(data, offset)?;
        if durable { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.check_flush()?;
        let result = self.file.sync_data();
        self.flushed(&result);
        result
    }

    pub(super) fn clear(&self, how: Clear, offset: u64, length: u64) -> io::Result<()> {
        self.check_length()?;
        if self.can_clear() {
            match sys::clear(&self.file, how, offset, length) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.cannot_clear.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        if how == Clear::Deallocate {
            // Deallocate is a hint; data that read as before are allowed (NVM 3.2.3).
            return Ok(());
        }
        let zeros = Buffer::zeroed(ZEROS.min(usize::try_from(length).unwrap_or(ZEROS)));
        let mut done = 0;
        while done < length {
            let take = (length - done).min(zeros.len() as u64);
            self.file
                .write_all_at(&zeros[..take as usize], offset + done)?;
            done += take;
        }
        Ok(())
    }

    pub(super) fn resize(&self, bytes: u64) -> io::Result<()> {
        if self.block_device || self.read_only {
            let found = self.bytes()?;
            let text = format!(
                "{} has {found} bytes, which cannot be changed",
                self.path.display()
            );
            let error = || io::Error::new(io::ErrorKind::InvalidInput, text);
            if bytes > found {
                return Err(error());
            }
            self.promise(bytes);
            return Ok(());
        }
        // Before shrinking, the size for the check is lowered first, so that the file is never shorter than
        // it.
        let promised = self.promised.fetch_min(bytes, Ordering::Relaxed);
        if let Err(error) = self.file.set_len(bytes).and_then(|()| self.file.sync_all()) {
            self.promise(promised);
            return Err(error);
        }
        self.promise(bytes);
        self.is_reported.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Opens a regular file or a block device, and nothing else: opening a FIFO waits for its other end, and
/// opening a terminal or another device may have side effects.
fn open_medium(path: &Path, options: &mut OpenOptions, flags: i32) -> io::Result<File> {
    let is_medium = |found: fs::FileType| {
        if found.is_file() || found.is_block_device() {
            return Ok(found.is_file());
        }
        let kind = server::local::kind(found);
        let text = format!("it is {kind}, and a namespace is a regular file or a block device");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    let is_file = match fs::metadata(path) {
        Ok(found) => is_medium(found.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    // A FIFO that replaced the file meanwhile does not block either. For some block devices O_NONBLOCK has
    // another meaning.
    let at_once = if is_file { libc::O_NONBLOCK } else { 0 };
    let file = options
        .custom_flags(flags | at_once | libc::O_NOCTTY)
        .open(path)?;
    is_medium(file.metadata()?.file_type())?;
    sys::set_blocking(&file)?;
    Ok(file)
}

/// Whether a file that was opened with `O_DIRECT` can be read in blocks of this size. A read error of the
/// medium says nothing about that.
fn takes_blocks(file: &File, block_size: usize) -> bool {
    let mut buffer = Buffer::zeroed(block_size);
    match file.read_at(&mut buffer[..block_size], block_size as u64) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn sparse_files_stay_sparse() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let store = FileStore::open(file.path(), 512, false, false).unwrap();
        store.resize(1 << 30).unwrap();
        assert_eq!(store.bytes().unwrap(), 1 << 30);
        let data = vec![1; 1 << 20];
        store.write(1 << 20, &data, true).unwrap();
        let room = || file.as_file().metadata().unwrap().blocks() * 512;
        assert!(room() < 2 << 20);
        store.clear(Clear::Deallocate, 1 << 20, 1 << 20).unwrap();
        let mut back = vec![9; 1 << 20];
        store.read(1 << 20, &mut back).unwrap();
        assert!(!store.can_clear() || room() < 1 << 20);
        assert!(!store.can_clear() || back.iter().all(|byte| *byte == 0));
        store.write(1 << 20, &data, false).unwrap();
        store.clear(Clear::Zero, 1 << 20, 1 << 20).unwrap();
        store.read(1 << 20, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn reads_and_writes_of_a_truncated_file_fail() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let store = FileStore::open(file.path(), 512, false, false).unwrap();
        store.resize(1 << 20).unwrap();
        store.write(0, &[1; 1 << 20], true).unwrap();
        file.as_file().set_len(4096 + 100).unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let mut back = vec![0; 4096];
        store.read(0, &mut back).unwrap();
        assert_eq!(
            kind(store.read(4096, &mut back)),
            io::ErrorKind::UnexpectedEof,
            "100 bytes are there"
        );
        assert_eq!(
            kind(store.read(8192, &mut back)),
            io::ErrorKind::UnexpectedEof
        );
        // The last check may be less than a millisecond ago.
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(
            kind(store.write((1 << 20) - 512, &[2; 512], false)),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(kind(store.flush()), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            kind(store.clear(Clear::Zero, 0, 4096)),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(file.as_file().metadata().unwrap().len(), 4096 + 100);
        // A resize by the server restores the expected size.
        store.resize(1 << 20).unwrap();
        store.write(0, &[1; 4096], true).unwrap();
        store.read(8192, &mut back).unwrap();
    }

    /// The kernel reports a lost write once, to the first flush after it.
    #[test]
    fn no_flush_succeeds_after_a_failed_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let store = FileStore::open(file.path(), 512, false, false).unwrap();
        store.flushed(&Err(io::Error::from_raw_os_error(libc::EINTR)));
        store.flush().unwrap();
        store.flushed(&Err(io::Error::from_raw_os_error(libc::EIO)));
        assert!(store.flush().is_err() && store.write(0, &[1; 512], true).is_err());
        store.write(0, &[1; 512], false).unwrap();
        FileStore::open(file.path(), 512, false, false)
            .unwrap()
            .flush()
            .unwrap();
    }

    #[test]
    fn only_files_and_block_devices_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap();
        assert!(made.success());
        let paths = [
            (fifo.as_path(), "a FIFO"),
            (folder.path(), "a folder"),
            (Path::new("/dev/zero"), "device"),
        ];
        for (path, kind) in paths {
            for read_only in [false, true] {
                let error = FileStore::open(path, 512, read_only, true).unwrap_err();
                assert!(error.to_string().contains(kind), "{error}");
            }
            assert!(
                FileStore::extend(path, 4096)
                    .unwrap_err()
                    .to_string()
                    .contains(kind)
            );
        }
    }
}
