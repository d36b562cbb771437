//! The NBD protocol with one client, without a socket: bytes in, demands out, results in, bytes out.

use super::Errno;
use super::negotiation::{self, Next, OPTIONS_MAX};
use super::terms::{Export, Fault, REQUEST_BYTES_MAX, flag};

/// Bytes of replies that wait to be sent. No further request is read beyond it.
const OUTPUT_MAX: usize = 64 << 20;
/// Bytes of a request without its data.
const REQUEST_SIZE: usize = 28;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

mod command {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const DISCONNECT: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const TRIM: u16 = 4;
    pub(super) const WRITE_ZEROES: u16 = 6;
    pub(super) const FUA: u16 = 1;
    pub(super) const NO_HOLE: u16 = 1 << 1;
}

/// A request of the client: its cookie, and a range in bytes. Ranges lie within the export; except for reads
/// they are multiples of the block size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand<'a> {
    /// Read a range (NBD_CMD_READ).
    Read {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: usize,
    },
    /// Write a range (NBD_CMD_WRITE).
    Write {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The bytes to write.
        data: &'a [u8],
        /// Whether the data have to be on the medium before the reply (FUA).
        durable: bool,
    },
    /// Flush all finished writes to the medium (NBD_CMD_FLUSH).
    Flush {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
    },
    /// Deallocate a range (NBD_CMD_TRIM).
    Trim {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
    },
    /// Make a range read as zeros (NBD_CMD_WRITE_ZEROES).
    Zero {
        /// The cookie of the request, which the reply repeats.
        cookie: u64,
        /// The first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
        /// Whether the range may be deallocated.
        may_deallocate: bool,
        /// Whether the data have to be on the medium before the reply (FUA).
        durable: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Flags,
    Options {
        no_zeroes: bool,
        count: usize,
    },
    Requests,
    /// The session is over; no further bytes are read.
    End,
}

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    export: Export,
    phase: Phase,
    input: Vec<u8>,
    /// Bytes of `input` that were processed.
    taken: usize,
    output: Vec<u8>,
    sent: usize,
}

struct Parsed {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

fn parse(b: &[u8; REQUEST_SIZE]) -> Result<Parsed, Fault> {
    if u32::from_be_bytes([b[0], b[1], b[2], b[3]]) != REQUEST_MAGIC {
        return Err(Fault::Magic);
    }
    Ok(Parsed {
        flags: u16::from_be_bytes([b[4], b[5]]),
        kind: u16::from_be_bytes([b[6], b[7]]),
        cookie: u64::from_be_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
        offset: u64::from_be_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
        length: u32::from_be_bytes([b[24], b[25], b[26], b[27]]),
    })
}

impl Session {
    /// A session with a client that has just connected.
    pub fn new(export: Export) -> Self {
        let output = negotiation::greeting().to_vec();
        Self { export, phase: Phase::Flags, input: Vec::new(), taken: 0, output, sent: 0 }
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::End
    }

    /// Whether the client has chosen the export.
    pub fn is_negotiated(&self) -> bool {
        matches!(self.phase, Phase::Requests | Phase::End)
    }

    /// Whether bytes should be read: not while too many bytes of replies wait.
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::End && self.output.len() - self.sent < OUTPUT_MAX
    }

