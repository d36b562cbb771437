//! The same scenario run twice, over a network without faults and over a shared-memory channel: each
//! completion and each byte has to be the same, errors and what is flushed after them included.

use super::arena::Slot;
use super::channel::{CHANNEL, ShmChannel, senders_to};
use super::host::{Connection, TestHost, tend};
use super::network::LossyNetwork;
use super::{Between, Failure};
use rnic::{
    Completion, Config, CongestionConfig, Data, Instant, Mtu, Operation, Payload, QpType, SendFlags,
};
use rnic::{SendRequest, Sge};
use sim::random::RunRng;
use wire::{Psn, Qpn, Rkey, Tail};

/// Requests of a scenario at most: the depth of the send queue.
const REQUESTS_MAX: u64 = 32;
/// Virtual time after which a scenario is stuck.
const LONGEST_NS: u64 = 10_000_000_000;

/// A request, with its operation and its buffer.
#[derive(Clone, Debug)]
struct Request {
    operation: Operation,
    local: Slot,
    /// The local key is wrong.
    foreign: bool,
    flags: SendFlags,
}

#[derive(Clone, Debug)]
struct Story {
    mtu: Mtu,
    config: Config,
    seeds: [[u8; 32]; 2],
    requests: Vec<Request>,
    receives: Vec<Slot>,
}

/// The visible outcome: completions without their time, and memory, of both sides.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    completions: [Vec<Completion>; 2],
    memory: [Vec<u8>; 2],
}

/// Runs the scenario of a seed over the network and over a channel.
///
/// # Errors
/// [`Failure`] names the first difference.
pub fn compare(seed: u64) -> Result<u64, Failure> {
    let failed = |what: String| Failure {
        seed,
        between: Between::Both,
        what,
    };
    let set_up = |error: rnic::Error| failed(format!("set-up: {error}"));
    let story = Story::new(&mut RunRng::new(seed)).map_err(set_up)?;
    let tell = |between| {
        Stage::new(&story, between, seed)
            .map_err(set_up)?
            .play()
            .map_err(failed)
    };
    let (network, channel) = (tell(Between::Network)?, tell(Between::SharedMemory)?);
    for side in 0..2 {
        let [one, other] = [&network, &channel].map(|outcome| &outcome.completions[side]);
        if one != other {
            let at = one
                .iter()
                .zip(other)
                .take_while(|(one, other)| one == other)
                .count();
            let [one, other] = [one.get(at), other.get(at)];
            let requests = &story.requests;
            return Err(failed(format!(
                "side {side}, completion {at}: {one:?}, {other:?} of {requests:?}"
            )));
        }
        let differs = network.memory[side]
            .iter()
            .zip(&channel.memory[side])
            .position(|(one, other)| one != other);
        if let Some(at) = differs {
            return Err(failed(format!(
                "byte {at} of side {side} differs: {:#?}",
                story.requests
            )));
        }
    }
    Ok(network
        .completions
        .iter()
        .flatten()
        .filter(|done| done.status != rnic::Status::Success)
        .count() as u64)
}

impl Story {
    fn new(rng: &mut RunRng) -> Result<Self, rnic::Error> {
        let mtu = rng.pick(&[Mtu::B256, Mtu::B512, Mtu::B1024]);
        let longest = u64::from(mtu.bytes()) * 8;
        let (out_of_order, write_only) = (rng.per_mille(300), rng.per_mille(300));
        let config = Config {
            out_of_order,
            write_only,
            response_only: !write_only,
            congestion: CongestionConfig::Off,
            ..Config::default()
        };
        let seeds = [rng.seed(), rng.seed()];
        let mut story = Self {
            mtu,
            config,
            seeds,
            requests: Vec::new(),
            receives: Vec::new(),
        };
        // Keys depend on the seeds alone, so those of a trial serve both tellings.
        let mut hosts = story.hosts()?;
        let counter = hosts[1].allot(8);
        for _ in 0..1 + rng.below(REQUESTS_MAX) {
            let length = rng.below(longest);
            story.add_request(&mut hosts, rng, length, counter);
        }
        story.set_keys(hosts[1].keys.rkey, rng);
        Ok(story)
    }

    /// Adds a request of this length, and the receive that it takes. Its key is not known yet.
    fn add_request(
        &mut self,
        hosts: &mut [TestHost; 2],
        rng: &mut RunRng,
        length: u64,
        counter: Slot,
    ) {
        let mut allot = |side: usize, length: u64| hosts[side].allot(length.max(8) as usize);
        let (mut local, remote) = (allot(0, length), allot(1, length));
        local.length = length as usize;
        let rkey = Rkey(0);
        let immediate = rng
            .per_mille(300)
            .then(|| (rng.next_u64() as u32).to_be_bytes());
        let address = remote.address();
        let operation = match rng.below(5) {
            0 => Operation::Write {
                address,
                rkey,
                immediate,
            },
            1 => Operation::Read { address, rkey },
            2 => {
                local.length = 8;
                Operation::FetchAdd {
                    address: counter.address(),
                    rkey,
                    add: rng.next_u64(),
                }
            }
            _ => Operation::Send(immediate.map_or(Tail::None, Tail::Immediate)),
        };
        if matches!(operation, Operation::Send(_)) || immediate.is_some() {
            // Once in a while too short.
            let room = if rng.per_mille(40) {
                rng.below(length + 1)
            } else {
                length
            };
            self.receives.push(Slot {
                length: room as usize,
                ..allot(1, room)
            });
        }
        let flag = |rng: &mut RunRng, flag| {
            if rng.per_mille(500) {
                flag
            } else {
                SendFlags::empty()
            }
        };
        let flags = flag(rng, SendFlags::SIGNALED) | flag(rng, SendFlags::FENCE);
        self.requests.push(Request {
            operation,
            local,
            foreign: rng.per_mille(15),
            flags,
        });
    }

