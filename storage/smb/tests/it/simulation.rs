//! Two connections, joined by an RDMA connection that neither loses nor reorders, while receives are posted
//! late and in any portion, with few credits and the smallest sizes: every message arrives, no side sends
//! without a posted receive at the other (the kernel's client has no RNR retries), and nothing stalls.

use std::collections::VecDeque;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use smb::direct::{Connection, Parameters, Transmit};

/// Seeds of a test run; `SMB_TEST_SEEDS` asks for more.
const SEEDS: u64 = 100_000;
/// Steps of a run: one that takes more has stalled.
const STEPS: usize = 20_000;

/// One end: the connection, the receives that are posted, and what its program sends and gets.
struct Side {
    connection: Connection,
    posted: u16,
    to_send: VecDeque<Vec<u8>>,
    /// The message that is being received, and its announced length.
    partial: (Vec<u8>, usize),
    received: Vec<Vec<u8>>,
}

impl Side {
    fn new(connection: Connection, messages: Vec<Vec<u8>>) -> Self {
        let to_send = messages.into();
        let mut side = Self {
            connection,
            posted: 0,
            to_send,
            partial: (Vec::new(), 0),
            received: Vec::new(),
        };
        side.post(u16::MAX);
        side
    }

    /// Posts at most `count` of the receives that the connection asks for.
    fn post(&mut self, count: u16) {
        let count = count.min(self.connection.receives_to_post());
        self.posted += count;
        self.connection.receives_posted(count);
    }

    fn submit(&mut self) {
        while self.connection.is_established()
            && let Some(message) = self.to_send.pop_front()
        {
            self.connection
                .send(&message, None)
                .expect("a message within the limits");
        }
    }

    fn deliver(&mut self, message: &[u8], now: Duration, seed: u64) {
        assert!(
            self.posted > 0,
            "seed {seed}: a message came and no receive was posted"
        );
        self.posted -= 1;
        let fragment = self.connection.receive(message, now);
        let fragment = fragment.unwrap_or_else(|closed| panic!("seed {seed}: {closed}"));
        let Some(fragment) = fragment else { return };
        if let Some(length) = fragment.begins {
            assert_eq!(
                self.partial,
                (Vec::new(), 0),
                "seed {seed}: a message begins within another"
            );
            self.partial.1 = length as usize;
        }
        self.partial.0.extend_from_slice(fragment.data);
        if fragment.remaining == 0 {
            let (message, length) = std::mem::take(&mut self.partial);
            assert_eq!(message.len(), length, "seed {seed}");
            self.received.push(message);
        }
    }
}

/// Between 1 and `most`, small numbers more often.
fn small(random: &mut ChaCha8Rng, most: u32) -> u32 {
    let limit = 1 + random.next_u32() % most;
    1 + random.next_u32() % limit
}

fn parameters(random: &mut ChaCha8Rng) -> Parameters {
    Parameters {
        credits: small(random, 12) as u16,
        send_size: 128 + 8 * (random.next_u32() % 20),
        receive_size: 128 + 8 * (random.next_u32() % 20),
        fragmented_size: 131_072,
        read_write_size: 4096,
    }
}

fn messages(random: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let message = |random: &mut ChaCha8Rng| {
        let mut bytes = vec![0; small(random, 3000) as usize];
        random.fill_bytes(&mut bytes);
        bytes
    };
    (0..random.next_u32() % 6)
        .map(|_| message(random))
        .collect()
}

fn run(seed: u64) {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut now = Duration::ZERO;
    let (mut ours, theirs) = (parameters(random), parameters(random));
    // An initiator refuses a listener that would send more than it receives.
    ours.receive_size = ours.receive_size.max(theirs.send_size);
    let sent = [messages(random), messages(random)];
    let mut sides = [
        Side::new(Connection::initiator(ours, now), sent[0].clone()),
        Side::new(Connection::listener(theirs, now), sent[1].clone()),
    ];
    let mut links: [VecDeque<Vec<u8>>; 2] = Default::default();
    for _ in 0..STEPS {
        let done = |side: &Side, messages: &[Vec<u8>]| side.received.len() == messages.len();
        if done(&sides[0], &sent[1]) && done(&sides[1], &sent[0]) {
            assert_eq!(
                (&sides[0].received, &sides[1].received),
                (&sent[1], &sent[0]),
                "seed {seed}"
            );
            return;
        }
        let side = (random.next_u32() % 2) as usize;
        match random.next_u32() % 8 {
            0 => sides[side].post(1 + (random.next_u32() % 3) as u16),
            1..=3 => {
                sides[side].submit();
                let mut buffer = [0; 512];
                if let Some(Transmit { length, .. }) =
                    sides[side].connection.poll_transmit(&mut buffer, now)
                {
                    links[1 - side].push_back(buffer[..length].to_vec());
                }
            }
            4..=6 => {
                if let Some(message) = links[side].pop_front() {
                    sides[side].deliver(&message, now, seed);
                }
            }
            _ => {
                // Time passes up to the next deadline, but not to those of silent peers: no peer is.
                let next = sides
                    .iter()
                    .filter_map(|side| side.connection.deadline())
                    .min();
                let timeout = now + Duration::from_secs(1);
                if let Some(deadline) = next.filter(|deadline| *deadline < timeout) {
                    now = now.max(deadline);
                }
            }
        }
    }
    let missing = [
        sent[1].len() - sides[0].received.len(),
        sent[0].len() - sides[1].received.len(),
    ];
    panic!(
        "seed {seed}: stalled, {missing:?} messages are missing: {:#?}",
        sides.map(|it| it.connection)
    );
}

#[test]
fn every_message_arrives_and_nothing_stalls() {
    let seeds = std::env::var("SMB_TEST_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SEEDS);
    (0..seeds).for_each(run);
}

/// Both sides are silent: the one asks for a message after 120 s and the other answers, for an hour.
#[test]
fn keepalive_holds_an_idle_connection() {
    let mut now = Duration::ZERO;
    let parameters = Parameters {
        credits: 8,
        ..Parameters::default()
    };
    let mut sides = [
        Side::new(Connection::initiator(parameters, now), Vec::new()),
        Side::new(Connection::listener(parameters, now), Vec::new()),
    ];
    let mut messages = 0;
    while now < Duration::from_secs(3600) {
        loop {
            let before = messages;
            for side in 0..2 {
                let mut buffer = [0; 2048];
                while let Some(sent) = sides[side].connection.poll_transmit(&mut buffer, now) {
                    messages += 1;
                    sides[1 - side].deliver(&buffer[..sent.length], now, 0);
                    sides[1 - side].post(u16::MAX);
                }
            }
            if messages == before {
                break;
            }
        }
        let deadlines = sides.iter().filter_map(|side| side.connection.deadline());
        now = deadlines.min().expect("an idle timer runs").max(now);
        for side in &mut sides {
            side.connection
                .handle_timeout(now)
                .expect("both sides answer");
        }
    }
    assert!(
        (30..200).contains(&messages),
        "{messages} messages in an hour"
    );
}
