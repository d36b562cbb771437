//! Tests of a dial: how it forwards a client's requests and a server's answers.

use smb::close_reason::Ended;
use smb::relay::Session;
use smb::relay::dial::Dial;
use smb::relay::trees::Trees;
use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{
    Header, ReadRequest, ReadResponse, STATUS_PENDING, WriteRequest, command, flag,
};

use crate::world::*;

const TREE: u32 = 3;

struct World {
    dial: Dial,
    peer: Recorder,
    stream: Vec<u8>,
}

impl World {
    /// A session of this dialect, with a tree connection to a share of this type.
    fn new(dialect: u16, share_type: u8) -> Self {
        let mut world = Self::stranger(dialect, share_type);
        world
            .server_sends(&session_setup(0), 1000)
            .expect("within the rules");
        assert_eq!(world.client_gets().len(), 1);
        world
    }

    /// The same without a session.
    fn stranger(dialect: u16, share_type: u8) -> Self {
        let (dial, peer) = (Dial::new(Trees::default()), Recorder::default());
        let mut world = Self {
            dial,
            peer,
            stream: Vec::new(),
        };
        let negotiated = [&[65, 0, 1, 0][..], &dialect.to_le_bytes(), &[0; 58]].concat();
        world
            .server_sends(
                &answer(&header(command::NEGOTIATE, 0), 0, &negotiated),
                1000,
            )
            .expect("within the rules");
        let connected = answer(
            &on_tree(command::TREE_CONNECT, 1),
            0,
            &[16, 0, share_type, 0, 0, 0, 0, 0],
        );
        world
            .server_sends(&connected, 1000)
            .expect("within the rules");
        assert_eq!(world.client_gets().len(), 2);
        world
    }

    fn client_sends(&mut self, message: &[u8], size: usize) -> Result<(), Ended> {
        for mut bytes in framed(message).chunks(size) {
            while !bytes.is_empty() {
                self.dial.advance(&mut self.peer)?;
                let Some(place) = self.dial.tcp_place() else {
                    continue;
                };
                let count = place.len().min(bytes.len());
                place[..count].copy_from_slice(&bytes[..count]);
                self.dial.tcp_received(count, &mut self.peer)?;
                bytes = &bytes[count..];
            }
        }
        // A request that waits for memory gets it when no refusal is left.
        (0..4).try_for_each(|_| self.dial.advance(&mut self.peer))
    }

    fn server_gets(&mut self) -> Vec<u8> {
        self.peer.messages.pop_front().expect("a request").0
    }

    fn server_sends(&mut self, message: &[u8], size: usize) -> Result<(), Ended> {
        for fragment in fragments(message, size) {
            self.dial.fragment(fragment)?;
        }
        self.dial.advance(&mut self.peer)
    }

    fn client_gets(&mut self) -> Vec<Vec<u8>> {
        while let bytes = self.dial.to_tcp().next()
            && !bytes.is_empty()
        {
            let count = bytes.len();
            self.stream.extend_from_slice(bytes);
            self.dial.to_tcp().sent(count);
        }
        self.dial.advance(&mut self.peer).expect("within the rules");
        messages(&mut self.stream)
    }
}

fn on_tree(command: u16, message_id: u64) -> Header {
    Header {
        async_id: u64::from(TREE) << 32,
        ..header(command, message_id)
    }
}

fn descriptor(message: &[u8]) -> BufferDescriptor {
    BufferDescriptor::split(&message[112..])
        .expect("a descriptor")
        .0
}

#[test]
fn long_reads_have_a_descriptor_and_their_answers_the_data() {
    for (dialect, channel) in [(0x0300, 1), (0x0302, 2), (0x0311, 2)] {
        let mut world = World::new(dialect, 1);
        world.peer.refusals = 2;
        let header = on_tree(command::READ, 7);
        world
            .client_sends(&read(header, 8192, 0, &[]), 33)
            .expect("within the rules");
        let request = world.server_gets();
        let (fixed, _) = ReadRequest::split(&request[64..]).expect("within the rules");
        assert_eq!(
            (
                fixed.channel,
                fixed.channel_info_offset,
                fixed.channel_info_length
            ),
            (channel, 112, 16)
        );
        assert_eq!((descriptor(&request).length, request.len()), (8192, 128));
        let pending = answer(&header, STATUS_PENDING, &ERROR);
        world
            .server_sends(&pending, 1000)
            .expect("within the rules");
        let body = ReadResponse {
            structure_size: 17,
            data_offset: 80,
            data_remaining: 5000,
            ..Default::default()
        };
        world
            .server_sends(&answer(&header, 0, &body.to_bytes()), 30)
            .expect("within the rules");
        let got = world.client_gets();
        assert_eq!((got.len(), &got[0], got[1].len()), (2, &pending, 5080));
        let (inline, _) = ReadResponse::split(&got[1][64..]).expect("within the rules");
        assert_eq!(
            (
                inline.data_length,
                inline.data_remaining,
                inline.data_offset
            ),
            (5000, 0, 80)
        );
        assert!(
            world.peer.open.is_empty(),
            "the buffer is closed when its bytes were sent"
        );
    }
}

