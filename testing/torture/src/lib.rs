//! Two devices, a faulty network, random work: every byte and every completion compared with a model.
//!
//! A run has two halves. In the first the network has faults, whose kind and rate come from the seed, and no
//! result may be wrong. In the second the network has none, and everything must complete in bounded virtual
//! time.

mod arena;
mod channel;
mod host;
mod network;
mod stream;
mod twin;

use channel::{CHANNEL, ShmChannel, senders_to};
use host::{Connection, TestHost};
use network::{Faults, LossyNetwork};
use rnic::{
    Completion, CompletionKind, Config, CongestionConfig, DcqcnConfig, Event, Instant, Mtu, QpType,
};
use sim::random::RunRng;
use stream::{Stream, Verdict};
use wire::Psn;

pub use twin::compare;

/// Virtual time that the work may take after the network has healed.
const LIVENESS_NS: u64 = 60_000_000_000;

/// Virtual time of the bad half at most.
const FAULTS_NS: u64 = 2_000_000_000;

/// The counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Requests that completed.
    pub completed: u64,
    /// Connections that used up their retries while the network was bad.
    pub dead: u64,
    /// Packets that arrived damaged.
    pub corrupted: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Requests placed or held ahead of their turn.
    pub out_of_order: u64,
    /// Requests that were executed when they were posted, as on memory that both hosts share.
    pub executed: u64,
    /// Virtual time at the end, in nanoseconds.
    pub time_ns: u64,
}

/// A run that went wrong. Its text ends with the command that shows it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed of the run that failed.
    pub seed: u64,
    /// The connection between its devices.
    pub between: Between,
    /// The error, as text.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            seed,
            between,
            what,
        } = self;
        let option = match between {
            Between::Network => "",
            Between::SharedMemory => "--shared-memory ",
            Between::Both => "--compare ",
        };
        let command = "cargo run --release -p rockery-torture --";
        write!(f, "seed {seed}: {what}\n{command} {option}--seed {seed}")
    }
}

/// The connection between the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// The network alone.
    Network,
    /// A shared-memory channel, which may end during the run: then the network.
    SharedMemory,
    /// First the one, then the other: [`compare`].
    Both,
}

/// Runs one seed.
///
/// # Errors
/// [`Failure`] names the guarantee that was broken.
pub fn run(seed: u64, between: Between) -> Result<Summary, Failure> {
    let failed = |what: String| Failure {
        seed,
        between,
        what,
    };
    let mut run = Run::new(seed, between).map_err(|error| failed(format!("set-up: {error}")))?;
    run.work().map_err(failed)?;
    Ok(run.summary())
}

struct Run {
    rng: RunRng,
    now: Instant,
    network: LossyNetwork,
    hosts: [TestHost; 2],
    streams: Vec<Stream>,
}

