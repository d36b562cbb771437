//! Tests of a gateway: how it forwards a client's requests and a server's answers.

mod orders;

use smb::close_reason::Ended;
use smb::relay::gateway::Gateway;
use smb::relay::{Session, Trust};
use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{
    Header, ReadRequest, ReadResponse, STATUS_PENDING, WriteRequest, command, flag,
};

use crate::world::*;

const END_OF_FILE: u32 = 0xc000_0011;

struct World {
    gateway: Gateway,
    peer: Recorder,
    stream: Vec<u8>,
}

impl World {
    /// A client without a session.
    fn stranger() -> Self {
        Self {
            gateway: Gateway::default(),
            peer: Recorder::default(),
            stream: Vec::new(),
        }
    }

    /// A client with a session.
    fn new() -> Self {
        let mut world = Self::stranger();
        world
            .server_sends(&session_setup(0), 1000)
            .expect("within the rules");
        world.client_gets();
        world
    }

    /// Opens memory of the client with this content, in pieces of this length.
    fn open(&mut self, key: u32, bytes: &[u8], piece: usize) -> Vec<BufferDescriptor> {
        let begins = (0..bytes.len()).step_by(piece);
        let pieces = begins.map(|begin| {
            let length = piece.min(bytes.len() - begin) as u32;
            BufferDescriptor {
                offset: begin as u64,
                token: key,
                length,
            }
        });
        self.peer.memory.insert(key, bytes.to_vec());
        pieces.collect()
    }

    fn client_sends(&mut self, message: &[u8], size: usize) -> Result<(), Ended> {
        for fragment in fragments(message, size) {
            self.gateway.fragment(fragment)?;
        }
        self.gateway.advance(&mut self.peer)
    }

    fn complete_fetches(&mut self) {
        while !self.peer.fetches.is_empty() {
            let (operation, buffer) = self.peer.complete(0);
            self.gateway.fetched(operation, buffer);
            self.gateway
                .advance(&mut self.peer)
                .expect("within the rules");
        }
    }

    fn server_gets(&mut self) -> Vec<Vec<u8>> {
        while let bytes = self.gateway.to_tcp().next()
            && !bytes.is_empty()
        {
            let count = bytes.len();
            self.stream.extend_from_slice(bytes);
            self.gateway.to_tcp().sent(count);
        }
        messages(&mut self.stream)
    }

    fn server_sends(&mut self, message: &[u8], size: usize) -> Result<(), Ended> {
        framed(message)
            .chunks(size)
            .try_for_each(|bytes| self.server_sends_bytes(bytes))?;
        // A request that waits for memory gets it when no refusal is left.
        (0..4).try_for_each(|_| self.gateway.advance(&mut self.peer))
    }

    fn server_sends_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            self.gateway.advance(&mut self.peer)?;
            let Some(place) = self.gateway.tcp_place() else {
                continue;
            };
            let count = place.len().min(bytes.len());
            place[..count].copy_from_slice(&bytes[..count]);
            self.gateway.tcp_received(count, &mut self.peer)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn client_gets(&mut self) -> Sent {
        self.peer.messages.pop_front().expect("an answer")
    }
}

fn fixed(message: &[u8]) -> (Header, &[u8]) {
    Header::split(message).expect("a header")
}

