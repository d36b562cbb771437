//! Turns completions and data into bytes: a queue of PDUs, each of a few short slices and perhaps a buffer,
//! so that one system call sends many without a copy.

use std::collections::VecDeque;
use std::io::IoSlice;

use wire::nvme::Completion;
use wire::nvme::tcp::{DIGEST_SIZE, Data, Digests, ENCODED_MAX, Header, Kind, flag};

use crate::limits::LENT_BYTES_MIN;
use crate::pool::Pool;
use crate::store::{Lent, Piece};
use crate::zero_copy::Reference;
use buffer::Buffer;

/// Slices of one system call.
const PIECES_MAX: usize = 128;
/// The longest tail behind data: data digest, response, and its digest.
const TAIL_MAX: usize = DIGEST_SIZE + 24 + DIGEST_SIZE;

/// A PDU, or a C2HData PDU with the response behind it.
#[derive(Debug)]
struct Outgoing {
    head: Vec<u8>,
    body: Option<Buffer>,
    /// Data in memory that a store lends.
    lent: Lent,
    body_length: usize,
    tail: [u8; TAIL_MAX],
    tail_length: usize,
}

/// Bytes of a PDU, and the chunk that they are in if they may be sent by reference.
type Part<'a> = (&'a [u8], Option<&'a Piece>);

impl Outgoing {
    /// The parts. Two system calls send a part by reference, where one call sends many copied parts, so that
    /// the rest of a read at the end of a chunk is copied.
    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let body = self
            .body
            .as_deref()
            .and_then(|body| body.get(..self.body_length));
        let tail = &self.tail[..self.tail_length];
        let copied = |bytes| (bytes, None);
        let is_referable = self.lent.is_referable();
        let lent = self.lent.chunks().map(move |piece @ (buffer, range)| {
            (
                &buffer[range.clone()],
                Some(piece).filter(|_| is_referable && range.len() >= LENT_BYTES_MIN),
            )
        });
        [&self.head[..], body.unwrap_or_default()]
            .map(copied)
            .into_iter()
            .chain(lent)
            .chain([copied(tail)])
    }

    fn length(&self) -> usize {
        self.head.len() + self.body_length + self.tail_length
    }
}

/// The PDUs to send.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    queue: VecDeque<Outgoing>,
    /// Bytes of the first PDU that were sent.
    done: usize,
    /// Header buffers to reuse.
    heads: Vec<Vec<u8>>,
    pub(super) digests: Digests,
    /// The data alignment that the host requested (HPDA), in bytes.
    pub(super) alignment: usize,
}

impl Outbound {
    /// Encodes a header, with its digest, for `data` bytes of data.
    fn encode(
        &self,
        header: &Header,
        flags: u8,
        data: usize,
        out: &mut [u8; ENCODED_MAX],
    ) -> usize {
        let kind = header.kind();
        let alignment = if kind == Kind::ControllerData {
            self.alignment.max(4)
        } else {
            4
        };
        let length = header.encode(flags, self.digests, data, alignment, out);
        if self.digests.header && kind.has_digests() {
            let (front, behind) = out.split_at_mut(usize::from(kind.header_length()));
            behind[..DIGEST_SIZE].copy_from_slice(&crc32c::crc32c(front).to_le_bytes());
        }
        length
    }

    fn head(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut head = self.heads.pop().unwrap_or_default();
        head.clear();
        head.extend_from_slice(bytes);
        head
    }

    /// Queues a PDU without data, or with a few bytes of data.
    pub(super) fn push(&mut self, header: &Header, data: &[u8]) {
        let mut bytes = [0; ENCODED_MAX];
        let length = self.encode(header, 0, data.len(), &mut bytes);
        let mut head = self.head(&bytes[..length]);
        head.extend_from_slice(data);
        let (body, lent, tail) = (None, Lent::default(), [0; TAIL_MAX]);
        self.queue.push_back(Outgoing {
            head,
            body,
            lent,
            body_length: 0,
            tail,
            tail_length: 0,
        });
    }

