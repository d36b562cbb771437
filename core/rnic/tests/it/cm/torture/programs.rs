//! Reactions of programs to events: mostly the expected call, sooner or later, sometimes not.

use super::network::Dice;
use rnic::Nanos;
use rnic::cm::CmEvent;

/// A call that a program will make for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Take,
    Accept,
    Delay,
    Reject,
    Ready,
    Data,
    Part,
    Answer,
    Release,
}

/// Behaviour of programs in this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Longest time before a call.
    pub(crate) thinks: Nanos,
    /// Probability of a rejection in percent.
    pub(crate) rejects: u64,
    /// Probability of a release at any point in percent.
    pub(crate) dies: u64,
}

impl Manners {
    pub(crate) fn roll(dice: &mut Dice) -> Self {
        Self {
            thinks: Nanos(*dice.pick(&[0, 1_000_000, 50_000_000])),
            rejects: *dice.pick(&[0, 10, 50]),
            dies: *dice.pick(&[0, 5, 30]),
        }
    }

    /// The calls in reaction to an event, with their delays.
    pub(crate) fn react(&self, dice: &mut Dice, event: &CmEvent) -> Vec<(Nanos, Act)> {
        let mut at = Nanos(0);
        let mut plan = Vec::new();
        let mut then = |dice: &mut Dice, act| {
            at = Nanos(at.0 + dice.below(self.thinks.0 + 1));
            plan.push((at, act));
        };
        let dies = dice.percent(self.dies);
        match event {
            _ if dies => then(dice, Act::Release),
            CmEvent::Request { .. } => {
                then(dice, Act::Take);
                if dice.percent(10) {
                    then(dice, Act::Delay);
                }
                let no = dice.percent(self.rejects);
                then(dice, if no { Act::Reject } else { Act::Accept });
                match no {
                    true => then(dice, Act::Release),
                    false if dice.percent(30) => then(dice, Act::Data),
                    false => {}
                }
            }
            CmEvent::SidrRequest { .. } => {
                then(dice, Act::Take);
                if !dice.percent(self.rejects) {
                    then(dice, Act::Answer);
                }
                then(dice, Act::Release);
            }
            CmEvent::Reply { .. } => {
                if dice.percent(10) {
                    then(dice, Act::Delay);
                }
                let no = dice.percent(self.rejects / 2);
                then(dice, if no { Act::Reject } else { Act::Ready });
                then(dice, if no { Act::Release } else { Act::Part });
            }
            CmEvent::Established { .. } => {
                if dice.percent(30) {
                    then(dice, Act::Part);
                }
            }
            CmEvent::Disconnected { .. } => {
                then(dice, Act::Part);
                if dice.percent(50) {
                    then(dice, Act::Release);
                }
            }
            CmEvent::Rejected { .. }
            | CmEvent::Unreachable { .. }
            | CmEvent::Resolved { .. }
            | CmEvent::AddressRemoved { .. }
            | CmEvent::TimeWaitOver { .. } => then(dice, Act::Release),
        }
        plan
    }
}