#[test]
fn the_data_of_a_read_go_to_all_descriptors() {
    for (count, length) in [
        (1, 4096),
        (2, 4096),
        (17, 65_536),
        (31, 131_072),
        (31, 1_000_003),
    ] {
        let mut world = World::new();
        let places = world.open(5, &vec![0; length + 1000], length.div_ceil(count));
        let header = header(command::READ, 7);
        world
            .client_sends(&read(header, length as u32, 2, &places), 100)
            .expect("within the rules");
        let [request] = &world.server_gets()[..] else {
            panic!("one request")
        };
        let (_, body) = fixed(request);
        let (inline, rest) = ReadRequest::split(body).expect("within the rules");
        assert_eq!(
            (inline.channel, inline.channel_info_length, inline.length),
            (0, 0, length as u32)
        );
        assert_eq!((rest.len(), inline.file_id), (1, [7; 16]));
        // The server has less than was asked for: the end of the file.
        let data = pattern(count as u64, length - 96);
        world
            .server_sends(&read_answer(&header, &data), 1000)
            .expect("within the rules");
        assert_eq!(world.peer.memory[&5][..data.len()], data);
        assert!(
            world.peer.memory[&5][data.len()..]
                .iter()
                .all(|byte| *byte == 0)
        );
        let (answer, invalidate) = world.client_gets();
        assert_eq!((answer.len(), invalidate), (80, Some(5)));
        let (response, _) = ReadResponse::split(fixed(&answer).1).expect("within the rules");
        assert_eq!(
            (response.data_length, response.data_remaining),
            (0, data.len() as u32)
        );
    }
}

#[test]
fn the_data_of_a_write_come_from_all_descriptors() {
    for (count, length) in [(1, 1), (2, 4097), (17, 65_536), (31, 1 << 20)] {
        let mut world = World::new();
        let data = pattern(count as u64, length);
        let places = world.open(6, &data, length.div_ceil(count));
        let header = header(command::WRITE, 9);
        world
            .client_sends(&write(header, length as u32, 1, &places), 70)
            .expect("within the rules");
        world
            .client_sends(
                &answer(&super::world::header(13, 10), 0, &[4, 0, 0, 0]),
                500,
            )
            .expect("within the rules");
        assert!(world.server_gets().is_empty(), "requests keep their order");
        world.complete_fetches();
        let requests = world.server_gets();
        let (_, body) = fixed(&requests[0]);
        let (inline, rest) = WriteRequest::split(body).expect("within the rules");
        assert_eq!(
            (inline.channel, inline.length, inline.data_offset),
            (0, length as u32, 112)
        );
        assert_eq!(
            (rest, inline.offset, inline.remaining_bytes),
            (&data[..], 4096, 0)
        );
        assert_eq!(requests.len(), 2);
        let done = answer(&header, 0, &[17; 17]);
        world.server_sends(&done, 10_000).expect("within the rules");
        assert_eq!(
            world.client_gets(),
            (done, None),
            "Channel 1 invalidates nothing"
        );
    }
}

const PART: usize = smb::limits::PART_BYTES as usize;

#[test]
fn parts_of_a_read_are_placed_as_they_come() {
    let mut world = World::new();
    let data = pattern(1, 3 * PART + 5);
    let places = world.open(5, &vec![0; data.len()], 100_000);
    let header = header(command::READ, 7);
    world
        .client_sends(&read(header, data.len() as u32, 2, &places), 1000)
        .expect("within the rules");
    let message = framed(&read_answer(&header, &data));
    let (first, rest) = message.split_at(message.len() - 5);
    world.server_sends_bytes(first).expect("within the rules");
    assert!(world.peer.memory[&5][..3 * PART] == data[..3 * PART]);
    assert_eq!(world.peer.memory[&5][3 * PART..], [0; 5]);
    assert!(
        world.peer.messages.is_empty(),
        "the answer comes behind all data"
    );
    world.server_sends_bytes(rest).expect("within the rules");
    assert!(world.peer.memory[&5] == data);
    assert_eq!(world.client_gets().0.len(), 80);
}

/// Data that are read together with a head are copied once more.
#[test]
fn behind_long_data_a_message_is_read_up_to_its_head() {
    let mut world = World::new();
    for (id, length, room) in [(1, PART, 260), (2, 4096, 64 << 10), (3, PART, 260)] {
        let places = world.open(5, &vec![0; length], length);
        let header = header(command::READ, id);
        world
            .client_sends(&read(header, length as u32, 1, &places), 1000)
            .expect("within the rules");
        world
            .server_sends(&read_answer(&header, &vec![7; length]), 1 << 20)
            .expect("within the rules");
        world.client_gets();
        assert_eq!(
            world.gateway.tcp_place().expect("a place").len(),
            room,
            "behind {length} bytes"
        );
    }
}

