//! Replies to requests: simple ones, or structured ones where the client has negotiated them.

use super::Errno;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
/// The flag of the last chunk of a structured reply. Each reply here is one chunk.
const DONE: u16 = 1;

/// Types of chunks.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
}

/// The reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The request succeeded, and has no data.
    Done,
    /// The data of a read.
    Data {
        /// The first byte of the data on the disk.
        offset: u64,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// The request failed.
    Failed(Errno),
}

/// Appends a simple reply.
pub(super) fn simple(out: &mut Vec<u8>, cookie: u64, reply: Reply<'_>) {
    let (errno, bytes) = match reply {
        Reply::Done => (Errno::Success, &[][..]),
        Reply::Data { bytes, .. } => (Errno::Success, bytes),
        Reply::Failed(errno) => (errno, &[][..]),
    };
    out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    out.extend_from_slice(&(errno as u32).to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a structured reply of one chunk.
pub(super) fn structured(out: &mut Vec<u8>, cookie: u64, reply: Reply<'_>) {
    match reply {
        Reply::Done => chunk(out, chunk::NONE, cookie, &[]),
        Reply::Data { offset, bytes } => {
            chunk(
                out,
                chunk::OFFSET_DATA,
                cookie,
                &[&offset.to_be_bytes(), bytes],
            );
        }
        Reply::Failed(errno) => {
            let text = errno.text().as_bytes();
            let length = (text.len() as u16).to_be_bytes();
            chunk(
                out,
                chunk::ERROR,
                cookie,
                &[&(errno as u32).to_be_bytes(), &length, text],
            );
        }
    }
}

/// Appends the status of one extent, which begins where the request does.
pub(super) fn block_status(out: &mut Vec<u8>, cookie: u64, context: u32, length: u32, flags: u32) {
    let words = [context, length, flags].map(u32::to_be_bytes);
    chunk(out, chunk::BLOCK_STATUS, cookie, &[words.as_flattened()]);
}

fn chunk(out: &mut Vec<u8>, kind: u16, cookie: u64, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&STRUCTURED_MAGIC.to_be_bytes());
    out.extend_from_slice(&DONE.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
