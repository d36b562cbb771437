//! The operations of an SMB Direct connection that a relayed session uses. The transport implements them over
//! verbs; tests record the calls.

use std::ops::Range;

use buffer::Buffer;
use wire::smb::direct::BufferDescriptor;

use crate::close_reason::Ended;

/// A buffer that the peer may read and write.
#[derive(Debug)]
pub struct Opened {
    /// The memory, which the peer may change until its access is taken back.
    pub buffer: Buffer,
    /// Where the peer finds it.
    pub descriptor: BufferDescriptor,
    /// Whether the peer may invalidate the key.
    pub invalidates: bool,
}

/// The SMB Direct side of a session.
pub trait Peer {
    /// Announces a message of `length` bytes, whose last fragment invalidates the key at the peer.
    ///
    /// # Errors
    /// [`Ended::Send`] when the peer does not take a message of this length.
    fn begin(&mut self, length: u32, invalidate: Option<u32>) -> Result<(), Ended>;

    /// Appends bytes of the announced message.
    ///
    /// # Errors
    /// [`Ended::Send`] when there are more than were announced.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Ended>;

    /// A registered buffer of at least this length; `None` when the memory limit is reached, and the request
    /// has to wait.
    ///
    /// # Errors
    /// [`Ended::Rdma`] when the device registers no more memory.
    fn buffer(&mut self, length: usize) -> Result<Option<Buffer>, Ended>;

    /// A registered buffer of at least this length, beyond the memory limit of all connections: for data that
    /// are here already. `None` when the limit of unauthenticated clients is reached.
    ///
    /// # Errors
    /// As [`Peer::buffer`].
    fn buffer_beyond(&mut self, length: usize) -> Result<Option<Buffer>, Ended>;

    /// Returns a buffer.
    fn recycle(&mut self, buffer: Buffer);

    /// Fetches `length` bytes from the peer's memory by RDMA READ to `at` in the buffer; the session gets the
    /// buffer back with the number of the operation.
    fn fetch(
        &mut self,
        operation: u64,
        buffer: Buffer,
        at: usize,
        from: &[BufferDescriptor],
        length: usize,
    );

    /// Writes a range of the buffer to the peer's memory by RDMA WRITE, before messages that are announced
    /// later.
    fn write_by_rdma(&mut self, buffer: Buffer, range: Range<usize>, to: &[BufferDescriptor]);

    /// A buffer of this length that is open to the peer; `None` as for [`Peer::buffer`]. The peer is to
    /// invalidate the key with its answer where `invalidates` says that it can.
    ///
    /// # Errors
    /// As [`Peer::buffer`].
    fn open(&mut self, length: usize, invalidates: bool) -> Result<Option<Opened>, Ended>;

    /// Takes the peer's access back.
    fn close(&mut self, opened: Opened);

    /// The most bytes of one request with descriptors.
    fn read_write_size(&self) -> u32;
}