#[test]
fn errors_and_interim_answers_pass_without_data() {
    let mut world = World::new();
    let places = world.open(5, &[0; 4096], 4096);
    let header = header(command::READ, 7);
    world
        .client_sends(&read(header, 4096, 2, &places), 1000)
        .expect("within the rules");
    let pending = Header {
        flags: flag::ASYNC,
        async_id: 99,
        ..header
    };
    let interim = answer(&pending, STATUS_PENDING, &ERROR);
    world
        .server_sends(&interim, 1000)
        .expect("within the rules");
    assert_eq!(
        world.client_gets(),
        (interim, None),
        "the memory is still in use"
    );
    let cancel = Header {
        flags: flag::ASYNC,
        ..super::world::header(command::CANCEL, 7)
    };
    let cancel = [&cancel.to_bytes()[..], &[4, 0, 0, 0]].concat();
    world.client_sends(&cancel, 1000).expect("within the rules");
    assert_eq!(world.server_gets().last(), Some(&cancel));
    let error = answer(&pending, 0xc000_0120, &ERROR);
    world.server_sends(&error, 1000).expect("within the rules");
    assert_eq!(
        world.client_gets(),
        (error.clone(), Some(5)),
        "the key is invalidated with the error"
    );
    // A second answer finds no request: it passes, and touches nothing.
    world.peer.memory.clear();
    let late = read_answer(&header, &pattern(1, 4096));
    world.server_sends(&late, 1000).expect("within the rules");
    assert_eq!(world.client_gets(), (late, None));
}

/// With SMB 3.0 the client may ask for an invalidation and gets none; from 3.0.2 on it does.
#[test]
fn keys_are_invalidated_from_dialect_3_0_2_on() {
    for (dialect, invalidates) in [(0x0300_u16, false), (0x0302, true), (0x0311, true)] {
        let mut world = World::new();
        let negotiated = [&[65, 0, 1, 0][..], &dialect.to_le_bytes(), &[0; 58]].concat();
        let negotiated = answer(&header(command::NEGOTIATE, 0), 0, &negotiated);
        world
            .server_sends(&negotiated, 1000)
            .expect("within the rules");
        assert_eq!(world.client_gets(), (negotiated, None));
        for (id, channel) in [(1, 1), (2, 2)] {
            let places = world.open(5, &pattern(1, 4096), 4096);
            let asked = [
                header(command::READ, 2 * id),
                header(command::WRITE, 2 * id + 1),
            ];
            world
                .client_sends(&read(asked[0], 4096, channel, &places), 1000)
                .expect("within the rules");
            world
                .client_sends(&write(asked[1], 4096, channel, &places), 1000)
                .expect("within the rules");
            world.complete_fetches();
            assert_eq!(world.server_gets().len(), 2);
            let key = (invalidates && channel == 2).then_some(5);
            world
                .server_sends(&read_answer(&asked[0], &[3; 4096]), 1000)
                .expect("within the rules");
            assert_eq!(
                world.client_gets().1,
                key,
                "{dialect:#x}, channel {channel}"
            );
            world
                .server_sends(&answer(&asked[1], 0, &[17; 17]), 1000)
                .expect("within the rules");
            assert_eq!(
                world.client_gets().1,
                key,
                "{dialect:#x}, channel {channel}"
            );
        }
    }
}

#[test]
fn signed_and_encrypted_messages_pass_byte_by_byte() {
    let mut world = World::new();
    let places = world.open(5, &[1; 8192], 4096);
    let signed = Header {
        flags: flag::SIGNED,
        signature: [3; 16],
        ..header(command::WRITE, 7)
    };
    let sealed = [&[0xfd, b'S', b'M', b'B'][..], &pattern(3, 5000)].concat();
    let negotiate = [&[0xff, b'S', b'M', b'B'][..], &pattern(4, 60)].concat();
    for message in [
        write(signed, 8192, 2, &places),
        sealed,
        negotiate,
        vec![0xfe],
        vec![0; 70],
    ] {
        for size in [1, 100, 8168] {
            world
                .client_sends(&message, size)
                .expect("within the rules");
            assert_eq!(world.server_gets(), std::slice::from_ref(&message));
            world
                .server_sends(&message, size)
                .expect("within the rules");
            assert_eq!(world.client_gets(), (message.clone(), None));
        }
    }
    assert!(world.peer.fetches.is_empty());
}

