//! Tables that one process writes and others read: a file in memory, sealed against all but its writer.

use crate::mapping::{Mapping, READ, READ_WRITE};
use crate::memory_file;
use std::ffi::CStr;
use std::fmt::{self, Debug};
use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Seals: no new writable mapping (the writer's exists before), and no change of the size.
const SEALS: libc::c_int =
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

/// The content of a table.
///
/// # Safety
/// All fields are atomics or unused, any bytes are valid values of them, and a page is aligned enough.
pub unsafe trait Shared {}

/// A mapping of a table. That of its writer can be written, those of readers cannot: their stores would end
/// the process, so what they get has no function that stores.
pub struct SealedTable<T: Shared> {
    mapping: Mapping,
    content: PhantomData<T>,
}

impl<T: Shared> Debug for SealedTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SealedTable").field(&self.mapping).finish()
    }
}

impl<T: Shared> SealedTable<T> {
    /// Makes a table, all zero, and the descriptor with which others open it, at this address if that is that
    /// of a page and free. It allocates nothing.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn create(name: &CStr, wish: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memory_file::sealable(name, size_of::<T>() as u64)?;
        let table = Self::map(&file, READ_WRITE, wish)?;
        memory_file::seal(&file, SEALS)?;
        Ok((table, file))
    }

    /// Maps a table of another process for reading.
    ///
    /// # Errors
    /// `InvalidData` if it has not the size and the seals of [`Self::create`]; those of the system calls.
    pub fn open(file: &impl AsFd) -> io::Result<Self> {
        memory_file::check(file, SEALS, size_of::<T>() as u64)?;
        Self::map(file, READ, 0)
    }

    fn map(file: &impl AsFd, rights: libc::c_int, wish: usize) -> io::Result<Self> {
        let fd = file.as_fd().as_raw_fd();
        let mapping = Mapping::shared_near(wish, fd, 0, size_of::<T>(), rights)?;
        Ok(Self {
            mapping,
            content: PhantomData,
        })
    }
}

impl<T: Shared> Deref for SealedTable<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: mapped, aligned to pages, long enough (it was created so, or checked), and any content is
        // valid, as `Shared` promises.
        unsafe { self.mapping.start().cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Content([AtomicU64; 1024]);
    // SAFETY: atomics.
    unsafe impl Shared for Content {}

    #[test]
    fn readers_see_what_is_written_and_cannot_write() {
        let (table, file) = SealedTable::<Content>::create(c"test", 0).unwrap();
        let reader = SealedTable::<Content>::open(&file).unwrap();
        assert_eq!(reader.0[1023].load(Ordering::Relaxed), 0);
        table.0[1023].store(7, Ordering::Relaxed);
        assert_eq!(reader.0[1023].load(Ordering::Relaxed), 7);
        assert!(SealedTable::<Content>::map(&file, READ_WRITE, 0).is_err());
        let file = File::from(file);
        assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn files_of_another_size_or_without_seals_are_refused() {
        let bytes = size_of::<Content>() as u64;
        let kind = |file: &OwnedFd| {
            SealedTable::<Content>::open(file)
                .map(drop)
                .map_err(|error| error.kind())
        };
        let unsealed = memory_file::sealable(c"test", bytes).unwrap();
        assert_eq!(kind(&unsealed), Err(io::ErrorKind::InvalidData));
        let short = memory_file::sealable(c"test", bytes - 8).unwrap();
        memory_file::seal(&short, SEALS).unwrap();
        assert_eq!(kind(&short), Err(io::ErrorKind::InvalidData));
        assert!(kind(&File::open("/proc/self/exe").unwrap().into()).is_err());
    }
}