    /// Takes bytes that the client sent.
    pub fn received(&mut self, bytes: &[u8]) {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        } else if self.taken > REQUEST_BYTES_MAX {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// The bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Confirms that this many bytes of the output were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.output.len());
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Queues the reply to a request; `data` is the data of a successful read.
    pub fn reply(&mut self, cookie: u64, errno: Errno, data: &[u8]) {
        self.output.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
        self.output.extend_from_slice(&(errno as u32).to_be_bytes());
        self.output.extend_from_slice(&cookie.to_be_bytes());
        self.output.extend_from_slice(data);
    }

    /// The next request, if one is complete.
    ///
    /// # Errors
    /// When the client violates the protocol.
    pub fn next_demand(&mut self) -> Result<Option<Demand<'_>>, Fault> {
        loop {
            let input = &self.input[self.taken..];
            match self.phase {
                Phase::End => return Ok(None),
                Phase::Flags => {
                    let Some(flags) = input.first_chunk() else { return Ok(None) };
                    let no_zeroes = negotiation::client_flags(u32::from_be_bytes(*flags))?;
                    self.taken += 4;
                    self.phase = Phase::Options { no_zeroes, count: 0 };
                }
                Phase::Options { count: OPTIONS_MAX, .. } => return Err(Fault::TooMany),
                Phase::Options { no_zeroes, count } => {
                    let Some((number, data, end)) = negotiation::option(input)? else { return Ok(None) };
                    let next = negotiation::answer(&self.export, number, data, no_zeroes, &mut self.output)?;
                    self.taken += end;
                    self.phase = match next {
                        Next::Option => Phase::Options { no_zeroes, count: count + 1 },
                        Next::Requests => Phase::Requests,
                        Next::End => Phase::End,
                    };
                }
                Phase::Requests => {
                    let Some(head) = input.first_chunk::<REQUEST_SIZE>() else { return Ok(None) };
                    let request = parse(head)?;
                    let data = if request.kind == command::WRITE { request.length as usize } else { 0 };
                    if data > REQUEST_BYTES_MAX {
                        return Err(Fault::TooLong);
                    }
                    if input.len() < REQUEST_SIZE + data {
                        return Ok(None);
                    }
                    let begin = self.taken + REQUEST_SIZE;
                    self.taken = begin + data;
                    if request.kind == command::DISCONNECT {
                        self.phase = Phase::End;
                        return Ok(None);
                    }
                    match self.check(&request) {
                        Errno::Success => return Ok(Some(self.demand(&request, begin, data))),
                        errno => self.reply(request.cookie, errno, &[]),
                    }
                }
            }
        }
    }

    /// Checks flags and range of a request.
    fn check(&self, request: &Parsed) -> Errno {
        let Parsed { flags, kind, offset, length, .. } = *request;
        let allowed = match kind {
            command::READ | command::FLUSH => 0,
            command::WRITE | command::TRIM => command::FUA,
            command::WRITE_ZEROES => command::FUA | command::NO_HOLE,
            _ => return Errno::Unsupported,
        };
        let writes = !matches!(kind, command::READ | command::FLUSH);
        let wanted = match kind {
            command::TRIM => flag::TRIM,
            command::WRITE_ZEROES => flag::WRITE_ZEROES,
            command::FLUSH => flag::FLUSH,
            _ => 0,
        };
        let has = self.export.flags;
        if kind == command::FLUSH {
            let is_plain = flags == 0 && offset == 0 && length == 0 && has & wanted != 0;
            return if is_plain { Errno::Success } else { Errno::Invalid };
        }
        let end = offset.checked_add(length.into()).filter(|end| *end <= self.export.size);
        let blocks = u64::from(self.export.block_size);
        let is_whole = offset.is_multiple_of(blocks) && u64::from(length).is_multiple_of(blocks);
        match () {
            () if writes && has & flag::READ_ONLY != 0 => Errno::Permission,
            () if flags & !allowed != 0 || has & wanted != wanted || length == 0 => Errno::Invalid,
            () if kind == command::READ && length as usize > REQUEST_BYTES_MAX => Errno::Invalid,
            () if end.is_none() && kind == command::WRITE => Errno::NoSpace,
            () if end.is_none() || writes && !is_whole => Errno::Invalid,
            () => Errno::Success,
        }
    }

