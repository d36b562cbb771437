//! Runs an experiment; an observer sees its progress and may stop it.

use super::{Experiment, Paths};
use crate::world::{EndedRepetition, Results, ScenarioError, World};
use fabric::{Span, Time};

/// Events between two reports of progress, about: some 10 to 50 ms of a processor. Events are counted in
/// place of time, since a browser's WebAssembly has no clock.
const EVENTS_PER_PIECE: u64 = 1 << 16;

/// The first piece of virtual time, and the shortest.
const PIECE_PS_MIN: u64 = 50_000_000;

/// The progress of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// The virtual time that the run has reached.
    pub now: Time,
    /// Packets that crossed a link.
    pub hops: u64,
    /// The part that is done, from 0 to 1: by time where the file gives a duration, else by the packets that
    /// are to cross links.
    pub done: f64,
    /// Messages of collectives that were not acknowledged.
    pub messages_left: u64,
}

/// A run and its results.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// Results of the run.
    pub results: Results,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

impl Experiment {
    /// Runs it. `watch` is called with the progress many times a second; when it returns `false`, the run
    /// stops and the results so far are returned.
    ///
    /// # Errors
    /// When the scenario does not fit together, or has more samples than fit.
    pub fn run(&self, watch: &mut dyn FnMut(Progress) -> bool) -> Result<Ran, ScenarioError> {
        self.run_and_tell(watch, None)
    }

    /// The same; `tell` is called with the repetitions of collectives soon after they have ended, in the
    /// order of their ends.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_and_tell(
        &self,
        watch: &mut dyn FnMut(Progress) -> bool,
        mut tell: Option<&mut dyn FnMut(EndedRepetition)>,
    ) -> Result<Ran, ScenarioError> {
        let mut world = World::new(&self.scenario)?;
        if let Some(subnet) = &self.subnet {
            world.set_lanes(&subnet.setup);
        }
        for (number, switch) in (0..).zip(&self.network.switches) {
            switch
                .watchdog
                .into_iter()
                .for_each(|watchdog| world.set_watchdog_of(number, watchdog));
        }
        let expected = self.expected_hops();
        let mut piece = Span(PIECE_PS_MIN);
        let mut partial = false;
        // The length of pieces has no effect on the results.
        let mut before = 0;
        let mut told = Vec::new();
        let mut tell = |world: &World| {
            if let Some(tell) = &mut tell {
                let ended = world.ended_repetitions(&mut told);
                for one in ended {
                    tell(one);
                }
            }
        };
        while !world.run_until(world.now() + piece) {
            tell(&world);
            let events = world.events() - before;
            before += events;
            piece = if events < EVENTS_PER_PIECE / 2 {
                piece.times(2)
            } else {
                piece
            };
            if events > EVENTS_PER_PIECE * 2 {
                piece = Span((piece.0 / 2).max(PIECE_PS_MIN));
            }
            let (now, hops) = (world.now(), world.hops());
            let by_time = (self.scenario.end != Time::NEVER)
                .then(|| now.0 as f64 / self.scenario.end.0.max(1) as f64);
            let done = by_time.unwrap_or(hops as f64 / expected as f64).min(1.0);
            let messages_left = world.messages_left();
            let progress = Progress {
                now,
                hops,
                done,
                messages_left,
            };
            if !watch(progress) {
                partial = true;
                break;
            }
        }
        tell(&world);
        if let Some(error) = world.sampling_error() {
            return Err(error);
        }
        Ok(Ran {
            results: world.results(),
            partial,
        })
    }

    /// Packets that are to cross links if none is sent twice, acknowledgements included.
    fn expected_hops(&self) -> u64 {
        let mut paths = Paths::new(self);
        let mut sum = 0_u64;
        for flow in &self.scenario.flows {
            let host = &self.scenario.hosts[flow.from as usize];
            let links = paths
                .between(flow.from, flow.to)
                .map_or(2, |path| u64::from(path.links));
            let packets = u64::from(flow.message_bytes.div_ceil(host.mtu.bytes()))
                .saturating_mul(flow.messages);
            let answers = packets / u64::from(host.ack_interval.max(1));
            sum = sum.saturating_add(packets.saturating_add(answers).saturating_mul(links));
        }
        sum.max(1)
    }
}
