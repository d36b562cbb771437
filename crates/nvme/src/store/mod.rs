//! Where a namespace's bytes are. Everything here answers at once and may block; what can be done without
//! blocking, [`crate::engine`] does with a ring instead.

mod file;
mod memory;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use file::FileStore;
pub use memory::Memory;

pub use crate::sys::file::Clear;
use rdma::Buffer;

/// Where a namespace's bytes are.
#[derive(Debug)]
pub enum Store {
    /// In this process's memory, and gone with it.
    Memory(Memory),
    /// Nowhere: writes vanish, reads are zeros. For measuring the rest.
    Null,
    /// In a file or on a block device.
    File(Arc<FileStore>),
}

/// Bytes of a store where they lie. They stay as they were when they were lent, whatever is written then.
#[derive(Debug, Default)]
pub struct Lent {
    pub(crate) pieces: Vec<(Arc<Buffer>, Range<usize>)>,
}

impl Lent {
    /// The bytes, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|(buffer, range)| &buffer[range.clone()])
    }

    /// How many there are.
    pub fn length(&self) -> usize {
        self.pieces.iter().map(|(_, range)| range.len()).sum()
    }
}

impl Store {
    /// Whether it goes past the page cache; `None` when there is no file.
    pub fn is_direct(&self) -> Option<bool> {
        match self {
            Self::File(file) => Some(file.is_direct()),
            Self::Memory(_) | Self::Null => None,
        }
    }

    /// What [`Store::read`] would give, without a copy; `None` where that cannot be had.
    pub fn lend(&self, offset: u64, length: usize) -> Option<Lent> {
        match self {
            Self::Memory(memory) => Some(memory.lend(offset, length)),
            Self::Null | Self::File(_) => None,
        }
    }

    /// Whether it lends.
    pub fn lends(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Reads `data.len()` bytes from byte `offset`.
    ///
    /// # Errors
    /// As the file.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.read(offset, data),
            Self::Null => data.fill(0),
            Self::File(file) => return file.read(offset, data),
        }
        Ok(())
    }

    /// Writes `data` from byte `offset` on; when `durable`, it is on the medium when this returns.
    ///
    /// # Errors
    /// As the file.
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.write(offset, data),
            Self::Null => {}
            Self::File(file) => return file.write(offset, data, durable),
        }
        Ok(())
    }

    /// The same as [`Store::write`] with the first `length` bytes of a buffer, which may stay here: another
    /// of the same length comes back then.
    pub fn write_buffer(
        &self,
        offset: u64,
        data: Buffer,
        length: usize,
        durable: bool,
    ) -> (io::Result<()>, Buffer) {
        if let Self::Memory(memory) = self
            && length == data.len()
        {
            let back = memory.write_buffer(offset, data);
            return (Ok(()), back.unwrap_or_else(|| Buffer::zeroed(length)));
        }
        (self.write(offset, &data[..length], durable), data)
    }

    /// What was written before is on the medium when this returns.
    ///
    /// # Errors
    /// As the file.
    pub fn flush(&self) -> io::Result<()> {
        match self {
            Self::Memory(_) | Self::Null => Ok(()),
            Self::File(file) => file.flush(),
        }
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// As the file.
    pub fn clear(&self, how: Clear, offset: u64, length: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.clear(offset, length),
            Self::Null => {}
            Self::File(file) => return file.clear(how, offset, length),
        }
        Ok(())
    }

    /// Changes how many bytes there are.
    ///
    /// # Errors
    /// As the file; memory has a limit.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.resize(bytes),
            Self::Null => Ok(()),
            Self::File(file) => file.resize(bytes),
        }
    }
}