    fn demand(&self, request: &Parsed, begin: usize, bytes: usize) -> Demand<'_> {
        let Parsed { flags, kind, cookie, offset, length } = *request;
        let durable = flags & command::FUA != 0;
        match kind {
            command::READ => Demand::Read { cookie, offset, length: length as usize },
            command::WRITE => {
                let data = &self.input[begin..begin + bytes];
                Demand::Write { cookie, offset, data, durable }
            }
            command::TRIM => Demand::Trim { cookie, offset, length: length.into() },
            command::WRITE_ZEROES => {
                let may_deallocate = flags & command::NO_HOLE == 0;
                Demand::Zero { cookie, offset, length: length.into(), may_deallocate, durable }
            }
            // `check` refuses all other types.
            _ => Demand::Flush { cookie },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::TRIM | flag::WRITE_ZEROES;
        Session::new(Export { name: "disk".to_owned(), size: 1 << 20, block_size: 512, flags })
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let head = [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        [&head, data].concat()
    }

    fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&7_u64.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes
    }

    fn ready() -> Session {
        let mut session = session();
        session.received(&3_u32.to_be_bytes());
        session.received(&option(7, &[0, 0, 0, 4, b'd', b'i', b's', b'k', 0, 0]));
        assert_eq!(session.next_demand(), Ok(None));
        session.sent(session.output().len());
        session
    }

    #[test]
    fn option_go_reports_the_size_and_starts_transmission() {
        let mut session = session();
        assert_eq!(&session.output()[..16], b"NBDMAGICIHAVEOPT");
        session.sent(18);
        session.received(&3_u32.to_be_bytes());
        session.received(&option(8, &[]));
        session.received(&option(7, &[0, 0, 0, 0, 0, 0]));
        assert_eq!(session.next_demand(), Ok(None));
        let said = session.output();
        // Structured replies are refused; the export size and flags follow.
        assert_eq!(said[12..16], (1_u32 << 31 | 1).to_be_bytes());
        assert_eq!(said[42..50], (1_u64 << 20).to_be_bytes());
        session.sent(said.len());
        session.received(&request(0, 0, 100, 1));
        assert_eq!(session.next_demand(), Ok(Some(Demand::Read { cookie: 7, offset: 100, length: 1 })));
        session.reply(7, Errno::Success, &[9]);
        assert_eq!(session.output().len(), 17);
        session.received(&request(2, 0, 0, 0));
        assert_eq!(session.next_demand(), Ok(None));
        assert!(session.is_over());
    }

    #[test]
    fn writes_wait_for_their_data_byte_by_byte() {
        let mut session = ready();
        for byte in [&request(1, 1, 512, 512)[..], &[5; 511]].concat() {
            session.received(&[byte]);
            assert_eq!(session.next_demand(), Ok(None));
        }
        session.received(&[5]);
        let data = &[5; 512][..];
        assert_eq!(
            session.next_demand(),
            Ok(Some(Demand::Write { cookie: 7, offset: 512, data, durable: true }))
        );
    }

    #[test]
    fn unsupported_requests_get_an_error_and_the_session_continues() {
        let mut session = ready();
        for (bytes, errno) in [
            (request(0, 0, 1 << 20, 1), Errno::Invalid),
            (request(0, 0, u64::MAX, 512), Errno::Invalid),
            ([request(1, 0, 1 << 20, 512), vec![0; 512]].concat(), Errno::NoSpace),
            ([request(1, 0, 1, 512), vec![0; 512]].concat(), Errno::Invalid),
            (request(3, 0, 1, 0), Errno::Invalid),
            (request(4, 2, 0, 512), Errno::Invalid),
            (request(7, 0, 0, 512), Errno::Unsupported),
        ] {
            session.received(&bytes);
            assert_eq!(session.next_demand(), Ok(None));
            assert_eq!(session.output()[4..8], (errno as u32).to_be_bytes());
            session.sent(16);
        }
    }

    #[test]
    fn a_wrong_magic_number_ends_the_session() {
        let mut session = ready();
        session.received(&[0; 28]);
        assert_eq!(session.next_demand(), Err(Fault::Magic));
        let mut session = ready();
        session.received(&request(1, 0, 0, u32::MAX));
        assert_eq!(session.next_demand(), Err(Fault::TooLong));
        let mut session = self::session();
        session.received(&0_u32.to_be_bytes());
        assert_eq!(session.next_demand(), Err(Fault::Handshake));
    }
}
