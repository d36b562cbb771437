//! A disk in a file, or a block device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::file::{self as sys, Clear};
use rdma::Buffer;

/// What is written at once where the file system cannot make zeros itself.
const ZEROS: usize = 1 << 20;

/// A file that is open, and what it can do.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: Arc<File>,
    direct: bool,
    block_device: bool,
    read_only: bool,
    // Learned from the first attempt.
    cannot_clear: AtomicBool,
}

impl FileStore {
    /// Opens a file or block device, without the page cache if that can be done with this block size.
    ///
    /// # Errors
    /// As `open`.
    pub fn open(path: &Path, block_size: usize, read_only: bool, direct: bool) -> io::Result<Self> {
        let open = |flags| OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path);
        let with_cache = open(0)?;
        let block_device = with_cache.metadata()?.file_type().is_block_device();
        let without = if direct { open(sys::O_DIRECT).ok() } else { None };
        let without = without.filter(|file| takes_blocks(file, block_size));
        let direct = without.is_some();
        let file = Arc::new(without.unwrap_or(with_cache));
        let path = path.to_owned();
        Ok(Self { path, file, direct, block_device, read_only, cannot_clear: AtomicBool::new(false) })
    }

    /// How many bytes it has now.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn bytes(&self) -> io::Result<u64> {
        use std::io::{Seek, SeekFrom};
        if self.block_device { (&*self.file).seek(SeekFrom::End(0)) } else { Ok(self.file.metadata()?.len()) }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the page cache is kept out.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file itself, for a ring.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether a ring can clear ranges of it.
    pub(crate) fn can_clear(&self) -> bool {
        !self.cannot_clear.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                // The file was cut short by somebody else: what is not there reads as zeros.
                Ok(0) => {
                    data[done..].fill(0);
                    break;
                }
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        if durable { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn clear(&self, how: Clear, offset: u64, length: u64) -> io::Result<()> {
        if self.can_clear() {
            match sys::clear(&self.file, how, offset, length) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.cannot_clear.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        if how == Clear::Deallocate {
            // A hint only; what reads as before is not wrong (NVM 3.2.3).
            return Ok(());
        }
        let zeros = Buffer::zeroed(ZEROS.min(usize::try_from(length).unwrap_or(ZEROS)));
        let mut done = 0;
        while done < length {
            let take = (length - done).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..take as usize], offset + done)?;
            done += take;
        }
        Ok(())
    }

    pub(super) fn resize(&self, bytes: u64) -> io::Result<()> {
        if self.block_device || self.read_only {
            let found = self.bytes()?;
            let text = format!("{} has {found} bytes, which cannot be changed", self.path.display());
            let error = || io::Error::new(io::ErrorKind::InvalidInput, text);
            return if bytes <= found { Ok(()) } else { Err(error()) };
        }
        self.file.set_len(bytes)?;
        self.file.sync_all()
    }
}

/// Whether a file that was opened with `O_DIRECT` can be read block by block.
fn takes_blocks(file: &File, block_size: usize) -> bool {
    let mut buffer = Buffer::zeroed(block_size);
    file.read_at(&mut buffer[..block_size], block_size as u64).is_ok()
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
}