#[test]
fn a_signed_answer_is_not_changed() {
    let mut world = World::new();
    let places = world.open(5, &[0; 4096], 4096);
    let header = header(command::READ, 7);
    world
        .client_sends(&read(header, 4096, 2, &places), 1000)
        .expect("within the rules");
    let signed = Header {
        flags: flag::SIGNED,
        ..header
    };
    let mut message = read_answer(&signed, &pattern(1, 4096));
    message[16] |= flag::SIGNED as u8;
    world.server_sends(&message, 700).expect("within the rules");
    assert_eq!(world.client_gets(), (message, Some(5)));
    assert_eq!(world.peer.memory[&5], [0; 4096]);
}

#[test]
fn descriptors_that_do_not_cover_the_data_are_refused_by_the_server() {
    let short = BufferDescriptor {
        offset: 0,
        token: 5,
        length: 4095,
    };
    let wraps = BufferDescriptor {
        offset: u64::MAX - 5,
        token: 5,
        length: 8192,
    };
    let good = BufferDescriptor {
        offset: 0,
        token: 5,
        length: 8192,
    };
    let requests = [
        read(header(command::READ, 1), 4096, 1, &[short]),
        read(header(command::READ, 2), 4096, 2, &[wraps]),
        read(header(command::READ, 3), 4096, 1, &[]),
        read(header(command::READ, 4), 4096, 3, &[good]),
        read(header(command::READ, 5), 4096, u32::MAX, &[good]),
        write(header(command::WRITE, 6), 8193, 1, &[good]),
        write(header(command::WRITE, 7), u32::MAX, 2, &[good; 31]),
        write(
            header(command::WRITE, 8),
            4095 * 2000 + 1,
            1,
            &[short; 2000],
        ),
        write(header(command::WRITE, 9), 4096, 1, &[good])[..120].to_vec(),
    ];
    for request in requests {
        let mut world = World::new();
        world.open(5, &[0; 8192], 8192);
        world.client_sends(&request, 300).expect("within the rules");
        assert!(world.peer.fetches.is_empty());
        let [forwarded] = &world.server_gets()[..] else {
            panic!("one request")
        };
        assert_eq!(
            (&forwarded[..64], &forwarded[64..66]),
            (&request[..64], &[0, 0][..])
        );
        let refused = answer(&fixed(&request).0, 0xc000_000d, &ERROR);
        world.server_sends(&refused, 300).expect("within the rules");
        assert_eq!(world.client_gets().0, refused);
    }
}

/// As many descriptors as ChannelInfoLength has room for, each of a few bytes, the last ones for no data.
#[test]
fn a_request_may_have_4095_descriptors() {
    let length = 4095 * 32 + 7;
    let data = pattern(1, length);
    let mut world = World::new();
    let (from, to) = (
        world.open(5, &data, 33),
        world.open(6, &vec![0; length], 33),
    );
    let fill = |mut places: Vec<BufferDescriptor>| {
        places.resize(
            4095,
            BufferDescriptor {
                offset: 0,
                token: 7,
                length: 33,
            },
        );
        places
    };
    let (from, to) = (fill(from), fill(to));
    let asked = header(command::WRITE, 1);
    world
        .client_sends(&write(asked, length as u32, 1, &from), 8000)
        .expect("within the rules");
    world.complete_fetches();
    let [forwarded] = &world.server_gets()[..] else {
        panic!("one request")
    };
    assert!(forwarded[112..] == data);
    world
        .server_sends(&answer(&asked, 0, &[17; 17]), 1000)
        .expect("within the rules");
    world.client_gets();
    let asked = header(command::READ, 2);
    world
        .client_sends(&read(asked, length as u32, 1, &to), 8000)
        .expect("within the rules");
    world.server_gets();
    world
        .server_sends(&read_answer(&asked, &data), 1000)
        .expect("within the rules");
    assert!(world.peer.memory[&6] == data);
}