#[test]
fn long_writes_have_a_descriptor() {
    let mut world = World::new(0x0311, 1);
    let (header, data) = (on_tree(command::WRITE, 7), pattern(1, 100_000));
    world
        .client_sends(&inline_write(header, &data), 7777)
        .expect("within the rules");
    let request = world.server_gets();
    let (fixed, _) = WriteRequest::split(&request[64..]).expect("within the rules");
    assert_eq!(
        (fixed.length, fixed.remaining_bytes, fixed.channel),
        (0, 100_000, 2)
    );
    assert_eq!(
        (descriptor(&request).length, world.peer.open.len()),
        (100_000, 1)
    );
    let done = answer(&header, 0, &[17; 17]);
    world.server_sends(&done, 1000).expect("within the rules");
    assert_eq!(
        (world.client_gets(), world.peer.open.len()),
        (vec![done], 0)
    );
}

#[test]
fn everything_else_passes_byte_by_byte() {
    let data = pattern(1, 4096);
    let signed = Header {
        flags: flag::SIGNED,
        ..on_tree(command::WRITE, 3)
    };
    let other_tree = Header {
        async_id: 9 << 32,
        ..on_tree(command::WRITE, 4)
    };
    let with_next = Header {
        next_command: 64,
        ..on_tree(command::READ, 5)
    };
    let sealed = [&[0xfd, b'S', b'M', b'B'][..], &data].concat();
    let all = [
        read(on_tree(command::READ, 1), 4095, 0, &[]),
        inline_write(on_tree(command::WRITE, 2), &data[1..]),
        inline_write(signed, &data),
        inline_write(other_tree, &data),
        read(with_next, 8192, 0, &[]),
        sealed,
        inline_write(on_tree(command::WRITE, 6), &data)[..4000].to_vec(),
    ];
    for message in all {
        let mut world = World::new(0x0311, 1);
        world
            .client_sends(&message, 1000)
            .expect("within the rules");
        assert_eq!(world.server_gets(), message);
        assert!(world.peer.open.is_empty());
    }
    for (dialect, share_type) in [(0x0210, 1), (0x02ff, 1), (0x0311, 2), (0x0311, 3)] {
        let mut world = World::new(dialect, share_type);
        let message = inline_write(on_tree(command::WRITE, 6), &data);
        world
            .client_sends(&message, 1000)
            .expect("within the rules");
        assert_eq!(
            world.server_gets(),
            message,
            "{dialect:#x}, share type {share_type}"
        );
    }
}

/// Another connection may have the session: a client without one of its own gets no buffer.
#[test]
fn strangers_get_no_memory() {
    let data = pattern(1, 5000);
    let all = [
        inline_write(on_tree(command::WRITE, 6), &data),
        read(on_tree(command::READ, 7), 8192, 0, &[]),
    ];
    for message in all {
        let mut world = World::stranger(0x0311, 1);
        world
            .client_sends(&message, 1000)
            .expect("within the rules");
        assert_eq!(world.server_gets(), message);
        assert!(world.peer.open.is_empty());
    }
}

#[test]
fn a_server_may_answer_inline_or_with_an_error() {
    for status in [0, 0xc000_0011] {
        let mut world = World::new(0x0311, 1);
        let header = on_tree(command::READ, 7);
        world
            .client_sends(&read(header, 8192, 0, &[]), 1000)
            .expect("within the rules");
        world.server_gets();
        let message = match status {
            0 => read_answer(&header, &pattern(1, 300)),
            status => answer(&header, status, &ERROR),
        };
        world.server_sends(&message, 100).expect("within the rules");
        assert_eq!(
            (world.client_gets(), world.peer.open.len()),
            (vec![message], 0)
        );
    }
}

/// SEND with Invalidate is the last fragment of an answer: the window must not be given up before.
#[test]
fn buffers_stay_open_until_the_last_fragment_of_the_answer() {
    let header = on_tree(command::READ, 7);
    let error = answer(&header, 0xc000_0011, &[9; 200]);
    let body = ReadResponse {
        data_remaining: 5000,
        ..Default::default()
    };
    let placed = [&answer(&header, 0, &body.to_bytes())[..], &[0; 100]].concat();
    for message in [error, placed] {
        let mut world = World::new(0x0311, 1);
        world
            .client_sends(&read(header, 8192, 0, &[]), 1000)
            .expect("within the rules");
        world.server_gets();
        let all: Vec<_> = fragments(&message, 90).collect();
        let (last, before) = all.split_last().expect("fragments");
        for fragment in before {
            world.dial.fragment(*fragment).expect("within the rules");
            world.client_gets();
            assert_eq!(world.peer.open.len(), 1);
        }
        world.dial.fragment(*last).expect("within the rules");
        world.client_gets();
        assert!(world.peer.open.is_empty());
    }
}

#[test]
fn a_server_cannot_claim_more_than_was_asked_for() {
    let mut world = World::new(0x0311, 1);
    let header = on_tree(command::READ, 7);
    world
        .client_sends(&read(header, 8192, 0, &[]), 1000)
        .expect("within the rules");
    let body = ReadResponse {
        data_remaining: 8193,
        ..Default::default()
    };
    let sent = world.server_sends(&answer(&header, 0, &body.to_bytes()), 1000);
    assert!(matches!(
        sent,
        Err(Ended::Answer {
            length: 8193,
            limit: 8192,
            ..
        })
    ));
}
