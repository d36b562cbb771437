//! A server of one file in memory, over TCP, with the part of SMB 2 that the benchmark's client uses. It
//! takes the place of Samba, so that the transport is measured and not the server.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use wire::smb::message::{self, Header, ReadRequest, ReadResponse, WriteRequest, command, flag};

use super::message as request;
use crate::output;

/// Bytes under one lock.
const PIECE: usize = 1 << 20;
/// The longest READ and WRITE.
const LONGEST: u32 = 8 << 20;
/// Credits that an answer grants at most.
const CREDITS_MAX: u16 = 512;
/// Bytes before the data of a READ's answer: the length over TCP, the header, and the fixed part.
const READ_HEAD: usize = 4 + Header::SIZE + ReadResponse::SIZE;
/// STATUS_NOT_SUPPORTED, for commands that the client does not use.
const NOT_SUPPORTED: u32 = 0xc000_00bb;
/// STATUS_INVALID_PARAMETER, for bytes that the file does not have.
const INVALID_PARAMETER: u32 = 0xc000_000d;

/// The file, in pieces that connections lock one at a time.
struct File(Vec<RwLock<Box<[u8]>>>);

impl File {
    fn new(size: u64) -> Self {
        let pieces = size.div_ceil(PIECE as u64);
        Self(
            (0..pieces)
                .map(|_| RwLock::new(vec![0; PIECE].into_boxed_slice()))
                .collect(),
        )
    }

    fn has(&self, offset: u64, length: u32) -> bool {
        let size = (self.0.len() * PIECE) as u64;
        (1..=LONGEST).contains(&length)
            && offset
                .checked_add(u64::from(length))
                .is_some_and(|end| end <= size)
    }

    /// The pieces that a range of the file lies in, and the part of each.
    fn pieces(
        &self,
        offset: u64,
        length: u32,
    ) -> impl Iterator<Item = (&RwLock<Box<[u8]>>, Range<usize>)> {
        let (begin, end) = (offset as usize, offset as usize + length as usize);
        let first = begin / PIECE;
        let pieces = self.0.iter().enumerate().skip(first);
        pieces.map_while(move |(index, piece)| {
            let at = index * PIECE;
            (at < end).then(|| (piece, begin.saturating_sub(at)..(end - at).min(PIECE)))
        })
    }
}

/// Serves at this address; returns only when it cannot.
pub(super) fn serve(at: SocketAddr, size: u64) -> io::Result<()> {
    let listener = TcpListener::bind(at)?;
    // The process that started this one reads the line; without it this one serves all the same.
    _ = output::line(format_args!("listening at {}", listener.local_addr()?));
    let file = Arc::new(File::new(size));
    for stream in listener.incoming() {
        let (stream, file) = (stream?, Arc::clone(&file));
        stream.set_nodelay(true)?;
        // It ends when the client closes the connection, or sends what is no request.
        std::thread::spawn(move || {
            Connection {
                input: BufReader::new(stream),
                file,
            }
            .run()
        });
    }
    Ok(())
}

struct Connection {
    input: BufReader<TcpStream>,
    file: Arc<File>,
}

