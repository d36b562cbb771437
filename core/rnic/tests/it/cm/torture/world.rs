//! Hosts, network and programs in virtual time.

use super::Summary;
use super::network::{Dice, Faults, LIFETIME, damage};
use super::programs::{Act, Manners};
use super::story::{Side, Story};
use crate::cm::pair::*;
use rnic::cm::{
    CmConfig, CmEvent, Datagram, Ece, Listen, ListenAddress, ListenerId, Parting, Resolution,
};
use rnic::{Gid, Instant, Nanos};
use std::collections::BTreeMap;
use wire::Qpn;
use wire::cm::{CommId, SidrStatus};

/// Limit of connection attempts in a run.
const ATTEMPTS_MAX: u64 = 40;
/// Time in which they begin.
const RAGE: Nanos = Nanos(400_000_000);
/// Seed of a separate random generator for crashes.
const CRASHES: u64 = 0x6372_6173_6865_7321;
/// Time that a healed network may need to end everything: each message may be repeated for the whole time
/// again, and an MRA makes a peer wait once.
const CALM: Nanos = Nanos(20_000_000_000);

/// A scheduled event.
enum Happening {
    Arrive { at: usize, datagram: Box<Datagram> },
    Connect { by: usize },
    Resolve { by: usize },
    Act { by: usize, id: CommId, act: Act },
    Relisten { by: usize },
    Crash { by: usize },
}

/// The connection and side that a host's `CommId` belongs to.
type Role = (u64, Side);

pub(crate) struct World {
    dice: Dice,
    config: CmConfig,
    now: Instant,
    agenda: BTreeMap<(Instant, u64), Happening>,
    happened: u64,
    hosts: [Host; 2],
    listeners: [Vec<ListenerId>; 2],
    faults: Faults,
    manners: Manners,
    /// Whether no datagram is forged as a peer's: otherwise the model cannot be checked.
    honest: bool,
    /// Whether so few messages are lost that none is lost in all its repetitions.
    reliable: bool,
    /// Whether a host may delete a rejected request while the peer still repeats it.
    forgets: bool,
    stories: Vec<Story>,
    roles: [BTreeMap<CommId, Role>; 2],
    qpns: u32,
    summary: Summary,
}