impl Run {
    fn new(seed: u64, between: Between) -> Result<Self, rnic::Error> {
        let mut rng = RunRng::new(seed);
        let mtu = rng.pick(&[Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B4096]);
        let config = config(&mut rng);
        let message_max = mtu.bytes() as usize * (1 + rng.below(6) as usize);
        let pairs = 1 + rng.below(3) as usize;
        let arena_bytes = pairs * 2 * 48 * (message_max + 256);
        let mut host = |side| {
            // Not from the rng, so that the seeds that are kept stay the runs that they were.
            let config = Config {
                response_only: seed >> side & 1 == 1,
                ..config.clone()
            };
            TestHost::new(config, side, arena_bytes, &mut rng)
        };
        let mut hosts = [host(0)?, host(1)?];
        let mut streams = Vec::new();
        for _ in 0..pairs {
            let kind = rng.pick(&[QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
            let qpns = [hosts[0].create_qp(kind)?, hosts[1].create_qp(kind)?];
            let near_wrap = Psn::new(0xff_fff0 + rng.below(16) as u32);
            let how = Connection {
                mtu,
                timeout: 8 + rng.below(3) as u8,
                rd_atomic: 1 + rng.below(8) as u8,
                psns: [near_wrap, Psn::new(rng.next_u64() as u32)],
            };
            let gids = [hosts[0].gid(), hosts[1].gid()];
            for side in 0..2 {
                hosts[side].connect(
                    kind,
                    qpns[side],
                    (gids[1 - side], qpns[1 - side]),
                    side,
                    &how,
                )?;
                if between == Between::SharedMemory && kind != QpType::Ud {
                    hosts[side].device.shm().set_channel(qpns[side], CHANNEL)?;
                }
            }
            let most = if kind == QpType::Ud {
                message_max.min(4096)
            } else {
                message_max
            };
            for from in 0..1 + rng.below(2) as usize {
                let requests = 1 + rng.below(40);
                streams.push(Stream::new(kind, from, qpns, most, requests, &mut hosts));
            }
        }
        let mut network = LossyNetwork::default();
        network.faults = faults(&mut rng);
        if between == Between::SharedMemory {
            let channel = ShmChannel::new(&mut rng);
            // A network cannot pass what was executed: its responder would miss the packets.
            let executes = seed % 4 == 2 && channel.lasts();
            streams
                .iter_mut()
                .for_each(|stream| stream.executes = executes);
            network.channel = Some(channel);
        }
        Ok(Self {
            rng,
            now: Instant(0),
            network,
            hosts,
            streams,
        })
    }

    fn work(&mut self) -> Verdict {
        self.run_until_done(FAULTS_NS)?;
        self.network.faults = Faults::default();
        if let Some(channel) = &mut self.network.channel {
            channel.heal();
        }
        let healed = self.now.0;
        if !self.run_until_done(LIVENESS_NS)? {
            let stuck: Vec<_> = self
                .streams
                .iter()
                .filter(|stream| !stream.is_done())
                .collect();
            return Err(format!(
                "not done {} ns after the network healed: {stuck:?}",
                self.now.0 - healed
            ));
        }
        self.check_channel()
    }

    /// On a shared-memory channel that stays open nothing is lost, so nothing is sent again except after RNR
    /// NAKs, which may be sent late while the channel is full, and after the NAK for a payload that could not
    /// be fetched.
    fn check_channel(&self) -> Verdict {
        let Some(channel) = self
            .network
            .channel
            .as_ref()
            .filter(|channel| channel.lasts())
        else {
            return Ok(());
        };
        for host in &self.hosts {
            let counters = host.device.port().counters();
            let gaps = counters.packet_seq_err + counters.implied_nak_seq_err;
            let may_repeat = channel.has_unfetched() || counters.rnr_nak_received > 0;
            let lost = counters.local_ack_timeout_err + if may_repeat { 0 } else { gaps };
            if lost > 0 {
                return Err(format!("something was lost on a channel: {counters:?}"));
            }
        }
        Ok(())
    }

    fn run_until_done(&mut self, limit_ns: u64) -> Result<bool, String> {
        let end = Instant(self.now.0 + limit_ns);
        let mut next_action = self.now;
        while !self.streams.iter().all(Stream::is_done) {
            let timeouts = self
                .hosts
                .iter()
                .filter_map(|host| host.device.next_timeout());
            let next = timeouts
                .chain(self.network.next())
                .chain([next_action])
                .min()
                .unwrap_or(next_action);
            self.now = self.now.max(next);
            if self.now > end {
                return Ok(false);
            }
            if self.now >= next_action {
                self.act()?;
                next_action = Instant(self.now.0 + 1 + self.rng.below(20_000));
            }
            if let Some(channel) = &mut self.network.channel {
                host::tend(channel, &mut self.hosts, self.now);
            }
            self.deliver();
            self.settle_sides()?;
        }
        Ok(true)
    }

    /// The applications do something.
    fn act(&mut self) -> Verdict {
        for stream in &mut self.streams {
            if self.rng.per_mille(500) {
                stream.post_receives(&mut self.hosts, &mut self.rng, self.now)?;
            }
            for _ in 0..self.rng.below(4) {
                stream.post(&mut self.hosts, &mut self.rng, self.now)?;
            }
        }
        Ok(())
    }

    fn deliver(&mut self) {
        for host in &mut self.hosts {
            host.device.handle_timeout(self.now);
        }
        while let Some((side, frame)) = self.network.take(self.now) {
            let open = self
                .network
                .channel
                .as_ref()
                .is_some_and(|channel| channel.is_open(side));
            if frame.by_channel && !open {
                continue;
            }
            let Some((arrival, packet, payload)) = frame.open() else {
                self.network.corrupted += 1;
                continue;
            };
            let TestHost { device, arena, .. } = &mut self.hosts[side];
            if let (true, Some(channel)) = (frame.by_channel, &mut self.network.channel) {
                let payload = channel.deliver(&packet, payload, &mut self.rng);
                device.shm().handle_packet(
                    self.now,
                    &arrival,
                    senders_to(side),
                    &packet,
                    payload,
                    arena,
                );
            } else {
                let payload = rnic::Payload::Bytes(payload);
                device.handle_packet(self.now, &arrival, &packet, payload, arena);
            }
        }
    }

    /// Takes the outputs of both devices, and checks them.
    fn settle_sides(&mut self) -> Verdict {
        for side in 0..2 {
            let events =
                self.hosts[side].pump(1 - side, self.now, &mut self.network, &mut self.rng);
            if let Some(event) = events
                .iter()
                .find(|event| !matches!(event, Event::CommunicationEstablished(_)))
            {
                return Err(format!("side {side} raised {event:?}"));
            }
            for done in self.hosts[side].completions() {
                self.check_completion(side, &done)?;
            }
        }
        Ok(())
    }

    fn check_completion(&mut self, side: usize, done: &Completion) -> Verdict {
        let receive = matches!(
            done.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate
        );
        let owner = self.streams.iter_mut().find(|stream| match receive {
            true => stream.receives_at(side, done.qpn),
            false => stream.sends_at(side, done.qpn),
        });
        let stream = owner.ok_or(format!("nobody waits for {done:?}"))?;
        if receive {
            return stream.check_receive(&self.hosts, done);
        }
        stream.check_send(&mut self.hosts, done)?;
        // A connection that gave up is over in both directions.
        if stream.dead {
            for other in self
                .streams
                .iter_mut()
                .filter(|other| other.receives_at(side, done.qpn))
            {
                other.peer_gave_up = true;
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        let counters = self
            .hosts
            .each_ref()
            .map(|host| *host.device.port().counters());
        Summary {
            completed: self.streams.iter().map(|stream| stream.completed).sum(),
            dead: self
                .streams
                .iter()
                .filter(|stream| stream.is_over())
                .count() as u64,
            corrupted: self.network.corrupted,
            retransmitted: counters
                .iter()
                .map(|counters| counters.retransmitted_packets)
                .sum(),
            out_of_order: counters
                .iter()
                .map(|counters| counters.placed_out_of_order)
                .sum(),
            executed: self.streams.iter().map(|stream| stream.executed).sum(),
            time_ns: self.now.0,
        }
    }
}

fn config(rng: &mut RunRng) -> Config {
    let congestion = match rng.below(3) {
        0 => CongestionConfig::Off,
        1 => CongestionConfig::Adaptive,
        _ => CongestionConfig::Dcqcn(DcqcnConfig::default()),
    };
    Config {
        out_of_order: rng.per_mille(500),
        write_only: rng.per_mille(300),
        reorder_window: rng.pick(&[4, 16, 64, 1024]),
        window_bytes: rng.pick(&[1, 4096, 1 << 16, 1 << 20]),
        congestion,
        ..Config::default()
    }
}

/// Some kinds of fault are off entirely in a run, others wild.
fn faults(rng: &mut RunRng) -> Faults {
    let mut part = |worst: u64| {
        if rng.per_mille(400) {
            0
        } else {
            rng.below(worst)
        }
    };
    Faults {
        drop: part(120),
        duplicate: part(200),
        corrupt: part(60),
        mark: part(300),
        late: part(600),
        late_ns_max: 1 + part(200_000),
    }
}
