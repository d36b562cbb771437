//! The rules of a process at work: what each of them has counted, and what it decides.

use crate::{Action, Limit, Occasion, Opcode, Point, Rule, Rules, SendFilter};
use core::time::Duration;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A rule at work.
#[derive(Clone, Debug)]
struct Active {
    number: u32,
    rule: Rule,
    seed: u64,
    /// Occasions that it has matched.
    matched: u64,
    /// Faults that it has caused.
    done: u64,
}

/// A fault that has to happen now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Number of the rule.
    pub rule: u32,
    /// The occasion's number among those that the rule has matched, from 1 on.
    pub occasion: u64,
    /// What the caller has to let happen.
    pub action: Action,
}

/// A rule, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Number of the rule, by which it is removed.
    pub number: u32,
    /// The rule itself, to print.
    pub rule: Rule,
    /// Occasions that it has matched.
    pub matched: u64,
    /// Faults that it has caused.
    pub done: u64,
}

/// What the rules of a plan could apply to: asked before anything is looked up about a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interest {
    /// Operations of send requests, at the call or when they complete, as [`Opcode::bit`]s.
    pub sends: u32,
    /// Whether receives could be meant.
    pub receives: bool,
    /// Whether polling could be meant, or completions could be late.
    pub polls: bool,
    /// Whether packets could be meant.
    pub packets: bool,
    /// Whether requesting a completion event could be meant.
    pub notifications: bool,
    /// Whether a rule has to know the peer's address.
    pub peer: bool,
}

/// A rule that applies at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timed {
    /// Number of the rule.
    pub rule: u32,
    /// When the rule applies, since the beginning of the program.
    pub time: Duration,
    /// The queue pair that it is for; all of the device where there is none.
    pub queue_pair: Option<u32>,
}

/// The rules of a process.
#[derive(Clone, Debug)]
pub struct Plan {
    process: String,
    seed: u64,
    active: Vec<Active>,
    /// Number of rules that there ever were.
    numbered: u32,
}

impl Plan {
    /// The plan of a process of this name. Rules for other processes keep their numbers, and never apply.
    pub fn new(rules: Rules, process: &str) -> Self {
        let mut plan = Self {
            process: process.to_owned(),
            seed: rules.seed,
            active: Vec::new(),
            numbered: 0,
        };
        for rule in rules.rules {
            plan.add(rule);
        }
        plan
    }

    /// Adds a rule; returns its number.
    pub fn add(&mut self, rule: Rule) -> u32 {
        self.numbered += 1;
        let seed = rule.seed().unwrap_or(self.seed);
        self.active.push(Active {
            number: self.numbered,
            // Rules with the same seed must not all apply to the same occasions.
            seed: seed ^ u64::from(self.numbered) << 32,
            rule,
            matched: 0,
            done: 0,
        });
        self.numbered
    }

    /// Removes a rule; false if there is none of this number.
    pub fn remove(&mut self, number: u32) -> bool {
        let before = self.active.len();
        self.active.retain(|one| one.number != number);
        self.active.len() < before
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.active.clear();
    }

    /// Whether there is a rule of this number.
    pub fn has(&self, number: u32) -> bool {
        self.active.iter().any(|one| one.number == number)
    }

    /// The rules in their order.
    pub fn list(&self) -> Vec<Status> {
        let status = |one: &Active| Status {
            number: one.number,
            rule: one.rule.clone(),
            matched: one.matched,
            done: one.done,
        };
        self.active.iter().map(status).collect()
    }