    /// Gives requests the peer's key; a few get a key, or a place, without access rights.
    fn set_keys(&mut self, key: Rkey, rng: &mut RunRng) {
        for request in &mut self.requests {
            match &mut request.operation {
                Operation::Write { address, rkey, .. } | Operation::Read { address, rkey } => {
                    *rkey = key;
                    match rng.below(60) {
                        0 => rkey.0 ^= 0x1_0000,
                        1 => *address += 1 << 40,
                        _ => {}
                    }
                }
                Operation::FetchAdd { rkey, .. } => *rkey = key,
                _ => {}
            }
        }
    }

    fn hosts(&self) -> Result<[TestHost; 2], rnic::Error> {
        let bytes = REQUESTS_MAX as usize * 3 * (self.mtu.bytes() as usize * 8 + 64) + 64;
        let host =
            |side: usize| TestHost::with_seed(self.config.clone(), side, bytes, self.seeds[side]);
        Ok([host(0)?, host(1)?])
    }
}

/// A run of a scenario: the hosts and what is between them.
struct Stage<'a> {
    story: &'a Story,
    hosts: [TestHost; 2],
    qpns: [Qpn; 2],
    network: LossyNetwork,
    /// Random choices in which both runs may differ: how full the channel is.
    rng: RunRng,
    now: Instant,
}

impl<'a> Stage<'a> {
    fn new(story: &'a Story, between: Between, seed: u64) -> Result<Self, rnic::Error> {
        let (mut hosts, mut rng) = (story.hosts()?, RunRng::new(seed ^ u64::MAX));
        let qpns = [
            hosts[0].create_qp(QpType::Rc)?,
            hosts[1].create_qp(QpType::Rc)?,
        ];
        let gids = [hosts[0].gid(), hosts[1].gid()];
        let psns = [Psn::new(0xff_fffa), Psn::new(7)];
        let how = Connection {
            mtu: story.mtu,
            timeout: 16,
            rd_atomic: 4,
            psns,
        };
        let mut network = LossyNetwork::default();
        for side in 0..2 {
            hosts[side].connect(
                QpType::Rc,
                qpns[side],
                (gids[1 - side], qpns[1 - side]),
                side,
                &how,
            )?;
            if between == Between::SharedMemory {
                hosts[side].device.shm().set_channel(qpns[side], CHANNEL)?;
            }
        }
        if between == Between::SharedMemory {
            network.channel = Some(ShmChannel::lasting(&mut rng));
        }
        Ok(Self {
            story,
            hosts,
            qpns,
            network,
            rng,
            now: Instant(0),
        })
    }

    fn play(mut self) -> Result<Outcome, String> {
        let whole = self.hosts[0].arena.length() as usize;
        self.hosts[0].arena.paint(
            Slot {
                offset: 0,
                length: whole,
            },
            5,
        );
        self.post().map_err(|error| format!("posting: {error}"))?;
        let mut completions = [Vec::new(), Vec::new()];
        loop {
            if let Some(channel) = &mut self.network.channel {
                tend(channel, &mut self.hosts, self.now);
            }
            self.deliver();
            for (side, completions) in completions.iter_mut().enumerate() {
                self.hosts[side].pump(1 - side, self.now, &mut self.network, &mut self.rng);
                let done = self.hosts[side].completions();
                completions.extend(done.into_iter().map(|done| Completion { at_ns: 0, ..done }));
            }
            let stalled = self.hosts.iter().any(|host| host.device.has_stalled());
            let timeouts = self
                .hosts
                .iter()
                .filter_map(|host| host.device.next_timeout());
            let soon = stalled.then_some(Instant(self.now.0 + 1000));
            let Some(next) = timeouts.chain(self.network.next()).chain(soon).min() else {
                break;
            };
            if next.0 > LONGEST_NS {
                return Err(format!("not done at {next:?}"));
            }
            self.now = self.now.max(next);
        }
        let all = |host: &TestHost| {
            let length = host.arena.length() as usize;
            host.arena.slice(Slot { offset: 0, length }).to_vec()
        };
        Ok(Outcome {
            completions,
            memory: self.hosts.each_ref().map(all),
        })
    }

    fn post(&mut self) -> Result<(), rnic::Error> {
        for (id, slot) in self.story.receives.iter().enumerate() {
            self.hosts[1].post_receive(self.qpns[1], id as u64, *slot, self.now)?;
        }
        for (id, request) in self.story.requests.iter().enumerate() {
            let mut sge: Sge = self.hosts[0].sge(request.local);
            if request.foreign {
                sge.address += 1 << 40;
            }
            let (id, operation, flags, data) = (id as u64, request.operation, request.flags, [sge]);
            let data = Data::Sges(&data);
            let wr = SendRequest {
                id,
                operation,
                flags,
                data,
                destination: None,
                xrc_srq: None,
            };
            self.hosts[0]
                .device
                .post_send(self.qpns[0], &wr, self.now)?;
        }
        Ok(())
    }

    fn deliver(&mut self) {
        for host in &mut self.hosts {
            host.device.handle_timeout(self.now);
        }
        while let Some((side, frame)) = self.network.take(self.now) {
            let Some((arrival, packet, payload)) = frame.open() else {
                continue;
            };
            let (now, payload) = (self.now, Payload::Bytes(payload));
            let TestHost { device, arena, .. } = &mut self.hosts[side];
            if frame.by_channel {
                device.shm().handle_packet(
                    now,
                    &arrival,
                    senders_to(side),
                    &packet,
                    payload,
                    arena,
                );
            } else {
                device.handle_packet(now, &arrival, &packet, payload, arena);
            }
        }
    }
}
