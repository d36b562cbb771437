//! A client over SMB Direct and a server over TCP, with a gateway between them and no network: requests of
//! every kind, answers in any order, and memory that must not be touched after its answer.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use buffer::Buffer;
use smb::close_reason::Ended;
use smb::direct::incoming::Fragment;
use smb::peer::{Opened, Peer};
use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{
    Header, PROTOCOL_ID, ReadRequest, ReadResponse, SessionSetupResponse, WriteRequest, command,
    flag,
};

/// A whole message of the relay, and the key that its last fragment invalidates.
pub(crate) type Sent = (Vec<u8>, Option<u32>);

/// The SMB Direct side of a session: the peer's memory, and the messages that were sent to it.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Memory of the peer by key.
    pub(crate) memory: BTreeMap<u32, Vec<u8>>,
    /// Messages that are complete, in the order of their arrival.
    pub(crate) messages: VecDeque<Sent>,
    /// RDMA READs that have not completed.
    pub(crate) fetches: Vec<(u64, Buffer, usize, Vec<BufferDescriptor>)>,
    /// Buffers that are open to the peer, by key.
    pub(crate) open: BTreeMap<u32, usize>,
    /// Calls of `buffer` and `open` that find no memory.
    pub(crate) refusals: u32,
    next_key: u32,
    current: Option<(u32, Option<u32>, Vec<u8>)>,
}

impl Recorder {
    /// Completes an RDMA READ: returns its number and its buffer.
    pub(crate) fn complete(&mut self, index: usize) -> (u64, Buffer) {
        let (operation, mut buffer, mut at, from) = self.fetches.remove(index);
        for piece in from {
            let memory = self
                .memory
                .get(&piece.token)
                .expect("memory that is open is read");
            let begin = piece.offset as usize;
            let bytes = &memory[begin..begin + piece.length as usize];
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        (operation, buffer)
    }

    fn finish(&mut self) {
        if let Some((length, _, bytes)) = &self.current
            && bytes.len() == *length as usize
            && let Some((_, invalidate, bytes)) = self.current.take()
        {
            self.messages.push_back((bytes, invalidate));
        }
    }
}

impl Peer for Recorder {
    fn begin(&mut self, length: u32, invalidate: Option<u32>) -> Result<(), Ended> {
        assert!(
            self.current.is_none(),
            "a message begins before the last one is complete"
        );
        self.current = Some((length, invalidate, Vec::new()));
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.current
            .as_mut()
            .expect("a message was announced")
            .2
            .extend_from_slice(bytes);
        self.finish();
        Ok(())
    }

    fn buffer(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Ok(None);
        }
        Ok(Some(Buffer::zeroed(length)))
    }

    fn buffer_beyond(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        Ok(Some(Buffer::zeroed(length)))
    }

    fn recycle(&mut self, _: Buffer) {}

    fn fetch(
        &mut self,
        operation: u64,
        buffer: Buffer,
        at: usize,
        from: &[BufferDescriptor],
        length: usize,
    ) {
        assert_eq!(
            from.iter().map(|it| it.length as usize).sum::<usize>(),
            length
        );
        for piece in from {
            assert!(
                self.memory.contains_key(&piece.token),
                "memory is read after its answer"
            );
        }
        self.fetches.push((operation, buffer, at, from.to_vec()));
    }

    fn write_by_rdma(&mut self, buffer: Buffer, range: Range<usize>, to: &[BufferDescriptor]) {
        let mut bytes = &buffer[range];
        for piece in to {
            let memory = self
                .memory
                .get_mut(&piece.token)
                .expect("memory is written after its answer");
            let (now, later) = bytes.split_at(piece.length as usize);
            memory[piece.offset as usize..][..now.len()].copy_from_slice(now);
            bytes = later;
        }
        assert!(bytes.is_empty(), "all bytes have a place");
    }

    fn open(&mut self, length: usize, invalidates: bool) -> Result<Option<Opened>, Ended> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Ok(None);
        }
        let buffer = Buffer::zeroed(length);
        self.next_key += 1;
        self.open.insert(self.next_key, buffer.as_ptr() as usize);
        let offset = u64::from(self.next_key) << 32;
        let descriptor = BufferDescriptor {
            offset,
            token: self.next_key,
            length: length as u32,
        };
        Ok(Some(Opened {
            buffer,
            descriptor,
            invalidates,
        }))
    }

    fn close(&mut self, opened: Opened) {
        assert!(
            self.open.remove(&opened.descriptor.token).is_some(),
            "a buffer is closed once"
        );
    }

    fn read_write_size(&self) -> u32 {
        1 << 20
    }
}