#[test]
fn the_descriptors_of_unanswered_requests_are_limited() {
    let mut world = World::new();
    let one = BufferDescriptor {
        offset: 0,
        token: 5,
        length: 1,
    };
    let most = smb::limits::DESCRIPTORS_MAX / 4095;
    let ask = |world: &mut World, id: usize| {
        world.client_sends(
            &read(header(command::READ, id as u64), 4095, 1, &[one; 4095]),
            8000,
        )
    };
    (0..most).for_each(|id| ask(&mut world, id).expect("within the limit"));
    // An answer frees its request's descriptors.
    let end = answer(&header(command::READ, 3), END_OF_FILE, &ERROR);
    world.server_sends(&end, 1000).expect("within the rules");
    ask(&mut world, most).expect("within the limit");
    assert!(matches!(
        ask(&mut world, most + 1),
        Err(Ended::TooManyDescriptors(_))
    ));
}

#[test]
fn a_message_id_is_used_once() {
    let mut world = World::new();
    let places = world.open(5, &[0; 4096], 4096);
    let request = read(header(command::READ, 7), 4096, 2, &places);
    world
        .client_sends(&request, 1000)
        .expect("within the rules");
    assert!(matches!(
        world.client_sends(&request, 1000),
        Err(Ended::MessageId(7))
    ));
}

#[test]
fn a_server_cannot_write_beyond_a_read() {
    let mut world = World::new();
    let places = world.open(5, &[0; 8192], 8192);
    let header = header(command::READ, 7);
    world
        .client_sends(&read(header, 4096, 2, &places), 1000)
        .expect("within the rules");
    let sent = world.server_sends(&read_answer(&header, &pattern(1, 4097)), 1000);
    assert!(matches!(
        sent,
        Err(Ended::Answer {
            message_id: 7,
            length: 4097,
            limit: 4096
        })
    ));
}

#[test]
fn messages_of_compounds_are_rewritten_one_by_one() {
    let mut world = World::new();
    let data = pattern(8, 1001);
    let from = world.open(5, &data, 500);
    let to = world.open(6, &[0; 4096], 1024);
    let headers = [
        header(5, 1),
        header(command::WRITE, 2),
        header(command::READ, 3),
        header(6, 4),
    ];
    let signed = Header {
        flags: flag::SIGNED | flag::RELATED,
        ..headers[3]
    };
    let mut parts = [
        answer(&headers[0], 0, &[57; 60]),
        write(headers[1], 1001, 1, &from),
        read(headers[2], 4096, 2, &to),
        [&signed.to_bytes()[..], &[24; 24]].concat(),
    ];
    parts[0][16] = 0;
    world
        .client_sends(&compound(&parts), 333)
        .expect("within the rules");
    world.complete_fetches();
    let [forwarded] = &world.server_gets()[..] else {
        panic!("one compound")
    };
    let parts_sent = split(forwarded);
    assert_eq!(parts_sent.len(), 4);
    assert_eq!(parts_sent[0][24..124], parts[0][24..]);
    assert_eq!(parts_sent[1][112..1113], data);
    assert_eq!(
        parts_sent[3], parts[3],
        "a signed message of a compound keeps every byte"
    );
    let answers = [
        answer(&headers[0], 0, &[89; 88]),
        answer(&headers[1], 0, &[17; 16]),
        read_answer(&headers[2], &pattern(2, 4000)),
        answer(&headers[3], 0, &[60; 60]),
    ];
    world
        .server_sends(&compound(&answers), 999)
        .expect("within the rules");
    let (answer, invalidate) = world.client_gets();
    let got = split(&answer);
    assert_eq!((got.len(), invalidate, got[2].len()), (4, Some(6), 80));
    assert_eq!(world.peer.memory[&6][..4000], pattern(2, 4000));
    assert_eq!(got[3], answers[3]);
}

