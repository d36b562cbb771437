//! DCQCN against its published analysis: the fluid model of Zhu et al., "ECN or Delay: Lessons Learnt from
//! Analysis of DCQCN and TIMELY" (CoNEXT 2016, section 3), whose fixed point is unique: N flows share the
//! link, and the chance of a mark is where cuts and increases are as frequent as to cancel out.

use fabric::config::{Red, RedAt};
use fabric::topology::{LinkConfig, star};
use fabric::{Rate, Span, Spread, Time};
use rnic::{CongestionConfig, DcqcnConfig, Mtu, Nanos};
use sim::world::{Flow, HostConfig, Lossless, Results, Scenario, Watch, World, lossless_switches};

/// Capacity in bits per second, frames of MTU 1024 with all that is around them, and the marking thresholds
/// of the papers (SIGCOMM 2015, section 5.2).
const CAPACITY_BPS: f64 = 40e9;
const FRAME_BYTES: f64 = 1106.0;
const MIN_BYTES: f64 = 5_000.0;
const MAX_BYTES: f64 = 200_000.0;
const MAX_CHANCE: f64 = 0.01;

/// The parameters in packets and packets per second, for flows that share the link.
struct Model {
    rate: f64,
    additive: f64,
    /// Packets of a flow between two notifications at least, between two moves of alpha, and between two
    /// increases by the clock and by the byte counter.
    notify: f64,
    alpha: f64,
    timer: f64,
    bytes: f64,
    steps: i32,
}

impl Model {
    fn new(flows: u32, config: &DcqcnConfig) -> Self {
        let packets_per_s = |bps: f64| bps / 8.0 / FRAME_BYTES;
        let rate = packets_per_s(CAPACITY_BPS) / f64::from(flows);
        let packets = |ns: Nanos| ns.0 as f64 / 1e9 * rate;
        Self {
            rate,
            additive: packets_per_s(config.additive_bps as f64),
            notify: packets(config.cnp_interval_ns),
            alpha: packets(config.alpha_interval_ns),
            timer: packets(config.increase_interval_ns),
            bytes: config.increase_bytes as f64 / FRAME_BYTES,
            steps: i32::from(config.fast_recovery_steps),
        }
    }

    /// The fluid model's fixed point: its equation 11. A part of the rate by which cuts outweigh increases.
    fn fluid(&self, p: f64) -> f64 {
        let unmarked = |packets: f64| (1.0 - p).powf(packets);
        let (alpha, a) = (1.0 - unmarked(self.alpha), 1.0 - unmarked(self.notify));
        let (b, d) = (
            p / (1.0 / unmarked(self.bytes) - 1.0),
            p / (1.0 / unmarked(self.timer) - 1.0),
        );
        let steps = f64::from(self.steps);
        let (c, e) = (
            unmarked(steps * self.bytes) * b,
            unmarked(steps * self.timer) * d,
        );
        let tau = self.notify / self.rate;
        a * a * alpha / ((b + d) * (c + e)) - tau * tau * self.additive * self.rate
    }

    /// The same from cut to cut, where the fluid model has averages: a notification keeps others away for an
    /// interval, within which recovery goes on; and the rate that is not recovered before the next cut is
    /// lost.
    fn cycle(&self, p: f64) -> f64 {
        // The chance that no notification comes for so many packets after one.
        let quiet = |packets: f64| (1.0 - p).powf((packets - self.notify).max(0.0));
        let lasts = |count: i32| quiet(f64::from(count) * self.timer);
        let ends = |count: i32| lasts(count) - lasts(count + 1);
        let alpha = 1.0
            / (1.0
                + (1..500)
                    .map(|count| quiet(f64::from(count) * self.alpha))
                    .sum::<f64>());
        let lost = 1.0
            - (1..500)
                .map(|count| lasts(count) * 0.5_f64.powi(count))
                .sum::<f64>();
        // Each additive step raises the target, to which the rate then goes by halves.
        let reached = |count: i32| -> f64 {
            (self.steps..=count)
                .map(|step| 1.0 - 0.5_f64.powi(count - step + 1))
                .sum()
        };
        let gained: f64 = (self.steps..500)
            .map(|count| ends(count) * reached(count))
            .sum();
        alpha * self.rate / 2.0 * lost - self.additive * gained
    }
}

/// Where a function that grows is zero, by halving.
fn zero(excess: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1e-6, 0.3);
    assert!(excess(low) < 0.0 && excess(high) > 0.0, "it is between");
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if excess(middle) > 0.0 {
            high = middle
        } else {
            low = middle
        }
    }
    low
}