const GIDS: [Gid; 2] = [ALICE, BOB];

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let faults = Faults::roll(&mut dice);
        let config = CmConfig {
            response_timeout: 12,
            service_timeout: 14,
            retries: *dice.pick(&[1, 7, 15]),
            connections_max: *dice.pick(&[4, 65_536, 65_536]),
            ..CmConfig::default()
        };
        let hosts =
            [0, 1].map(|index| Host::new(GIDS[index], config, dice.below(250) as u8 + index as u8));
        let manners = Manners::roll(&mut dice);
        let mut world = Self {
            config,
            now: Instant(1),
            agenda: BTreeMap::new(),
            happened: 0,
            hosts,
            listeners: [Vec::new(), Vec::new()],
            faults,
            manners,
            honest: faults.forge_as_peer == 0,
            reliable: faults.lose <= 20 && config.retries == 15 && config.connections_max > 100,
            forgets: faults.lose > 0 || config.connections_max < 100,
            stories: Vec::new(),
            roles: [BTreeMap::new(), BTreeMap::new()],
            qpns: 0x100,
            summary: Summary::default(),
            dice,
        };
        world.plan();
        // From a separate generator: runs without crashes are the same as before crashes were added.
        let mut fate = Dice::new(seed ^ CRASHES);
        if fate.percent(25) {
            let (by, after) = (fate.below(2) as usize, Nanos(fate.below(RAGE.0)));
            world.after(after, Happening::Crash { by });
        }
        world
    }

    fn plan(&mut self) {
        for by in [0, 1] {
            self.listen(by);
        }
        for _ in 0..self.dice.below(ATTEMPTS_MAX) + 1 {
            let by = self.dice.below(2) as usize;
            let resolve = self.dice.percent(20);
            let after = Nanos(self.dice.below(RAGE.0));
            self.after(
                after,
                if resolve {
                    Happening::Resolve { by }
                } else {
                    Happening::Connect { by }
                },
            );
        }
        if self.dice.percent(30) {
            let (by, after) = (self.dice.below(2) as usize, Nanos(self.dice.below(RAGE.0)));
            self.after(after, Happening::Relisten { by });
        }
    }

    fn after(&mut self, delay: Nanos, happening: Happening) {
        self.happened += 1;
        self.agenda
            .insert((self.now + delay, self.happened), happening);
    }

    fn listen(&mut self, by: usize) {
        let backlog = *self.dice.pick(&[1, 4, 64]);
        // Slow programs with a short backlog make peers give up.
        self.reliable &= u64::from(backlog) >= ATTEMPTS_MAX || self.manners.thinks == Nanos(0);
        for service in [SERVICE, DATAGRAMS] {
            let listen = Listen {
                service,
                address: ListenAddress::Any,
                backlog,
            };
            let id = self.hosts[by].cm.listen(listen).unwrap();
            self.listeners[by].push(id);
        }
    }

    pub(crate) fn run(mut self) -> Summary {
        self.go_on_until(self.now + RAGE);
        // The network heals, and programs exit one after the other.
        (self.faults, self.manners.dies) = (Faults::NONE, 0);
        let healed = self.now;
        self.go_on_until(healed + Nanos(CALM.0 / 2));
        if self.reliable && self.honest {
            self.stories
                .iter()
                .for_each(Story::must_have_come_to_something);
        }
        for by in [0, 1] {
            let ids: Vec<CommId> = self.roles[by].keys().copied().collect();
            for id in ids {
                self.act(by, id, Act::Release);
            }
        }
        self.go_on_until(healed + CALM);
        for host in &self.hosts {
            assert_eq!(host.cm.connections(), 0, "something is left");
            assert_eq!(host.cm.next_timeout(), None, "somebody waits for nothing");
            self.summary.digest ^= host.cm.counters().received.iter().sum::<u64>() << 32;
        }
        self.summary.digest ^= self.happened;
        self.summary.established = self
            .stories
            .iter()
            .filter(|story| story.established)
            .count() as u64;
        self.summary.failed = self.stories.len() as u64 - self.summary.established;
        self.summary
    }

    /// Handles the scheduled events until `end`.
    fn go_on_until(&mut self, end: Instant) {
        loop {
            let timers = self
                .hosts
                .iter()
                .filter_map(|host| host.cm.next_timeout())
                .min();
            let next = self.agenda.keys().next().map(|(at, _)| *at);
            let Some(at) = timers.into_iter().chain(next).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if next.is_some_and(|next| next <= self.now)
                && let Some((_, happening)) = self.agenda.pop_first()
            {
                self.happen(happening);
            } else {
                self.hosts
                    .iter_mut()
                    .for_each(|host| host.cm.handle_timeout(self.now));
            }
            self.settle();
        }
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { at, datagram } => self.hosts[at].receive(&datagram, self.now),
            Happening::Connect { by } => self.connect(by),
            Happening::Resolve { by } => {
                let resolve = resolve(GIDS[by], GIDS[1 - by]);
                self.hosts[by]
                    .cm
                    .resolve(&resolve, Ece::default(), self.now)
                    .ok();
            }
            Happening::Act { by, id, act } => self.act(by, id, act),
            Happening::Relisten { by } => self.relisten(by),
            Happening::Crash { by } => self.crash(by),
        }
    }

    fn connect(&mut self, by: usize) {
        self.qpns += 1;
        let story = self.stories.len() as u64;
        let mut connect = connect(GIDS[by], GIDS[1 - by], SERVICE, self.qpns);
        connect.packet_lifetime = LIFETIME;
        connect.private_data = private_data(GIDS[by], GIDS[1 - by], &story.to_be_bytes());
        // A full table is a defined error, and not part of the model.
        if let Ok(id) = self.hosts[by].cm.connect(&connect, self.now) {
            self.stories.push(Story::new());
            self.roles[by].insert(id, (story, Side::Active));
        }
    }

    fn relisten(&mut self, by: usize) {
        // Waiting requests are rejected: the model does not record by which side.
        for story in &mut self.stories {
            story.end(Side::Passive);
        }
        for id in std::mem::take(&mut self.listeners[by]) {
            self.hosts[by].cm.unlisten(id, self.now).unwrap();
        }
        self.hosts[by].drain();
        self.listen(by);
    }

    /// All programs of a host exit at once, in any state of their connections. Their queued messages are sent
    /// once; then other programs start without their state.
    fn crash(&mut self, by: usize) {
        self.hosts[by].drain();
        let died = std::mem::take(&mut self.roles[by]);
        let words: Vec<Datagram> = died
            .keys()
            .filter_map(|id| self.hosts[by].cm.message_at_death(*id))
            .collect();
        self.hosts[by] = Host::new(GIDS[by], self.config, 252 + by as u8);
        for (story, side) in died.into_values() {
            if let Some(story) = self.stories.get_mut(story as usize) {
                story.end(side);
            }
        }
        (self.reliable, self.forgets) = (false, true);
        self.summary.crashes += 1;
        words
            .into_iter()
            .for_each(|datagram| self.carry(1 - by, datagram));
        self.listeners[by].clear();
        self.listen(by);
    }

    /// Delivers the sent datagrams, and the events to programs.
    fn settle(&mut self) {
        for by in [0, 1] {
            self.hosts[by].drain();
        }
        for by in [0, 1] {
            while let Some(datagram) = self.hosts[by].sent.pop_front() {
                self.carry(1 - by, datagram);
            }
            while let Some(event) = self.hosts[by].events.pop_front() {
                self.hear(by, &event);
            }
        }
    }

    fn carry(&mut self, to: usize, datagram: Datagram) {
        if datagram.path.destination != GIDS[to] {
            return;
        }
        let copies = match (
            self.dice.percent(self.faults.lose),
            self.dice.percent(self.faults.double),
        ) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        self.summary.spoiled += u64::from(copies != 1);
        for _ in 0..copies {
            let delay = Nanos(self.dice.below(self.faults.delay.0 + 1));
            self.after(
                delay,
                Happening::Arrive {
                    at: to,
                    datagram: Box::new(datagram),
                },
            );
        }
        if self.dice.percent(self.faults.forge_elsewhere) {
            self.summary.spoiled += 1;
            let mut forged = damage(&mut self.dice, &datagram);
            if self.dice.percent(50) {
                forged = datagram;
            }
            forged.path.source = MALLORY;
            self.after(
                Nanos(0),
                Happening::Arrive {
                    at: to,
                    datagram: Box::new(forged),
                },
            );
        }
        if self.dice.percent(self.faults.forge_as_peer) {
            self.summary.spoiled += 1;
            let forged = damage(&mut self.dice, &datagram);
            self.after(
                Nanos(0),
                Happening::Arrive {
                    at: to,
                    datagram: Box::new(forged),
                },
            );
        }
    }

    fn hear(&mut self, by: usize, event: &CmEvent) {
        self.check_event(by, event);
        for (delay, act) in self.manners.react(&mut self.dice, event) {
            self.after(
                delay,
                Happening::Act {
                    by,
                    id: event.id(),
                    act,
                },
            );
        }
    }

    /// Checks an event against the model.
    fn check_event(&mut self, by: usize, event: &CmEvent) {
        if let CmEvent::Request {
            id, request, path, ..
        } = event
        {
            // A third host may send requests too; the model does not contain them.
            if path.destination == MALLORY || !self.honest {
                self.roles[by].insert(*id, (u64::MAX, Side::Passive));
                return;
            }
            let story = u64::from_be_bytes(request.private_data[36..44].try_into().unwrap());
            self.stories[story as usize].request(*id, self.forgets);
            self.roles[by].insert(*id, (story, Side::Passive));
            return;
        }
        if let CmEvent::SidrRequest { id, .. } = event {
            self.roles[by].insert(*id, (u64::MAX, Side::Passive));
            return;
        }
        self.summary.resolved += u64::from(matches!(event, CmEvent::Resolved { .. }));
        let Some(&(story, side)) = self.roles[by].get(&event.id()) else {
            return;
        };
        let Some(story) = self.stories.get_mut(story as usize).filter(|_| self.honest) else {
            return;
        };
        match event {
            CmEvent::Reply { reply, .. } => {
                assert_eq!(reply.private_data[..7], *b"welcome");
                story.reply();
            }
            CmEvent::Established { private_data, .. } => story.established(private_data.is_none()),
            CmEvent::Rejected { reject, .. } => story.rejected(side, reject.reason),
            CmEvent::Unreachable { .. } => {
                assert!(!self.reliable, "the peer is there: {story:?}");
                story.unreachable(side);
            }
            CmEvent::Disconnected {
                cause: Parting::Peer(_),
                ..
            } => story.parted_by_peer(side),
            CmEvent::Disconnected { cause, .. } => {
                let timed_out = *cause == Parting::TimedOut;
                assert!(
                    !(self.reliable && timed_out),
                    "the peer is there: {story:?}"
                );
                story.parted(side);
            }
            CmEvent::TimeWaitOver { .. } => story.time_wait_over(side),
            other => panic!("{other:?}"),
        }
    }

    /// Makes the call of a program, if its connection still allows it.
    fn act(&mut self, by: usize, id: CommId, act: Act) {
        let now = self.now;
        let role = self.roles[by].get(&id).copied();
        let story =
            role.and_then(|(story, side)| Some((self.stories.get_mut(story as usize)?, side)));
        // Only an end that is ready has sent data.
        if act == Act::Data && story.as_ref().is_some_and(|(story, _)| !story.readied) {
            return;
        }
        let cm = &mut self.hosts[by].cm;
        let done = match act {
            Act::Take => cm.take(id),
            Act::Delay => cm.delay(id, 13, now),
            Act::Accept => cm.accept(id, &accept(id.0 & 0xff_ffff), now),
            Act::Reject => cm.reject(id, &reject(), now),
            Act::Ready => cm.ready(id, [0; 224], now),
            Act::Data => cm.data_arrived(id, now),
            Act::Part => cm.disconnect(id, [0; 220], now),
            Act::Answer => cm.answer_resolution(id, &RESOLUTION, now),
            Act::Release => cm.release(id, now),
        };
        if let (Ok(()), Some((story, side))) = (done, story) {
            match act {
                Act::Accept => story.accepted = true,
                Act::Ready => story.readied = true,
                Act::Reject | Act::Part | Act::Release => story.end(side),
                Act::Take | Act::Delay | Act::Data | Act::Answer => {}
            }
        }
        self.hosts[by].drain();
    }
}

const RESOLUTION: Resolution = Resolution {
    status: SidrStatus::VALID,
    qpn: Qpn::new(7),
    qkey: 1,
    ece: Ece {
        vendor_id: 0,
        options: 0,
    },
    private_data: [0; 136],
};
