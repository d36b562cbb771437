//! What clients that are gone have left to say: once, and what peers answer (DREQ) again and again until they
//! do, as often as connection management repeats anything. It allocates nothing: see [`super::serve`].

use super::will::Testament;
use link::udp::Socket;
use rnic::{Gid, Instant, Nanos};
use wire::cm::{CommId, Drep};

/// Clients whose peers have not all answered. When one more comes, who waits longest is given up.
const WAITING_MAX: usize = 64;
/// How long a peer may take to answer: 4.096 µs times 2 to the power of 20, as [`rnic::cm::CmConfig`] has it.
const RESPONSE: Nanos = Nanos(4_096 << 20);
/// How often an unanswered message is repeated.
const REPEATS: u8 = 15;

/// A client that is gone.
#[derive(Debug)]
struct Farewell {
    testament: Testament,
    slot: usize,
    records: u32,
    unanswered: u32,
    repeats_left: u8,
    next: Instant,
}

impl Farewell {
    fn repeat(&mut self, socket: &Socket, now: Instant) {
        self.repeats_left -= 1;
        self.next = now + RESPONSE;
        let numbers = 0..self.records;
        numbers.filter_map(|number| self.testament.read(number)).for_each(|words| words.say(socket));
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Farewells([Option<Farewell>; WAITING_MAX]);

impl Farewells {
    pub(super) const fn new() -> Self {
        Self([const { None }; WAITING_MAX])
    }

    /// Says what a client has left, and waits for the answers.
    pub(super) fn begin(&mut self, testament: Testament, slot: usize, socket: &Socket, now: Instant) {
        let (records, mut unanswered) = (testament.records(), 0);
        for number in 0..records {
            let Some(words) = testament.read(number) else { continue };
            words.say(socket);
            if words.is_answered() {
                unanswered += 1;
            } else {
                testament.strike(number);
            }
        }
        let farewell =
            Farewell { testament, slot, records, unanswered, repeats_left: REPEATS, next: now + RESPONSE };
        if unanswered > 0 {
            self.keep(farewell);
        }
    }

    fn keep(&mut self, farewell: Farewell) {
        let age = |place: &&mut Option<Farewell>| place.as_ref().map(|it| it.repeats_left);
        // `None` is the least of all.
        if let Some(place) = self.0.iter_mut().min_by_key(age) {
            *place = Some(farewell);
        }
    }

    /// When something is to be said again.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().flatten().map(|it| it.next).min()
    }

    /// Says again what was not answered, and gives up what was said often enough.
    pub(super) fn repeat(&mut self, socket: &Socket, now: Instant) {
        for place in &mut self.0 {
            match place {
                Some(farewell) if farewell.next > now => {}
                Some(farewell) if farewell.repeats_left > 0 => farewell.repeat(socket, now),
                _ => *place = None,
            }
        }
    }

    /// Takes the answer to something that was said for who had this slot. False: it is none.
    pub(super) fn answered(&mut self, slot: usize, peer: Gid, transaction: u64, drep: &Drep) -> bool {
        let number = transaction as u32;
        for place in &mut self.0 {
            let Some(farewell) = place.as_mut().filter(|it| it.slot == slot) else { continue };
            let is_its = |speaker: CommId, gid: Gid| speaker == drep.remote_comm_id && gid == peer;
            let words = farewell.testament.read(number);
            if words.is_some_and(|it| is_its(it.speaker(), Gid(it.route().destination.octets()))) {
                farewell.testament.strike(number);
                farewell.unanswered = farewell.unanswered.saturating_sub(1);
                if farewell.unanswered == 0 {
                    *place = None;
                }
                return true;
            }
        }
        false
    }
}