fn scenario(flows: u32, config: DcqcnConfig, end: Span) -> Scenario {
    let link = LinkConfig::new(Rate::from_gbps(40), Span::from_us(1));
    let topology = star(flows + 1, link).unwrap();
    let red = Red {
        min_bytes: MIN_BYTES as u32,
        max_bytes: MAX_BYTES as u32,
        probability: (MAX_CHANCE * 4_294_967_296.0) as u32,
        mark: true,
        drop: false,
        at: RedAt::Dequeue,
    };
    let common = Lossless {
        buffer_bytes: 12 << 20,
        red: Some(red),
        ..Lossless::default()
    };
    let congestion = CongestionConfig::Dcqcn(config);
    let host = HostConfig {
        mtu: Mtu::B1024,
        congestion,
        window_bytes: 1 << 30,
        ..HostConfig::new()
    };
    let stream = |from| Flow {
        messages: u64::MAX,
        depth: 2,
        ..Flow::write(from, 0, 1 << 20)
    };
    Scenario {
        switches: lossless_switches(&topology, &common),
        hosts: vec![host; topology.hosts() as usize],
        topology,
        spread: Spread::Hash,
        hash_seed: 0,
        reaction: None,
        cards: Vec::new(),
        traces: Vec::new(),
        flows: (1..=flows).map(stream).collect(),
        seed: 1,
        end: Time(0) + end,
        threads: 1,
        watch: Watch {
            sample_every: Some(Span::from_us(20)),
            ..Watch::default()
        },
        skip_steady: None,
        collectives: None,
    }
}

/// Packets and marks at the congested port, the mean queue, and each flow's bytes, between two moments.
fn settled(scenario: &Scenario, from: Time) -> (f64, f64, Vec<f64>) {
    let mut world = World::new(scenario).unwrap();
    world.run_until(from);
    let before = world.results();
    world.run();
    let after = world.results();
    let marks = |results: &Results| results.marks() as f64;
    let packets = |results: &Results| results.switches[0].ports[0].queues[3].sent_packets as f64;
    let chance = (marks(&after) - marks(&before)) / (packets(&after) - packets(&before));
    let queued = after
        .samples
        .iter()
        .filter(|one| one.link == 0 && one.direction == 1 && one.at > from);
    let queued: Vec<f64> = queued
        .map(|sample| f64::from(sample.queued_bytes))
        .collect();
    let bytes = after
        .flows
        .iter()
        .zip(&before.flows)
        .map(|(after, before)| (after.bytes - before.bytes) as f64);
    (
        chance,
        queued.iter().sum::<f64>() / queued.len() as f64,
        bytes.collect(),
    )
}

#[track_caller]
fn within(what: &str, ours: f64, theirs: f64, part: f64) {
    assert!(
        (ours / theirs - 1.0).abs() <= part,
        "{what}: {ours}, not {theirs} within {} %",
        part * 100.0
    );
}

/// Compares the steady state of so many flows with the model's chance of a mark.
fn settles(flows: u32, cnp_us: u64, model: fn(&Model, f64) -> f64) {
    let config = DcqcnConfig {
        cnp_interval_ns: Nanos::from_micros(cnp_us),
        ..DcqcnConfig::default()
    };
    let fixed = Model::new(flows, &config);
    let wanted = zero(|p| model(&fixed, p));
    let scenario = scenario(flows, config, Span::from_us(140_000));
    let (chance, queued, bytes) = settled(&scenario, Time::from_ns(40_000_000));
    println!("{flows} flows, {cnp_us} us: p {chance} and {wanted}, queue {queued}");
    within("chance of a mark", chance, wanted, 0.1);
    within(
        "queue",
        queued,
        MIN_BYTES + wanted / MAX_CHANCE * (MAX_BYTES - MIN_BYTES),
        0.12,
    );
    let sum: f64 = bytes.iter().sum();
    within(
        "line",
        sum * 8.0 / 0.1,
        CAPACITY_BPS * 1024.0 / FRAME_BYTES,
        0.01,
    );
    let fairness =
        sum * sum / (bytes.len() as f64 * bytes.iter().map(|one| one * one).sum::<f64>());
    assert!(fairness > 0.995, "Jain's index {fairness}: {bytes:?}");
}

/// Each mark notifies, as the fluid model has it: a microsecond is three packets of the line.
#[test]
fn marks_and_queue_are_where_the_fluid_model_has_them() {
    settles(2, 1, Model::fluid);
    settles(4, 1, Model::fluid);
}

/// With the 50 us between notifications that the papers have, it takes more marks than in the fluid model (a
/// third more), by as much as the cycles between two cuts predict.
#[test]
fn with_fewer_notifications_it_takes_more_marks() {
    settles(2, 50, Model::cycle);
    settles(4, 50, Model::cycle);
}

/// SIGCOMM 2015, section 5.2: a flow that comes later gets its share from the one that was there.
#[test]
fn a_flow_that_comes_later_gets_its_share() {
    let mut scenario = scenario(2, DcqcnConfig::default(), Span::from_us(80_000));
    scenario.flows[1].start = Time::from_ns(20_000_000);
    let (_, _, bytes) = settled(&scenario, Time::from_ns(40_000_000));
    let share = bytes[1] / (bytes[0] + bytes[1]);
    assert!((0.4..0.6).contains(&share), "{share} of the line");
}