/// A header of a message in the clear.
pub(crate) fn header(command: u16, message_id: u64) -> Header {
    Header {
        protocol_id: PROTOCOL_ID,
        structure_size: 64,
        credit_charge: 1,
        command,
        credits: 31,
        message_id,
        session_id: 0x1234_5678_9abc,
        ..Header::default()
    }
}

/// A READ with descriptors.
pub(crate) fn read(
    header: Header,
    length: u32,
    channel: u32,
    descriptors: &[BufferDescriptor],
) -> Vec<u8> {
    let info = array(descriptors);
    let body = ReadRequest {
        structure_size: 49,
        length,
        file_id: [7; 16],
        channel,
        channel_info_offset: if info.is_empty() { 0 } else { 112 },
        channel_info_length: info.len() as u16,
        ..ReadRequest::default()
    };
    let rest = if info.is_empty() { vec![0] } else { info };
    [&header.to_bytes()[..], &body.to_bytes(), &rest].concat()
}

/// A WRITE of the memory that descriptors name.
pub(crate) fn write(
    header: Header,
    length: u32,
    channel: u32,
    descriptors: &[BufferDescriptor],
) -> Vec<u8> {
    let info = array(descriptors);
    let body = WriteRequest {
        structure_size: 49,
        offset: 4096,
        file_id: [9; 16],
        channel,
        remaining_bytes: length,
        channel_info_offset: 112,
        channel_info_length: info.len() as u16,
        ..WriteRequest::default()
    };
    [&header.to_bytes()[..], &body.to_bytes(), &info].concat()
}

/// A WRITE with its data.
pub(crate) fn inline_write(header: Header, data: &[u8]) -> Vec<u8> {
    let (data_offset, length) = (112, data.len() as u32);
    let body = WriteRequest {
        structure_size: 49,
        data_offset,
        length,
        ..WriteRequest::default()
    };
    [&header.to_bytes()[..], &body.to_bytes(), data].concat()
}

fn array(descriptors: &[BufferDescriptor]) -> Vec<u8> {
    descriptors
        .iter()
        .flat_map(BufferDescriptor::to_bytes)
        .collect()
}

/// The answer to a request, with this status and body.
pub(crate) fn answer(request: &Header, status: u32, body: &[u8]) -> Vec<u8> {
    let header = Header {
        status,
        flags: flag::RESPONSE,
        next_command: 0,
        ..*request
    };
    [&header.to_bytes()[..], body].concat()
}

/// The answer that sets up a session, with these SessionFlags.
pub(crate) fn session_setup(flags: u16) -> Vec<u8> {
    let body = SessionSetupResponse {
        structure_size: 9,
        session_flags: flags,
        ..Default::default()
    };
    answer(&header(command::SESSION_SETUP, 0), 0, &body.to_bytes())
}

/// The answer to a READ, with its data.
pub(crate) fn read_answer(request: &Header, data: &[u8]) -> Vec<u8> {
    let (data_offset, data_length) = (80, data.len() as u32);
    let body = ReadResponse {
        structure_size: 17,
        data_offset,
        data_length,
        ..ReadResponse::default()
    };
    answer(request, 0, &[&body.to_bytes()[..], data].concat())
}

/// An error (MS-SMB2 2.2.2).
pub(crate) const ERROR: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes of a pattern that differs from place to place.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(97) ^ (at >> 8)) as u8)
        .collect()
}

/// The fragments of a message, of at most `size` bytes each.
pub(crate) fn fragments(message: &[u8], size: usize) -> impl Iterator<Item = Fragment<'_>> {
    let total = message.len();
    message.chunks(size).enumerate().map(move |(index, data)| {
        let end = index * size + data.len();
        let begins = (index == 0).then_some(total as u32);
        Fragment {
            data,
            begins,
            remaining: (total - end) as u32,
        }
    })
}

/// Takes complete messages out of a stream of SMB over TCP.
pub(crate) fn messages(stream: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(prefix) = stream.first_chunk::<4>() {
        let length = u32::from_be_bytes(*prefix) as usize;
        if stream.len() < 4 + length {
            break;
        }
        all.push(stream[4..4 + length].to_vec());
        stream.drain(..4 + length);
    }
    all
}

/// A message as SMB over TCP.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}