#[test]
fn compounds_of_strangers_are_short() {
    let mut world = World::stranger();
    let parts = [
        answer(&header(5, 1), 0, &vec![0; 70_000]),
        answer(&header(6, 2), 0, &[0; 24]),
    ];
    assert!(matches!(
        world.client_sends(&compound(&parts), 8000),
        Err(Ended::Compound { limit: 65_536, .. })
    ));
    let mut world = World::new();
    world
        .client_sends(&compound(&parts), 8000)
        .expect("within the rules");
    assert_eq!(world.server_gets(), [compound(&parts)]);
}

/// READs and WRITEs with descriptors, alone and in a compound: the server refuses them, and no memory is
/// taken for them.
#[test]
fn strangers_get_no_memory_for_descriptors() {
    let mut world = World::stranger();
    let places = world.open(5, &[0; 8192], 100);
    let large = BufferDescriptor {
        offset: 0,
        token: 5,
        length: 8 << 20,
    };
    let requests = [
        write(header(command::WRITE, 1), 8 << 20, 1, &[large]),
        read(header(command::READ, 2), 8 << 20, 2, &[large]),
        write(header(command::WRITE, 3), 8192, 1, &places),
        read(header(command::READ, 4), 8192, 2, &places),
        write(header(command::WRITE, 5), 8 << 20, 1, &[large; 31]),
    ];
    let all = compound(&requests);
    for message in requests.iter().chain([&all]) {
        world.client_sends(message, 1000).expect("within the rules");
        assert!(world.peer.fetches.is_empty());
        let [forwarded] = &world.server_gets()[..] else {
            panic!("one message")
        };
        // A StructureSize of 0, which no server takes for a request.
        assert_eq!(forwarded[64..66], [0, 0]);
        assert!(forwarded.len() < 200 * requests.len());
    }
    // A session that was refused is none.
    let refused = answer(&header(command::SESSION_SETUP, 6), 0xc000_006d, &ERROR);
    world
        .server_sends(&refused, 1000)
        .expect("within the rules");
    assert_eq!(world.gateway.trust(), Trust::Stranger);
    world
        .client_sends(&requests[2], 1000)
        .expect("within the rules");
    assert!(world.peer.fetches.is_empty() && world.gateway.held() < 1000);
}

#[test]
fn guests_and_anonymous_users_are_told_from_users() {
    for (flags, trust) in [
        (0, Trust::User),
        (1, Trust::Guest),
        (2, Trust::Guest),
        (3, Trust::Guest),
        (4, Trust::User),
    ] {
        let mut world = World::stranger();
        world
            .server_sends(&session_setup(flags), 1000)
            .expect("within the rules");
        assert_eq!(world.gateway.trust(), trust, "SessionFlags {flags}");
        // A second session of the connection takes nothing away.
        world.client_gets();
        world
            .server_sends(&session_setup(1), 1000)
            .expect("within the rules");
        assert_eq!(world.gateway.trust(), trust);
    }
    let mut world = World::stranger();
    world
        .server_sends(&session_setup(0)[..70], 1000)
        .expect("within the rules");
    assert_eq!(
        world.gateway.trust(),
        Trust::Guest,
        "an answer that is cut short"
    );
}

fn compound(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut part = part.clone();
        if index + 1 < parts.len() {
            part.resize(part.len().next_multiple_of(8), 0);
            let next = part.len() as u32;
            part[20..24].copy_from_slice(&next.to_le_bytes());
        }
        all.extend(part);
    }
    all
}

fn split(message: &[u8]) -> Vec<Vec<u8>> {
    let elements = smb::relay::elements::split(message).expect("a compound");
    elements
        .iter()
        .map(|element| element.bytes.to_vec())
        .collect()
}