    /// Queues the data of a command and its completion; without the completion if `success_is_implied`.
    pub(super) fn push_data(
        &mut self,
        buffer: Buffer,
        length: usize,
        completion: &Completion,
        success_is_implied: bool,
    ) {
        let digest = self.digests.data.then(|| crc32c::crc32c(&buffer[..length]));
        let (body, lent) = (Some(buffer), Lent::default());
        self.push_body(body, lent, length, digest, completion, success_is_implied);
    }

    /// Queues data of lent memory and the completion.
    pub(super) fn push_lent(
        &mut self,
        lent: Lent,
        completion: &Completion,
        success_is_implied: bool,
    ) {
        let length = lent.length();
        let digest = self
            .digests
            .data
            .then(|| lent.pieces().fold(0, crc32c::crc32c_append));
        self.push_body(None, lent, length, digest, completion, success_is_implied);
    }

    fn push_body(
        &mut self,
        body: Option<Buffer>,
        lent: Lent,
        length: usize,
        digest: Option<u32>,
        completion: &Completion,
        success_is_implied: bool,
    ) {
        let implied =
            success_is_implied && completion.status().is_success() && completion.result == 0;
        let data = Data {
            cid: completion.cid,
            tag: 0,
            offset: 0,
            length: length as u32,
        };
        let flags = flag::LAST | if implied { flag::SUCCESS } else { 0 };
        let mut bytes = [0; ENCODED_MAX];
        let head_length = self.encode(&Header::ControllerData(data), flags, length, &mut bytes);
        let head = self.head(&bytes[..head_length]);
        let (mut tail, mut tail_length) = ([0; TAIL_MAX], 0);
        if let Some(digest) = digest {
            tail[..DIGEST_SIZE].copy_from_slice(&digest.to_le_bytes());
            tail_length = DIGEST_SIZE;
        }
        if !implied {
            let response = self.encode(&Header::Response(*completion), 0, 0, &mut bytes);
            tail[tail_length..tail_length + response].copy_from_slice(&bytes[..response]);
            tail_length += response;
        }
        self.queue.push_back(Outgoing {
            head,
            body,
            lent,
            body_length: length,
            tail,
            tail_length,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of PDUs that wait to be sent.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Appends the output to send next to `out`: with `references`, only what precedes the next reference.
    /// Returns whether there is one.
    pub(super) fn pieces<'a>(&'a self, out: &mut Vec<IoSlice<'a>>, references: bool) -> bool {
        let mut skip = self.done;
        for (piece, referable) in self.queue.iter().flat_map(Outgoing::parts) {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            if references && referable.is_some() {
                return true;
            }
            out.push(IoSlice::new(&piece[skip..]));
            skip = 0;
            if out.len() == PIECES_MAX {
                break;
            }
        }
        false
    }

    /// The output to send next, if it may be sent by reference.
    pub(super) fn reference(&self) -> Option<Reference<'_>> {
        let first = self
            .queue
            .front()
            .filter(|first| first.lent.is_referable())?;
        let mut skip = self.done;
        let (_, referable) = first.parts().find(|(piece, _)| {
            let is_next = skip < piece.len();
            skip -= if is_next { 0 } else { piece.len() };
            is_next
        })?;
        let (buffer, range) = referable?;
        let range = range.start + skip..range.end;
        let more = self.queue.len() > 1 || self.done + range.len() < first.length();
        Some(Reference {
            buffer,
            range,
            more,
        })
    }

    /// Confirms that this many bytes were sent. Sent buffers are returned to the pool.
    pub(super) fn sent(&mut self, bytes: usize, pool: &mut Pool) {
        self.done += bytes;
        while let Some(first) = self
            .queue
            .front()
            .map(Outgoing::length)
            .filter(|length| *length <= self.done)
        {
            self.done -= first;
            let Some(outgoing) = self.queue.pop_front() else {
                return;
            };
            match outgoing.body {
                Some(buffer) => pool.give(buffer),
                None if outgoing.body_length > 0 => {
                    pool.lent_back(Pool::lent_charge(outgoing.body_length))
                }
                None => {}
            }
            self.heads.push(outgoing.head);
        }
        self.heads.truncate(PIECES_MAX);
    }
}
