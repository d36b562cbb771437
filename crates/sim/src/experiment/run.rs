//! Running an experiment, with somebody who watches and may stop it.

use super::{Experiment, Paths};
use crate::world::{Results, ScenarioError, World};
use fabric::{Span, Time};
use std::time::{Duration, Instant};

/// How often the watcher is told.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// The first piece of virtual time; later ones are as long as fits between two tellings.
const PIECE_PS_MIN: u64 = 50_000_000;

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Virtual time.
    pub now: Time,
    /// Packets that crossed a link.
    pub hops: u64,
    /// The part that is done, from 0 to 1: by time where the file gives a duration, else by the packets that
    /// are to cross links.
    pub done: f64,
}

/// A run and its results.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// What came of it.
    pub results: Results,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

impl Experiment {
    /// Runs it. `watch` is told of the progress a few times a second; when it says `false`, the run stops and
    /// what has happened so far is returned.
    ///
    /// # Errors
    /// When the scenario does not fit together.
    pub fn run(&self, watch: &mut dyn FnMut(Progress) -> bool) -> Result<Ran, ScenarioError> {
        let mut world = World::new(&self.scenario)?;
        for (number, switch) in (0..).zip(&self.network.switches) {
            switch.watchdog.into_iter().for_each(|watchdog| world.set_watchdog_of(number, watchdog));
        }
        let expected = self.expected_hops();
        let mut piece = Span(PIECE_PS_MIN);
        let mut partial = false;
        // The clock decides how often is told, and nothing else: pieces are not seen in the results.
        let mut told = Instant::now();
        while !world.run_until(world.now() + piece) {
            let took = told.elapsed();
            piece = if took < TELL_EVERY / 2 { piece.times(2) } else { piece };
            if took > TELL_EVERY * 2 {
                piece = Span((piece.0 / 2).max(PIECE_PS_MIN));
            }
            told = Instant::now();
            let (now, hops) = (world.now(), world.hops());
            let by_time =
                (self.scenario.end != Time::NEVER).then(|| now.0 as f64 / self.scenario.end.0.max(1) as f64);
            let done = by_time.unwrap_or(hops as f64 / expected as f64).min(1.0);
            if !watch(Progress { now, hops, done }) {
                partial = true;
                break;
            }
        }
        Ok(Ran { results: world.results(), partial })
    }

    /// Packets that are to cross links if none is sent twice, acknowledgements included.
    fn expected_hops(&self) -> u64 {
        let mut paths = Paths::new(self);
        let mut sum = 0_u64;
        for flow in &self.scenario.flows {
            let host = &self.scenario.hosts[flow.from as usize];
            let links = paths.between(flow.from, flow.to).map_or(2, |path| u64::from(path.links));
            let packets =
                u64::from(flow.message_bytes.div_ceil(host.mtu.bytes())).saturating_mul(flow.messages);
            let answers = packets / u64::from(host.ack_interval.max(1));
            sum = sum.saturating_add(packets.saturating_add(answers).saturating_mul(links));
        }
        sum.max(1)
    }
}