    /// The name of the process.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// What the rules could apply to.
    pub fn interest(&self) -> Interest {
        let mut interest = Interest::default();
        for rule in self.active.iter().map(|one| &one.rule) {
            if !rule.is_for(&self.process) {
                continue;
            }
            interest.peer |= rule.needs_peer();
            match (rule.point(), rule.action()) {
                (Point::Call("post_send"), _) => interest.sends |= rule.opcodes(),
                (Point::Call("post_recv" | "post_srq_recv"), _) => interest.receives = true,
                (Point::Call("poll_cq"), _) | (Point::Completion, Action::Late(_)) => {
                    interest.polls = true;
                }
                (Point::Call("req_notify_cq"), _) => interest.notifications = true,
                (Point::Completion, _) => {
                    interest.sends |= rule.opcodes() & !Opcode::Recv.bit();
                    interest.receives |= rule.opcodes() & Opcode::Recv.bit() != 0;
                }
                (Point::Packet, _) => interest.packets = true,
                (Point::Call(_) | Point::Cm | Point::Time | Point::Limit, _) => {}
            }
        }
        interest
    }

    /// What each rule that is about send requests needs of one.
    pub fn send_filters(&self) -> Vec<SendFilter> {
        let rules = self.active.iter().map(|one| &one.rule);
        let of_sends = rules.filter(|rule| {
            let is_of_sends = match (rule.point(), rule.action()) {
                (Point::Call(name), _) => name == "post_send",
                (Point::Completion, action) => !matches!(action, Action::Late(_)),
                _ => false,
            };
            is_of_sends && rule.is_for(&self.process)
        });
        of_sends.map(Rule::send_filter).collect()
    }

    /// Rules that apply at a time or to a device, for this process.
    fn own(&self, point: Point) -> impl Iterator<Item = &Active> {
        self.active
            .iter()
            .filter(move |one| one.rule.point() == point && one.rule.is_for(&self.process))
    }

    /// Numbers of the rules that apply at a time on a device, with their times and queue pairs.
    pub fn timed(&self, device: &str) -> Vec<Timed> {
        let timed = |one: &Active| Timed {
            rule: one.number,
            time: one.rule.time(),
            queue_pair: one.rule.queue_pair(),
        };
        self.own(Point::Time)
            .filter(|one| one.rule.is_for_device(device))
            .map(timed)
            .collect()
    }

    /// Limits of a device. Later rules come later.
    pub fn limits(&self, device: &str) -> Vec<(Limit, u64)> {
        self.own(Point::Limit)
            .filter(|one| one.rule.is_for_device(device))
            .filter_map(|one| match one.rule.action() {
                Action::Limit(limit, value) => Some((limit, value)),
                _ => None,
            })
            .collect()
    }

    /// The fault of a rule of the form `at TIME`, when that time has come.
    pub fn decide_timed(&mut self, number: u32) -> Option<Decision> {
        let one = self.active.iter_mut().find(|one| one.number == number)?;
        one.matched += 1;
        one.done += 1;
        Some(Decision {
            rule: number,
            occasion: one.matched,
            action: one.rule.action(),
        })
    }

    /// The fault of an occasion, if a rule has one for it. The occasion counts for each rule that matches it
    /// and has an action that `wanted` accepts. An occasion meets one fault: that of the first rule. Other
    /// rules keep theirs for the next occasion.
    pub fn decide(
        &mut self,
        occasion: &Occasion<'_>,
        at: Duration,
        wanted: impl Fn(Action) -> bool,
    ) -> Option<Decision> {
        let mut decision = None;
        for one in &mut self.active {
            let rule = &one.rule;
            if !wanted(rule.action()) || !rule.matches(occasion) || !rule.is_for(&self.process) {
                continue;
            }
            one.matched += 1;
            let random = SplitMix64::seed_from_u64(one.seed.wrapping_add(one.matched)).next_u64();
            if decision.is_none() && rule.is_due(one.matched, one.done, at, random) {
                one.done += 1;
                decision = Some(Decision {
                    rule: one.number,
                    occasion: one.matched,
                    action: rule.action(),
                });
            }
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rules: &str) -> Plan {
        Plan::new(rules.parse().unwrap(), "program")
    }

    fn send(opcode: Opcode) -> Occasion<'static> {
        Occasion {
            opcode: Some(opcode),
            kind: Some(crate::QpKind::Rc),
            ..Occasion::at(Point::Call("post_send"))
        }
    }

