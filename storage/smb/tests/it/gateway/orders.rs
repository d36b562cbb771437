//! Requests and answers in random orders: no memory is touched after its answer.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use smb::relay::Session;
use wire::smb::message::{Header, STATUS_PENDING, WriteRequest, command, flag};

use super::{END_OF_FILE, World, fixed};
use crate::world::*;

/// A request of the random run.
struct Asked {
    header: Header,
    data: Vec<u8>,
    key: u32,
    invalidates: bool,
    is_pending: bool,
}

/// Sends a random READ or WRITE with descriptors, or one that is signed and has to pass as it is.
fn ask(world: &mut World, rng: &mut ChaCha8Rng, id: u64, asked: &mut BTreeMap<u64, Asked>) {
    // One of sixteen has several parts.
    let longest = if rng.next_u32().is_multiple_of(16) {
        400_000
    } else {
        20_000
    };
    let length = 1 + rng.next_u32() as usize % longest;
    let (key, channel) = (id as u32 + 1, 1 + rng.next_u32() % 2);
    let data = pattern(id, length);
    let is_write = rng.next_u32().is_multiple_of(2);
    let size = 40 + rng.next_u32() as usize % 2000;
    let content = if is_write {
        data.clone()
    } else {
        vec![0; length]
    };
    let places = world.open(
        key,
        &content,
        1 + length / (1 + rng.next_u32() as usize % 31),
    );
    let mut header = header(
        if is_write {
            command::WRITE
        } else {
            command::READ
        },
        id,
    );
    if rng.next_u32().is_multiple_of(5) {
        header.flags = flag::SIGNED;
        world.peer.memory.remove(&key);
    }
    let message = match is_write {
        true => write(header, length as u32, channel, &places),
        false => read(header, length as u32, channel, &places),
    };
    world
        .client_sends(&message, size)
        .expect("within the rules");
    if !header.is_signed() {
        let invalidates = channel == 2;
        asked.insert(
            id,
            Asked {
                header,
                data,
                key,
                invalidates,
                is_pending: false,
            },
        );
    }
}

/// Answers a request that the server has: finally, by an error, or by an interim answer first.
fn respond(
    world: &mut World,
    rng: &mut ChaCha8Rng,
    asked: &mut BTreeMap<u64, Asked>,
    there: &mut Vec<u64>,
) {
    let index = rng.next_u32() as usize % there.len();
    let id = there[index];
    let Some(request) = asked.get_mut(&id) else {
        return;
    };
    let size = 1 + rng.next_u32() as usize % (5000 + request.data.len() / 4);
    if !request.is_pending && rng.next_u32().is_multiple_of(4) {
        request.is_pending = true;
        let interim = answer(&request.header, STATUS_PENDING, &ERROR);
        world
            .server_sends(&interim, size)
            .expect("within the rules");
        assert_eq!(world.client_gets(), (interim, None));
        return;
    }
    there.swap_remove(index);
    let Some(request) = asked.remove(&id) else {
        return;
    };
    let is_read = request.header.command == command::READ;
    let fails = rng.next_u32().is_multiple_of(4);
    let message = match (is_read, fails) {
        (_, true) => answer(&request.header, END_OF_FILE, &ERROR),
        (true, false) => read_answer(&request.header, &request.data),
        (false, false) => answer(&request.header, 0, &[17; 17]),
    };
    world.peer.refusals = rng.next_u32() % 3;
    world
        .server_sends(&message, size)
        .expect("within the rules");
    let (got, invalidate) = world.client_gets();
    assert_eq!(invalidate, request.invalidates.then_some(request.key));
    if is_read && !fails {
        assert_eq!(
            (got.len(), &world.peer.memory[&request.key]),
            (80, &request.data)
        );
    } else {
        assert_eq!(got, message);
    }
    // From now on nothing may access the memory: the recorder no longer has its key.
    world.peer.memory.remove(&request.key);
}

#[test]
fn memory_is_not_touched_after_its_answer_whatever_the_order() {
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut world, mut asked, mut there) = (World::new(), BTreeMap::new(), Vec::new());
        for id in 0..60 {
            world.peer.refusals = rng.next_u32() % 3;
            ask(&mut world, &mut rng, id, &mut asked);
            for _ in 0..rng.next_u32() % 4 {
                if !world.peer.fetches.is_empty() {
                    let index = rng.next_u32() as usize % world.peer.fetches.len();
                    let (operation, buffer) = world.peer.complete(index);
                    world.gateway.fetched(operation, buffer);
                }
                world
                    .gateway
                    .advance(&mut world.peer)
                    .expect("within the rules");
                take(&mut world, &asked, &mut there);
                if !there.is_empty() {
                    respond(&mut world, &mut rng, &mut asked, &mut there);
                }
            }
        }
        world.peer.refusals = 0;
        while !asked.is_empty() {
            world
                .gateway
                .advance(&mut world.peer)
                .expect("within the rules");
            world.complete_fetches();
            take(&mut world, &asked, &mut there);
            respond(&mut world, &mut rng, &mut asked, &mut there);
        }
    }
}

/// The server takes what has arrived, and checks it.
fn take(world: &mut World, asked: &BTreeMap<u64, Asked>, there: &mut Vec<u64>) {
    for message in world.server_gets() {
        let (header, body) = fixed(&message);
        let Some(request) = asked.get(&header.message_id) else {
            assert!(header.is_signed());
            continue;
        };
        if header.command == command::WRITE {
            assert_eq!(body[WriteRequest::SIZE..], request.data);
        }
        there.push(header.message_id);
    }
}
