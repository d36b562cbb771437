//! Stores, which hold the bytes of namespaces. These functions may block; [`crate::engine`] uses io_uring for
//! operations that would.

mod file;
mod lasting_name;
mod memory;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use file::{FileStore, Medium};
pub use memory::Memory;

pub use crate::sys::file::Clear;
use buffer::Buffer;

/// The store of a namespace.
#[derive(Debug)]
pub enum Store {
    /// Memory of this process, whose data end with it.
    Memory(Memory),
    /// No storage: writes are discarded, and reads return zeros. For measuring everything else.
    Null,
    /// A regular file or a block device.
    File(Arc<FileStore>),
}

/// Memory of a store that is lent for reading. Its bytes do not change while they are lent, even if the store
/// is written.
#[derive(Debug, Default)]
pub struct Lent {
    /// Short data have one piece, and need no allocation.
    first: Option<Piece>,
    others: Vec<Piece>,
    /// Whether sockets may refer to its pages, also when it is not lent any more.
    is_referable: bool,
}

/// A range of a chunk.
pub(crate) type Piece = (Arc<Buffer>, Range<usize>);

impl Lent {
    /// The bytes, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks().map(|(buffer, range)| &buffer[range.clone()])
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// Sets whether sockets may refer to its pages: see [`Buffer::refer`].
    fn may_be_referred(self, is_referable: bool) -> Self {
        Self {
            is_referable,
            ..self
        }
    }

    /// Whether sockets may refer to its pages.
    pub(crate) fn is_referable(&self) -> bool {
        self.is_referable
    }

    /// The chunks and ranges.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.others)
    }

    /// As [`Lent::chunks`], by value.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.first.into_iter().chain(self.others)
    }
}

impl FromIterator<Piece> for Lent {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut pieces = pieces.into_iter();
        Self {
            first: pieces.next(),
            others: pieces.collect(),
            is_referable: false,
        }
    }
}

impl Store {
    /// Whether direct I/O is used; `None` when there is no file.
    pub fn is_direct(&self) -> Option<bool> {
        match self {
            Self::File(file) => Some(file.is_direct()),
            Self::Memory(_) | Self::Null => None,
        }
    }

    /// Lends the bytes that [`Store::read`] would copy; `None` when the store cannot lend.
    pub fn lend(&self, offset: u64, length: usize) -> Option<Lent> {
        match self {
            Self::Memory(memory) => Some(memory.lend(offset, length)),
            Self::Null | Self::File(_) => None,
        }
    }

    /// Asks the processor to fetch memory that is accessed soon.
    pub fn prefetch(&self, offset: u64, length: usize) {
        if let Self::Memory(memory) = self {
            memory.prefetch(offset, length);
        }
    }

    /// Whether a write of the store never waits for a disk, and takes data at any address.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Null)
    }

    /// Whether a read of this length should be lent.
    pub fn lends(&self, length: usize) -> bool {
        matches!(self, Self::Memory(memory) if memory.lends(length))
    }

    /// Reads `data.len()` bytes from byte `offset`.
    ///
    /// # Errors
    /// The error of the file.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.read(offset, data),
            Self::Null => data.fill(0),
            Self::File(file) => return file.read(offset, data),
        }
        Ok(())
    }

    /// Writes `data` from byte `offset` on; if `durable`, the data are on the medium when this returns.
    ///
    /// # Errors
    /// The error of the file.
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.write(offset, data),
            Self::Null => {}
            Self::File(file) => return file.write(offset, data, durable),
        }
        Ok(())
    }

    /// Writes a range of a buffer. The store may keep the buffer, and then returns another one of the same
    /// length.
    pub fn write_buffer(
        &self,
        offset: u64,
        mut data: Buffer,
        range: Range<usize>,
        durable: bool,
    ) -> (io::Result<()>, Buffer) {
        if let Self::Memory(memory) = self
            && range.len() == data.len()
        {
            // The charge belongs to the connection, and stays with the buffer that it gets.
            let charge = data.set_charge(None);
            let mut back = memory
                .write_buffer(offset, data)
                .unwrap_or_else(|| Buffer::zeroed(range.len()));
            back.set_charge(charge);
            return (Ok(()), back);
        }
        (self.write(offset, &data[range], durable), data)
    }

    /// Flushes: all finished writes are on the medium when this returns.
    ///
    /// # Errors
    /// The error of the file.
    pub fn flush(&self) -> io::Result<()> {
        match self {
            Self::Memory(_) | Self::Null => Ok(()),
            Self::File(file) => file.flush(),
        }
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// The error of the file.
    pub fn clear(&self, how: Clear, offset: u64, length: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.clear(offset, length),
            Self::Null => {}
            Self::File(file) => return file.clear(how, offset, length),
        }
        Ok(())
    }

    /// Changes the size.
    ///
    /// # Errors
    /// The error of the file; for memory, when the size exceeds the limit.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.resize(bytes),
            Self::Null => Ok(()),
            Self::File(file) => file.resize(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_buffer_is_written_and_the_buffer_comes_back() {
        let store = Store::Memory(Memory::new(1 << 20).unwrap());
        let mut data = Buffer::zeroed(8192);
        data[64..4160].fill(7);
        let (result, back) = store.write_buffer(512, data, 64..4160, false);
        result.unwrap();
        assert_eq!((back.len(), back[64]), (8192, 7));
        let mut now = vec![9; 8192];
        store.read(0, &mut now).unwrap();
        assert!(now[512..4608].iter().all(|byte| *byte == 7));
        assert!(now[..512].iter().chain(&now[4608..]).all(|byte| *byte == 0));
    }
}
