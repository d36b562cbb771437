//! The NBD protocol with one client, without a socket: bytes in, demands out, results in, bytes out.

use super::Errno;
use super::negotiation::{
    self, ALLOCATION_ID, Agreed, Asked, Next, OPTION_BYTES_MAX, OPTION_HEAD, OPTIONS_MAX,
};
use super::reply::{self, Reply};
use super::request::{Demand, NbdRequest, REQUEST_SIZE, command};
use super::terms::{Export, Fault, REQUEST_BYTES_MAX};

/// Bytes of replies that wait to be sent. No further request is read beyond it.
const OUTPUT_MAX: usize = 64 << 20;
/// The status of an extent in `base:allocation` that has data, or may have: NVMe does not say.
const ALLOCATED: u32 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Flags,
    /// Options, of which the client has sent so many.
    Options(usize),
    Requests,
    /// The session is over; no further bytes are read.
    End,
}

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    export: Export,
    phase: Phase,
    agreed: Agreed,
    input: Vec<u8>,
    /// Bytes of `input` that were processed.
    taken: usize,
    /// Bytes of a long option that are still to come, and are not kept.
    skipped: usize,
    output: Vec<u8>,
    sent: usize,
}

impl Session {
    /// A session with a client that has just connected.
    pub fn new(export: Export) -> Self {
        let output = negotiation::greeting().to_vec();
        let (phase, agreed, input) = (Phase::Flags, Agreed::default(), Vec::new());
        Self {
            export,
            phase,
            agreed,
            input,
            taken: 0,
            skipped: 0,
            output,
            sent: 0,
        }
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
        } else if self.taken
            > if self.is_negotiated() {
                REQUEST_BYTES_MAX
            } else {
                OPTION_BYTES_MAX
            }
        {
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

    /// Queues the reply to a request.
    pub fn reply(&mut self, cookie: u64, reply: Reply<'_>) {
        let write = if self.agreed.structured {
            reply::structured
        } else {
            reply::simple
        };
        write(&mut self.output, cookie, reply);
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
                    let Some(flags) = input.first_chunk() else {
                        return Ok(None);
                    };
                    self.agreed = negotiation::client_flags(u32::from_be_bytes(*flags))?;
                    self.taken += 4;
                    self.phase = Phase::Options(0);
                }
                Phase::Options(OPTIONS_MAX) => return Err(Fault::TooMany),
                Phase::Options(count) => match self.next_option()? {
                    Some(Next::Option) => self.phase = Phase::Options(count + 1),
                    Some(Next::Requests) => self.phase = Phase::Requests,
                    Some(Next::End) => self.phase = Phase::End,
                    None => return Ok(None),
                },
                Phase::Requests => {
                    let Some(head) = input.first_chunk::<REQUEST_SIZE>() else {
                        return Ok(None);
                    };
                    let request = NbdRequest::parse(head)?;
                    let data = request.data_bytes();
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
                    match request.check_against(&self.export, &self.agreed) {
                        Errno::Success if self.is_answered(&request) => {}
                        Errno::Success => {
                            return Ok(Some(request.demand(&self.input[begin..begin + data])));
                        }
                        errno => self.reply(request.cookie, Reply::Failed(errno)),
                    }
                }
            }
        }
    }

    /// Answers the next option; `None` while it is incomplete.
    fn next_option(&mut self) -> Result<Option<Next>, Fault> {
        let skipped = self.skipped.min(self.input.len() - self.taken);
        (self.taken, self.skipped) = (self.taken + skipped, self.skipped - skipped);
        if self.skipped > 0 {
            return Ok(None);
        }
        match negotiation::option(&self.input[self.taken..])? {
            None => Ok(None),
            Some(Asked::TooLong(number, length)) => {
                negotiation::refuse_long(&self.agreed, number, &mut self.output)?;
                self.taken += OPTION_HEAD;
                self.skipped = length;
                Ok(Some(Next::Option))
            }
            Some(Asked::Whole(number, data, end)) => {
                let (agreed, output) = (&mut self.agreed, &mut self.output);
                let next = negotiation::answer(&self.export, number, data, agreed, output)?;
                self.taken += end;
                Ok(Some(next))
            }
        }
    }

    /// Answers a request for which nothing is to be done at the disk; returns whether it was one.
    fn is_answered(&mut self, request: &NbdRequest) -> bool {
        let NbdRequest {
            kind,
            cookie,
            length,
            ..
        } = *request;
        match kind {
            command::BLOCK_STATUS => {
                reply::block_status(&mut self.output, cookie, ALLOCATION_ID, length, ALLOCATED);
            }
            command::FLUSH => return false,
            _ if length == 0 => self.reply(cookie, Reply::Done),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::export::STAGING;
    use super::super::request::REQUEST_MAGIC;
    use super::super::terms::flag;
    use super::*;
    use crate::limits::NBD_NEGOTIATION_BYTES;

    fn session() -> Session {
        let flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::TRIM | flag::WRITE_ZEROES;
        let (name, description) = ("disk".to_owned(), "a disk".to_owned());
        Session::new(Export {
            name,
            description,
            size: 1 << 20,
            block_size: 512,
            flags,
        })
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let head = [
            &b"IHAVEOPT"[..],
            &number.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
        ]
        .concat();
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

    /// What the server says until it waits for the client.
    fn said(session: &mut Session) -> Vec<u8> {
        assert_eq!(session.next_demand(), Ok(None));
        let said = session.output().to_vec();
        session.sent(said.len());
        said
    }

    /// The replies to an option: type and data of each.
    fn answers(session: &mut Session, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        session.received(&option(number, data));
        let said = said(session);
        let (mut rest, mut all) = (&said[..], Vec::new());
        while let Some((head, behind)) = rest.split_first_chunk::<20>() {
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            assert_eq!(
                (word(0), word(4), word(8)),
                (0x0003_e889, 0x0455_65a9, number)
            );
            let (data, behind) = behind.split_at(word(16) as usize);
            all.push((word(12), data.to_vec()));
            rest = behind;
        }
        assert!(rest.is_empty());
        all
    }

    fn greeted(flags: u32) -> Session {
        let mut session = session();
        assert_eq!(&said(&mut session)[..16], b"NBDMAGICIHAVEOPT");
        session.received(&flags.to_be_bytes());
        session
    }

    fn named(name: &[u8], rest: &[u8]) -> Vec<u8> {
        [&(name.len() as u32).to_be_bytes(), name, rest].concat()
    }

    /// A session in which structured replies and `base:allocation` are negotiated.
    fn structured() -> Session {
        let mut session = greeted(3);
        assert_eq!(answers(&mut session, 8, &[]), [(1, Vec::new())]);
        let query = named(b"base:allocation", &[]);
        let chosen = answers(
            &mut session,
            10,
            &named(b"disk", &[&[0, 0, 0, 1], &query[..]].concat()),
        );
        assert_eq!(
            chosen,
            [
                (4, [&[0, 0, 0, 1], &b"base:allocation"[..]].concat()),
                (1, Vec::new())
            ]
        );
        let info = &answers(&mut session, 7, &named(b"", &[0, 0]))[0].1;
        assert_eq!(
            u16::from_be_bytes([info[10], info[11]]) & flag::DONT_FRAGMENT,
            flag::DONT_FRAGMENT
        );
        session
    }

    const UNSUPPORTED: u32 = 1 << 31 | 1;
    const INVALID: u32 = 1 << 31 | 3;
    const UNKNOWN: u32 = 1 << 31 | 6;
    const TOO_BIG: u32 = 1 << 31 | 9;

    #[test]
    fn option_go_reports_the_size_and_starts_transmission() {
        let mut session = greeted(3);
        let infos = answers(&mut session, 7, &named(b"", &[0, 0]));
        assert_eq!(
            infos.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [3, 3, 1]
        );
        assert_eq!(infos[0].1[2..10], (1_u64 << 20).to_be_bytes());
        let flags = u16::from_be_bytes([infos[0].1[10], infos[0].1[11]]);
        assert_eq!(flags & flag::DONT_FRAGMENT, 0, "replies are simple");
        session.received(&request(0, 0, 100, 1));
        assert_eq!(
            session.next_demand(),
            Ok(Some(Demand::Read {
                cookie: 7,
                offset: 100,
                length: 1
            }))
        );
        session.reply(
            7,
            Reply::Data {
                offset: 100,
                bytes: &[9],
            },
        );
        assert_eq!(
            session.output(),
            [&[0x67, 0x44, 0x66, 0x98][..], &[0; 11], &[7, 9]].concat()
        );
        session.received(&request(2, 0, 0, 0));
        assert_eq!(session.next_demand(), Ok(None));
        assert!(session.is_over());
    }

    #[test]
    fn export_name_starts_transmission_with_and_without_zeroes() {
        // Flags of the client: none as of old clients, fixed newstyle, without zeroes, both.
        for (flags, length) in [(0, 134), (1, 134), (2, 10), (3, 10)] {
            for name in [&b""[..], b"disk"] {
                let mut session = greeted(flags);
                session.received(&option(1, name));
                let said = said(&mut session);
                assert_eq!(
                    (said.len(), &said[..8]),
                    (length, &(1_u64 << 20).to_be_bytes()[..])
                );
                assert!(session.is_negotiated());
            }
            let mut session = greeted(flags);
            session.received(&option(1, b"other"));
            assert_eq!(session.next_demand(), Err(Fault::NoSuchExport));
        }
        // An old client cannot read replies to other options.
        let mut session = greeted(0);
        session.received(&option(3, &[]));
        assert_eq!(session.next_demand(), Err(Fault::Handshake));
        let mut session = greeted(0);
        session.received(&option(99, &[0; 9000]));
        assert_eq!(session.next_demand(), Err(Fault::Handshake));
        let mut session = greeted(4);
        assert_eq!(
            session.next_demand(),
            Err(Fault::Handshake),
            "an unknown flag"
        );
    }

    #[test]
    fn options_are_answered_one_by_one() {
        let mut session = greeted(3);
        let listed = [(2, named(b"disk", &[])), (1, Vec::new())];
        assert_eq!(answers(&mut session, 3, &[]), listed);
        let kinds = |session: &mut Session, number, data: &[u8]| -> Vec<u32> {
            answers(session, number, data)
                .iter()
                .map(|(kind, _)| *kind)
                .collect()
        };
        for (number, data, wanted) in [
            (3, &[0][..], INVALID),
            // STARTTLS, extended headers, and an option that is not there, with and without data.
            (5, &[], UNSUPPORTED),
            (11, &[], UNSUPPORTED),
            (4711, &[1, 2, 3], UNSUPPORTED),
            (4711, &[7; 20_000], TOO_BIG),
            (6, &named(b"other", &[0, 0]), UNKNOWN),
            (7, &named(b"other", &[0, 0]), UNKNOWN),
            (7, &named(&[b'x'; 4097], &[0, 0]), TOO_BIG),
            (7, &named(b"", &[0, 2, 0, 1]), INVALID),
            (7, &[0, 0, 0, 9, 1], INVALID),
            (8, &[1], INVALID),
            (9, &named(b"", &[0, 0, 0, 0]), INVALID),
            (10, &named(b"", &[0, 0, 0, 0]), INVALID),
        ] {
            assert_eq!(
                kinds(&mut session, number, data),
                [wanted],
                "{number} {data:?}"
            );
        }
        // NBD_INFO_NAME, NBD_INFO_DESCRIPTION, one that is not there, NBD_INFO_BLOCK_SIZE.
        let infos = named(b"", &[0, 4, 0, 1, 0, 2, 9, 9, 0, 3]);
        let infos = answers(&mut session, 6, &infos);
        assert_eq!(
            infos[1..3],
            [(3, b"\0\x01disk".to_vec()), (3, b"\0\x02a disk".to_vec())]
        );
        assert_eq!(infos[3].1, [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
        assert_eq!(
            (infos.len(), infos[4].0, session.is_negotiated()),
            (5, 1, false)
        );
        assert_eq!(kinds(&mut session, 8, &[]), [1]);
        assert_eq!(kinds(&mut session, 8, &[]), [INVALID], "once only");
        assert_eq!(kinds(&mut session, 2, &[]), [1]);
        assert!(session.is_over());
    }

    #[test]
    fn metadata_contexts_are_listed_and_chosen() {
        let mut session = greeted(3);
        assert_eq!(answers(&mut session, 8, &[]), [(1, Vec::new())]);
        let query = |text: &[u8]| named(b"", &[&[0, 0, 0, 1], &named(text, &[])[..]].concat());
        let none = named(b"", &[0; 4]);
        for (number, data, count) in [
            (9, &none, 2),
            (9, &query(b"base:"), 2),
            (9, &query(b"base:allocation"), 2),
            (9, &query(b"qemu:dirty-bitmap"), 1),
            (10, &query(b"base:"), 1),
            (10, &query(b"base:allocation"), 2),
            (10, &none, 1),
        ] {
            let answers = answers(&mut session, number, data);
            assert_eq!(
                (answers.len(), answers[count - 1].0),
                (count, 1),
                "{number} {data:?}"
            );
        }
        for broken in [
            &named(b"", &[0, 0, 0, 2, 0, 0, 0, 0])[..],
            &named(b"", &[0, 0, 0, 0, 9]),
            &[0; 3],
        ] {
            assert_eq!(
                answers(&mut session, 10, broken)[0].0,
                INVALID,
                "{broken:?}"
            );
        }
        assert_eq!(
            answers(&mut session, 10, &named(b"other", &[0; 4]))[0].0,
            UNKNOWN
        );
        // The last selection is empty: the command is not available.
        answers(&mut session, 7, &named(b"", &[0, 0]));
        session.received(&request(7, 0, 0, 512));
        assert_eq!(said(&mut session)[4..8], [0, 1, 0x80, 1]);
    }

    #[test]
    fn structured_replies_have_one_chunk() {
        let mut session = structured();
        session.received(&request(0, 4, 100, 2));
        assert_eq!(
            session.next_demand(),
            Ok(Some(Demand::Read {
                cookie: 7,
                offset: 100,
                length: 2
            }))
        );
        session.reply(
            7,
            Reply::Data {
                offset: 100,
                bytes: &[8, 9],
            },
        );
        let head = |kind: [u8; 2], length: u8| {
            [
                &[0x66, 0x8e, 0x33, 0xef, 0, 1][..],
                &kind,
                &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, length],
            ]
            .concat()
        };
        let data = [0, 0, 0, 0, 0, 0, 0, 100, 8, 9];
        assert_eq!(said(&mut session), [&head([0, 1], 10)[..], &data].concat());
        session.received(&request(7, 8 | 1, 512, 1024));
        let status = [0, 0, 0, 1, 0, 0, 4, 0, 0, 0, 0, 0];
        assert_eq!(
            said(&mut session),
            [&head([0, 5], 12)[..], &status].concat()
        );
        session.received(&request(0, 0, 0, 0));
        assert_eq!(said(&mut session), head([0, 0], 0));
        // A read beyond the end, and the status of no byte.
        for bytes in [request(0, 0, 1 << 20, 1), request(7, 0, 0, 0)] {
            session.received(&bytes);
            let said = said(&mut session);
            assert_eq!(
                (&said[..8], &said[20..24]),
                (&head([128, 1], 0)[..8], &[0, 0, 0, 22][..])
            );
            assert_eq!(usize::from(said[19]), said.len() - 20);
            assert_eq!(usize::from(said[25]), said.len() - 26);
        }
    }

    #[test]
    fn force_unit_access_is_accepted_with_every_command() {
        let mut session = ready();
        for kind in [0, 3, 4, 6] {
            let (offset, length) = if kind == 3 { (0, 0) } else { (512, 512) };
            session.received(&request(kind, 1, offset, length));
            assert!(matches!(session.next_demand(), Ok(Some(_))), "{kind}");
        }
        let mut session = structured();
        session.received(&request(7, 1, 0, 512));
        assert_eq!(said(&mut session)[6..8], [0, 5]);
    }

    #[test]
    fn requests_without_bytes_succeed_at_once() {
        let mut session = ready();
        for (kind, offset) in [(0, 0), (1, 512), (4, 1 << 20), (6, 1)] {
            session.received(&request(kind, 0, offset, 0));
            assert_eq!(said(&mut session)[4..8], [0; 4], "{kind}");
        }
    }

    #[test]
    fn a_read_only_export_refuses_every_write() {
        let flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::READ_ONLY;
        let (name, description) = (String::new(), String::new());
        let mut session = Session::new(Export {
            name,
            description,
            size: 1 << 20,
            block_size: 512,
            flags,
        });
        session.received(&[&3_u32.to_be_bytes()[..], &option(1, &[])].concat());
        said(&mut session);
        for (kind, data) in [(1, 512), (4, 0), (6, 0)] {
            session.received(&[request(kind, 0, 0, 512), vec![0; data]].concat());
            assert_eq!(said(&mut session)[4..8], [0, 0, 0, 1], "{kind}");
        }
        session.received(&request(3, 0, 0, 0));
        assert_eq!(session.next_demand(), Ok(Some(Demand::Flush { cookie: 7 })));
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
            Ok(Some(Demand::Write {
                cookie: 7,
                offset: 512,
                data,
                durable: true
            }))
        );
    }

    #[test]
    fn unsupported_requests_get_an_error_and_the_session_continues() {
        let mut session = ready();
        for (bytes, errno) in [
            (request(0, 0, 1 << 20, 1), Errno::Invalid),
            (request(0, 0, u64::MAX, 512), Errno::Invalid),
            (
                [request(1, 0, 1 << 20, 512), vec![0; 512]].concat(),
                Errno::NoSpace,
            ),
            (request(6, 0, 1 << 20, 512), Errno::NoSpace),
            (request(4, 0, 1 << 20, 512), Errno::Invalid),
            (
                request(0, 0, 0, REQUEST_BYTES_MAX as u32 + 1),
                Errno::Invalid,
            ),
            (request(3, 0, 1, 0), Errno::Invalid),
            (request(4, 2, 0, 512), Errno::Invalid),
            // DF without structured replies, FAST_ZERO, which was not offered, and PAYLOAD_LEN.
            (request(0, 4, 0, 512), Errno::Invalid),
            (request(6, 16, 0, 512), Errno::Invalid),
            (
                [request(1, 32, 0, 512), vec![0; 512]].concat(),
                Errno::Invalid,
            ),
            // NBD_CMD_CACHE, NBD_CMD_BLOCK_STATUS, and one that is not there.
            (request(5, 0, 0, 512), Errno::Invalid),
            (request(7, 0, 0, 512), Errno::Invalid),
            (request(99, 0, 0, 512), Errno::Invalid),
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
    }

    /// Clients that do not end their negotiation, read nothing, and send what the session keeps most of.
    #[test]
    fn a_client_costs_little_before_it_has_negotiated() {
        let longest = option(10, &[0; OPTION_BYTES_MAX]).repeat(OPTIONS_MAX - 1);
        let skipped = option(99, &[0; 4 * STAGING]).repeat(OPTIONS_MAX - 1);
        let informed = option(6, &[0; 6]).repeat(OPTIONS_MAX - 1);
        let behaviours = [
            ("silent", Vec::new()),
            ("longest", longest),
            ("skipped", skipped),
            ("info", informed),
        ];
        for (name, options) in behaviours {
            let mut session = greeted(1);
            let mut most = session.input.capacity() + session.output.capacity();
            // Reads of this length leave a part of an option each time.
            for part in options.chunks(STAGING - 1) {
                session.received(part);
                assert_eq!(session.next_demand(), Ok(None), "{name}");
                most = most.max(session.input.capacity() + session.output.capacity());
            }
            assert!(!session.is_negotiated());
            assert!(
                STAGING + most <= NBD_NEGOTIATION_BYTES,
                "{name}: {most} bytes"
            );
        }
    }
}