impl Connection {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length) as usize;
            let mut head = [0; Header::SIZE];
            self.input.read_exact(&mut head)?;
            let (header, _) = Header::split(&head).ok_or(io::ErrorKind::InvalidData)?;
            let left = length
                .checked_sub(Header::SIZE)
                .ok_or(io::ErrorKind::InvalidData)?;
            match header.command {
                command::READ => self.read(&header, left)?,
                command::WRITE => self.write(&header, left)?,
                _ => {
                    self.skip(left)?;
                    let (status, body) = answer(&header);
                    self.send(&header, status, &body)?;
                }
            }
        }
    }

    fn skip(&mut self, bytes: usize) -> io::Result<()> {
        let skipped = io::copy(&mut self.input.by_ref().take(bytes as u64), &mut io::sink())?;
        if skipped == bytes as u64 {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn fixed<const N: usize>(&mut self, left: usize) -> io::Result<([u8; N], usize)> {
        let mut fixed = [0; N];
        let left = left.checked_sub(N).ok_or(io::ErrorKind::InvalidData)?;
        self.input.read_exact(&mut fixed)?;
        Ok((fixed, left))
    }

    fn read(&mut self, header: &Header, left: usize) -> io::Result<()> {
        let (fixed, left) = self.fixed::<{ ReadRequest::SIZE }>(left)?;
        self.skip(left)?;
        let (asked, _) = ReadRequest::split(&fixed).ok_or(io::ErrorKind::InvalidData)?;
        if !self.file.has(asked.offset, asked.length) {
            return self.send(header, INVALID_PARAMETER, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let fixed = ReadResponse {
            structure_size: 17,
            data_offset: (READ_HEAD - 4) as u8,
            data_length: asked.length,
            ..ReadResponse::default()
        };
        let mut head = framed(header, 0, &fixed.to_bytes(), asked.length);
        for (piece, range) in self.file.pieces(asked.offset, asked.length) {
            let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
            send_all(
                self.input.get_mut(),
                &head,
                piece.get(range).unwrap_or_default(),
            )?;
            head.clear();
        }
        Ok(())
    }

    fn write(&mut self, header: &Header, left: usize) -> io::Result<()> {
        let (fixed, left) = self.fixed::<{ WriteRequest::SIZE }>(left)?;
        let (asked, _) = WriteRequest::split(&fixed).ok_or(io::ErrorKind::InvalidData)?;
        if !self.file.has(asked.offset, asked.length) || left != asked.length as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let file = Arc::clone(&self.file);
        for (piece, range) in file.pieces(asked.offset, asked.length) {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            self.input
                .read_exact(piece.get_mut(range).unwrap_or_default())?;
        }
        let mut body = [0; 16];
        body[0] = 17;
        body[4..8].copy_from_slice(&asked.length.to_le_bytes());
        self.send(header, 0, &body)
    }

    fn send(&mut self, asked: &Header, status: u32, body: &[u8]) -> io::Result<()> {
        self.input
            .get_mut()
            .write_all(&framed(asked, status, body, 0))
    }
}

/// The status and the body of the answer to a request that moves no data.
fn answer(asked: &Header) -> (u32, Vec<u8>) {
    match asked.command {
        command::NEGOTIATE => (0, request::negotiate_answer(LONGEST)),
        // The first round requests a challenge, and has no session yet.
        command::SESSION_SETUP if asked.session_id == 0 => (request::MORE_PROCESSING, vec![0; 8]),
        command::SESSION_SETUP | command::TREE_CONNECT => (0, vec![0; 16]),
        request::CREATE => (0, vec![0; 88]),
        _ => (NOT_SUPPORTED, vec![0; 8]),
    }
}

/// The beginning of an answer, behind which so many bytes of data follow.
fn framed(asked: &Header, status: u32, body: &[u8], data: u32) -> Vec<u8> {
    let header = Header {
        protocol_id: message::PROTOCOL_ID,
        structure_size: message::HEADER_STRUCTURE_SIZE,
        status,
        credits: asked.credits.clamp(1, CREDITS_MAX),
        flags: flag::RESPONSE,
        next_command: 0,
        session_id: 1,
        ..*asked
    };
    let length = (Header::SIZE + body.len()) as u32 + data;
    [&length.to_be_bytes()[..], &header.to_bytes(), body].concat()
}

/// Sends both with as few system calls as possible.
fn send_all(stream: &mut TcpStream, head: &[u8], data: &[u8]) -> io::Result<()> {
    let mut parts = &mut [IoSlice::new(head), IoSlice::new(data)][..];
    while parts.iter().any(|part| !part.is_empty()) {
        let sent = stream.write_vectored(parts)?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut parts, sent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_the_pieces_that_it_touches() {
        let file = File::new(3 * PIECE as u64);
        let ranges = |offset, length| {
            file.pieces(offset, length)
                .map(|(_, range)| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(ranges(4096, 4096), [(4096, 8192)]);
        assert_eq!(ranges(PIECE as u64, PIECE as u32), [(0, PIECE)]);
        assert_eq!(
            ranges(PIECE as u64 - 1, PIECE as u32 + 2),
            [(PIECE - 1, PIECE), (0, PIECE), (0, 1)]
        );
        assert!(
            file.has(2 * PIECE as u64, PIECE as u32)
                && !file.has(2 * PIECE as u64 + 1, PIECE as u32)
        );
        assert!(!file.has(u64::MAX, 4096));
    }
}