    /// Numbers of the occasions with a fault, of so many.
    fn faults(plan: &mut Plan, count: u64) -> Vec<u64> {
        let occasion = send(Opcode::Send);
        let decide = |_| plan.decide(&occasion, Duration::ZERO, |_| true);
        (0..count)
            .filter_map(decide)
            .map(|one| one.occasion)
            .collect()
    }

    #[test]
    fn numbers_of_occasions_decide() {
        for (conditions, expected) in [
            ("nth 3", &[3][..]),
            ("after 7", &[8, 9]),
            ("after 2 every 3", &[3, 6, 9]),
            ("every 4 times 2", &[1, 5]),
            ("times 1", &[1]),
            ("process other", &[]),
            ("opcode rdma_read", &[]),
            ("from 1s", &[]),
        ] {
            let mut plan = plan(&format!("post_send: fail EIO {conditions}"));
            assert_eq!(faults(&mut plan, 9), expected, "{conditions}");
        }
    }

    #[test]
    fn a_seed_decides_the_same_each_time_and_another_seed_otherwise() {
        let with = |seed: &str| {
            faults(
                &mut plan(&format!("{seed}; post_send: fail EIO probability 10%")),
                1000,
            )
        };
        let (first, again, other) = (with("seed 7"), with("seed 7"), with("seed 8"));
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert!((70..130).contains(&first.len()), "{}", first.len());
    }

    #[test]
    fn the_first_rule_that_is_due_decides_and_all_count() {
        let mut plan =
            plan("post_send: fail EIO nth 2; post_send: fail EAGAIN nth 2; post_send: slow 1us");
        let occasion = send(Opcode::Send);
        let mut rule = || {
            plan.decide(&occasion, Duration::ZERO, |_| true)
                .map(|one| one.rule)
        };
        assert_eq!([rule(), rule(), rule()], [Some(3), Some(1), Some(3)]);
        let done: Vec<u64> = plan.list().iter().map(|one| one.done).collect();
        assert_eq!(done, [1, 0, 2]);
        assert!(plan.remove(1) && !plan.remove(1) && !plan.has(1) && plan.has(2));
        assert_eq!(plan.add("reg_mr: fail ENOMEM".parse().unwrap()), 4);
    }

    #[test]
    fn interest_names_what_rules_of_this_process_need() {
        let interest = plan("completion: status REM_ACCESS_ERR opcode rdma_read").interest();
        assert_eq!(interest.sends, Opcode::RdmaRead.bit());
        assert!(!interest.receives && !interest.polls);
        assert_eq!(
            plan("post_send: fail EIO process other").interest(),
            Interest::default()
        );
        assert_eq!(plan("reg_mr: fail ENOMEM").interest(), Interest::default());
        assert!(plan("completion: late 1ms").interest().polls);
        assert!(plan("completion: status LOC_LEN_ERR").interest().receives);
        assert!(plan("post_send: fail EIO peer 10.0.0.1").interest().peer);
    }

    #[test]
    fn filters_let_every_request_pass_that_a_rule_of_its_process_could_match() {
        let rules = "post_send: fail EIO qpn 7; completion: status REM_OP_ERR opcode rdma_write size 8..64; \
                     post_send: fail EIO process other; completion: late 1ms; reg_mr: fail ENOMEM";
        let filters = plan(rules).send_filters();
        assert_eq!(filters.len(), 2, "{filters:?}");
        let passes = |opcode, qpn, size| {
            let passing = filters.iter().filter(|one| one.passes(opcode, qpn, size));
            passing.count()
        };
        assert_eq!(passes(Opcode::Send, 7, 1), 1);
        assert_eq!(passes(Opcode::RdmaWrite, 7, 8), 2);
        assert_eq!(passes(Opcode::RdmaWrite, 8, 64), 1);
        assert_eq!(passes(Opcode::RdmaWrite, 8, 65), 0);
        assert_eq!(passes(Opcode::RdmaRead, 8, 8), 0);
    }
}
