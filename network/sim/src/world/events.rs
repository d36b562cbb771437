//! The event queue: a wheel of short slots for the near future, a heap for the far one.
//!
//! # Order
//!
//! The events of a node come out in the order of (time, key), whatever the order in which they were put in
//! and however wide the slots are: so a run is the same on any number of threads. A key identifies one thing
//! that can happen, and distinguishes events of the same moment.
//!
//! No event of a node reaches another before the delay of a link has passed. Within a window of that length
//! each node can therefore be driven for itself, one after the other, while what belongs to it is in the
//! cache. Where links are too short for that, all nodes are driven together, as if they were one.

use super::event_key::EventKey;
use fabric::{PacketId, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time in picoseconds (64 bits), key (32), and packet (32): one number, which compares at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event(u128);

/// An event that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) at: Time,
    pub(crate) key: EventKey,
    /// The packet, if the event names one.
    pub(crate) packet: Option<PacketId>,
}

/// In place of a packet's number.
const NO_PACKET: u32 = u32::MAX;

impl Event {
    fn new(at: Time, key: EventKey, packet: u32) -> Self {
        Self(u128::from(at.0) << 64 | u128::from(key.bits()) << 32 | u128::from(packet))
    }

    fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn key(self) -> EventKey {
        EventKey::from_bits((self.0 >> 32) as u32)
    }

    fn packet(self) -> Option<PacketId> {
        let packet = self.0 as u32;
        (packet != NO_PACKET).then_some(PacketId(packet))
    }
}

/// Slots at most: with their events they fit into the second level cache.
const SLOTS_MAX: usize = 1 << 12;

/// So few sources of events need no wheel: one list, in a slot without end,
const FEW: usize = 12;
const FEW_SHIFT: u32 = 63;

/// unless it gets this long: much is under way on a long link.
const FEW_EVENTS_MAX: usize = 256;

/// With so few sources all nodes are in the cache, and are driven in the order of time: dividing windows by
/// node takes longer than it saves. A slot holds about six events. Fewer are sorted sooner, but going from
/// slot to slot takes longer (incast of 16: 944 M instructions with 1.5, 878 M with six, 916 M with fifty).
const SMALL: usize = 64;

/// Events that have been handled, and are still in the list.
const DONE_MAX: usize = 64;

/// From so many sources on, a slot is to hold at least [`EVENTS_PER_SLOT_MIN`].
const LARGE: usize = 2048;

/// Sorting so many takes less than going through slots, each of which is a cache line or two of its own, and
/// the longer reach keeps events out of the heap. Measured with 1,024 hosts: 14.0 s with 3 in a slot, 11.3 s
/// with 24; but with 17 hosts, where all slots are in the cache, it took a quarter longer.
const EVENTS_PER_SLOT_MIN: u32 = 24;

/// Events after which the fill of slots is measured.
const TUNE_AFTER: u32 = 4096;

/// Slots of a window in which nodes are driven one by one: their events are nearly in order.
const SLOTS_PER_WINDOW: u64 = 16;

/// Windows that are shorter than this take more time than they save: a node has few events in them.
const WINDOW_PS_MIN: u64 = 100_000;

/// The node of each event, and how long nodes can be driven by themselves.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// By the number of the lane: the node that receives from it and the one that sends into it.
    pub(crate) ends: Vec<[u32; 2]>,
    /// How many nodes there are.
    pub(crate) count: usize,
    /// The shortest delay between two of them.
    pub(crate) delay_ps: u64,
}

impl Nodes {
    #[inline]
    fn of(&self, event: Event) -> u32 {
        let key = event.key();
        self.ends[key.lane() as usize][usize::from(key.is_of_sender())]
    }
}

/// A window, divided by nodes.
#[derive(Debug)]
struct Division {
    nodes: Nodes,
    /// The events of the window by node, and the node of each before they were sorted.
    events: Vec<Event>,
    owners: Vec<u32>,
    /// The nodes that have any, in ascending order; those before `next` had their turn.
    waiting: Vec<u32>,
    next: usize,
    /// Where the events of the node whose turn it is begin.
    from: usize,
    /// Where the events of each node end; 0 for those that have none.
    ends: Vec<u32>,
}

impl Division {
    fn new(nodes: Nodes) -> Self {
        let ends = vec![0; nodes.count];
        let (events, owners, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            nodes,
            events,
            owners,
            waiting,
            next: 0,
            from: 0,
            ends,
        }
    }

    /// Takes the events of a window.
    fn divide(&mut self, window: &mut Vec<Event>) {
        self.waiting.clear();
        self.owners.clear();
        self.next = 0;
        self.owners
            .extend(window.iter().map(|event| self.nodes.of(*event)));
        for node in &self.owners {
            let count = &mut self.ends[*node as usize];
            if *count == 0 {
                self.waiting.push(*node);
            }
            *count += 1;
        }
        self.waiting.sort_unstable();
        let mut from = 0;
        for node in &self.waiting {
            let count = std::mem::replace(&mut self.ends[*node as usize], from);
            from += count;
        }
        self.events.resize(window.len(), Event(0));
        for (event, owner) in window.drain(..).zip(&self.owners) {
            let at = &mut self.ends[*owner as usize];
            self.events[*at as usize] = event;
            *at += 1;
        }
    }

    /// Whether an event is of the node whose turn it is.
    fn is_driven(&self, event: Event) -> bool {
        let driven = self.next.checked_sub(1).and_then(|at| self.waiting.get(at));
        driven.is_none_or(|node| *node == self.nodes.of(event))
    }

    /// The events of the next node; none if all had their turn.
    fn take(&mut self) -> &[Event] {
        let Some(node) = self.waiting.get(self.next) else {
            return &[];
        };
        let before = self.next.checked_sub(1).map(|last| self.waiting[last]);
        let from = before.map_or(0, |node| std::mem::take(&mut self.ends[node as usize]));
        let to = self.ends[*node as usize];
        self.next += 1;
        if self.next == self.waiting.len() {
            self.ends[*node as usize] = 0;
        }
        self.from = from as usize;
        &self.events[from as usize..to as usize]
    }
}

/// Moves the last event to its place among those before it, which are in order: from the end on, each later
/// event makes way by one place.
#[inline]
fn sink_last(events: &mut [Event]) {
    let mut before = events.iter_mut().rev();
    let Some(mut place) = before.next() else {
        return;
    };
    let event = *place;
    for earlier in before {
        if *earlier <= event {
            break;
        }
        *place = *earlier;
        place = earlier;
    }
    *place = event;
}

/// The queue of events.
#[derive(Debug)]
pub(crate) struct Events {
    /// The events of the node that is being driven, in order; `done` of them are done with.
    current: Vec<Event>,
    done: usize,
    /// Where the window ends that is being worked on: all before it is taken out of the slots, and new events
    /// before it are of the node that is being driven.
    limit: u64,
    /// Events behind it, unordered, by number of the slot since the start of time.
    slots: Vec<Vec<Event>>,
    /// Slots that have events: one bit each.
    occupied: Vec<u64>,
    shift: u32,
    far: BinaryHeap<Reverse<Event>>,
    division: Option<Division>,
    /// Events that are being taken out of slots.
    window: Vec<Event>,
    /// Events and windows that were taken since the width of slots was last thought about.
    taken: u32,
    turned: u32,
    /// As it was made.
    reach_ps: u64,
    sources: usize,
}

impl Events {
    /// `reach_ps` is how far ahead most events lie, `sources` how many things make events: a slot is to hold
    /// few. With `nodes` they are driven one by one, where that takes less time.
    pub(crate) fn new(reach_ps: u64, sources: usize, nodes: Option<Nodes>) -> Self {
        if sources <= FEW {
            return Self::with_slots(reach_ps, sources, 64, FEW_SHIFT);
        }
        if sources <= SMALL {
            let shift = (reach_ps / (sources as u64 / 2)).max(1).ilog2();
            let count = ((reach_ps >> shift) + 2).next_power_of_two().max(64) as usize;
            return Self::with_slots(reach_ps, sources, count, shift);
        }
        let least = WINDOW_PS_MIN.max(reach_ps / SLOTS_MAX as u64);
        match nodes.filter(|nodes| nodes.delay_ps >= least) {
            None => Self::with_wheel(reach_ps, sources),
            Some(nodes) => {
                let width = (nodes.delay_ps / SLOTS_PER_WINDOW).max(reach_ps / SLOTS_MAX as u64);
                let shift = width.ilog2();
                let count = ((reach_ps >> shift) + 2).next_power_of_two().max(64) as usize;
                let division = Some(Division::new(nodes));
                Self {
                    division,
                    ..Self::with_slots(reach_ps, sources, count, shift)
                }
            }
        }
    }

    fn with_wheel(reach_ps: u64, sources: usize) -> Self {
        let wanted = sources.next_power_of_two().clamp(256, SLOTS_MAX) as u64;
        let shift = (reach_ps / wanted)
            .max(1)
            .next_power_of_two()
            .trailing_zeros();
        let count = ((reach_ps >> shift) + 2).next_power_of_two().max(64) as usize;
        Self::with_slots(reach_ps, sources, count, shift)
    }

    fn with_slots(reach_ps: u64, sources: usize, count: usize, shift: u32) -> Self {
        Self {
            current: Vec::new(),
            done: 0,
            limit: 0,
            slots: vec![Vec::new(); count],
            occupied: vec![0; count / 64],
            shift,
            far: BinaryHeap::new(),
            division: None,
            window: Vec::new(),
            taken: 0,
            turned: 0,
            reach_ps,
            sources,
        }
    }

    /// Makes slots wider while they hold too few events. To be called now and then.
    pub(crate) fn tune(&mut self) {
        if self.division.is_some() || self.sources < LARGE || self.taken < TUNE_AFTER {
            return;
        }
        let (taken, turned) = (
            std::mem::take(&mut self.taken),
            std::mem::take(&mut self.turned),
        );
        if taken / turned.max(1) < EVENTS_PER_SLOT_MIN {
            self.set_shift(self.shift + 1);
        }
    }

    /// Sorts all that is in slots into slots of another width.
    fn set_shift(&mut self, shift: u32) {
        let all: Vec<Event> = self
            .slots
            .iter_mut()
            .flat_map(|slot| slot.drain(..))
            .collect();
        self.occupied.fill(0);
        self.shift = shift;
        all.into_iter().for_each(|event| self.schedule_event(event));
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Time, key: EventKey) {
        self.schedule_event(Event::new(at, key, NO_PACKET));
    }

    /// Adds an event of a packet.
    #[inline]
    pub(crate) fn push_packet(&mut self, at: Time, key: EventKey, id: PacketId) {
        self.schedule_event(Event::new(at, key, id.0));
    }

    #[inline(always)]
    fn schedule_event(&mut self, event: Event) {
        if event.at() < self.limit {
            self.insert(event)
        } else {
            self.put_later(event)
        }
    }

    /// Puts an event behind the window.
    fn put_later(&mut self, event: Event) {
        let slot = event.at() >> self.shift;
        if slot - (self.limit >> self.shift) < self.slots.len() as u64 {
            let index = slot as usize & (self.slots.len() - 1);
            self.slots[index].push(event);
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.put_far(event);
        }
    }

    #[cold]
    fn put_far(&mut self, event: Event) {
        self.far.push(Reverse(event));
    }

    /// Puts an event among those of the node that is being driven. Most belong near the end.
    fn insert(&mut self, event: Event) {
        if self.done >= DONE_MAX {
            self.forget_done();
        }
        debug_assert!(
            self.division
                .as_ref()
                .is_none_or(|division| division.is_driven(event)),
            "what a node does to another takes as long as the link between them"
        );
        self.current.push(event);
        sink_last(&mut self.current[self.done..]);
    }

    #[cold]
    fn forget_done(&mut self) {
        self.current.drain(..std::mem::take(&mut self.done));
    }

    /// Goes on to a node that has events before `end`, if there is one.
    pub(crate) fn turn(&mut self, end: Time) -> bool {
        loop {
            if self.done < self.current.len() {
                return true;
            }
            self.done = 0;
            self.current.clear();
            if let Some(division) = &mut self.division {
                self.current.extend_from_slice(division.take());
            }
            if self.current.is_empty() && !self.open(end.0) {
                return false;
            }
            if self.current.len() > 1 {
                self.current.sort_unstable();
            }
        }
    }

    /// The next event of this node.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Due> {
        let event = *self.current.get(self.done)?;
        self.done += 1;
        Some(Due {
            at: Time(event.at()),
            key: event.key(),
            packet: event.packet(),
        })
    }

    /// The event that is about so many events behind the next one, in this node's turn or a later one: its
    /// key, and the packet if it names one. None where nodes are not driven one by one.
    #[inline(always)]
    pub(crate) fn ahead(&self, distance: usize) -> Option<(EventKey, Option<PacketId>)> {
        let Some(division) = &self.division else {
            return None;
        };
        let event = division.events.get(division.from + self.done + distance)?;
        Some((event.key(), event.packet()))
    }

    /// The time of the next event. Not to be called while a window is being worked on.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let near = self.next_occupied().and_then(|slot| {
            let events = &self.slots[slot as usize & (self.slots.len() - 1)];
            events.iter().map(|event| event.at()).min()
        });
        let current = self.current.get(self.done).map(|event| event.at());
        let far = self.far.peek().map(|Reverse(event)| event.at());
        near.into_iter().chain(far).chain(current).min().map(Time)
    }

    /// Takes the next window that has events out of the slots, if it begins before `end`. It ends there at
    /// the latest.
    fn open(&mut self, end: u64) -> bool {
        if self.shift == FEW_SHIFT && self.slots[0].len() > FEW_EVENTS_MAX {
            let wheel = Self::with_wheel(self.reach_ps, self.sources);
            let all = std::mem::replace(&mut self.slots, wheel.slots);
            self.occupied = wheel.occupied;
            self.shift = wheel.shift;
            all.into_iter()
                .flatten()
                .for_each(|event| self.schedule_event(event));
        }
        let Some(division) = &self.division else {
            return self.open_slot(end);
        };
        let delay_ps = division.nodes.delay_ps;
        let Some(Time(start)) = self.next_at().filter(|at| at.0 < end) else {
            return false;
        };
        // From the first event on and not from the beginning of its slot: where threads drive parts, `end` is
        // one delay behind the first event of all, and would cut the window in two.
        self.take_out(start >> self.shift, start.saturating_add(delay_ps).min(end));
        self.taken += self.window.len() as u32;
        self.turned += 1;
        if let Some(division) = &mut self.division {
            division.divide(&mut self.window);
            self.current.extend_from_slice(division.take());
        }
        true
    }

    /// Takes the events of the next slot that has any before `end`.
    #[inline]
    fn open_slot(&mut self, end: u64) -> bool {
        let far = self
            .far
            .peek()
            .map(|Reverse(event)| event.at() >> self.shift);
        let first = match (self.next_occupied(), far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return false,
        };
        let begin = first << self.shift;
        if begin >= end {
            return false;
        }
        self.take_out(first, begin.saturating_add(1 << self.shift).min(end));
        self.taken += self.window.len() as u32;
        self.turned += 1;
        std::mem::swap(&mut self.window, &mut self.current);
        !self.current.is_empty()
    }

    /// Takes out all before `limit`; the first slot that has any is known.
    fn take_out(&mut self, first: u64, limit: u64) {
        let mask = self.slots.len() - 1;
        let behind = ((limit - 1) >> self.shift) + 1;
        let known = (self.limit >> self.shift) + self.slots.len() as u64;
        for slot in first..behind.min(known) {
            let index = slot as usize & mask;
            let (events, word) = (&mut self.slots[index], &mut self.occupied[index / 64]);
            if *word >> (index % 64) & 1 == 0 {
                continue;
            }
            if limit >> self.shift > slot {
                // A window of one slot exchanges its memory with it. A window of several has more events than
                // any of them: it would leave its memory there, and need new memory each time.
                if self.window.is_empty() && self.division.is_none() {
                    std::mem::swap(&mut self.window, events);
                } else {
                    self.window.append(events);
                }
            } else {
                self.window
                    .extend(events.extract_if(.., |event| event.at() < limit));
            }
            if events.is_empty() {
                *word &= !(1 << (index % 64));
            }
        }
        while let Some(event) = self.far.peek().filter(|Reverse(event)| event.at() < limit) {
            self.window.push(event.0);
            self.far.pop();
        }
        self.limit = limit;
    }

    /// The next slot of the wheel with events.
    fn next_occupied(&self) -> Option<u64> {
        let mask = self.slots.len() - 1;
        let from = self.limit >> self.shift;
        let first = from as usize & mask;
        let words = self.occupied.len();
        let start = self.occupied[first / 64] >> (first % 64) << (first % 64);
        let found = |word: u64, at: usize| (at * 64 + word.trailing_zeros() as usize) & mask;
        let index = if start != 0 {
            found(start, first / 64)
        } else {
            let later = (1..=words).map(|step| (first / 64 + step) % words);
            let word = later.into_iter().find(|word| self.occupied[*word] != 0)?;
            found(self.occupied[word], word)
        };
        let ahead = index.wrapping_sub(first) & mask;
        Some(from + ahead as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RunRng;
    use crate::world::event_key::EventKind;

    const FAR_PS: u64 = 1 << 36;

    /// Each event makes up to two others: of its own node at any time, of others after the delay. Returns the
    /// events in the order in which they came out.
    fn run(mut events: Events, lanes: u64, delay_ps: u64) -> Vec<(u64, EventKey)> {
        let (mut rng, mut expected, mut got) = (RunRng::new(7), BinaryHeap::new(), Vec::new());
        let mut number = vec![0_u32; lanes as usize];
        let mut put = |events: &mut Events, expected: &mut BinaryHeap<_>, at: u64, lane: u64| {
            // WAKE and CLOCK alternate, so that no two events are the same.
            let kind = match number[lane as usize] & 1 {
                0 => EventKind::Wake,
                _ => EventKind::Clock,
            };
            let key = EventKey::new(lane as u32, kind);
            number[lane as usize] += 1;
            events.push(Time(at), key);
            expected.push(Reverse((at, key)));
        };
        (0..lanes).for_each(|lane| put(&mut events, &mut expected, lane % 7, lane));
        let mut end = 0;
        while got.len() < 20_000 && !expected.is_empty() {
            end = events.next_at().map_or(end, |at| at.0) + 1 + rng.below(3_000_000);
            if rng.below(100) == 0 {
                events.tune();
            }
            let mut before = Vec::new();
            while events.turn(Time(end)) {
                while let Some(due) = events.next() {
                    assert!(due.at.0 < end);
                    before.push((due.at.0, due.key));
                    let own = u64::from(due.key.lane());
                    let goes_on = got.len() + before.len() < 15_000;
                    if goes_on {
                        let range = rng.pick(&[1, 1000, 1_000_000, FAR_PS]);
                        put(
                            &mut events,
                            &mut expected,
                            due.at.0 + 1 + rng.below(range),
                            own,
                        );
                    }
                    if goes_on && rng.below(10) < 2 {
                        let range = rng.pick(&[1000, 1_000_000]);
                        let at = due.at.0 + delay_ps + rng.below(range);
                        put(&mut events, &mut expected, at, rng.below(lanes));
                    }
                }
            }
            let mut wanted = Vec::new();
            while expected
                .peek()
                .is_some_and(|Reverse(event): &Reverse<(u64, EventKey)>| event.0 < end)
            {
                wanted.extend(expected.pop().map(|Reverse(event)| event));
            }
            let owner = |event: &(u64, EventKey)| event.1.lane();
            if events.division.is_some() {
                for lane in 0..lanes as u32 {
                    let of = |all: &[(u64, EventKey)]| -> Vec<(u64, EventKey)> {
                        all.iter()
                            .copied()
                            .filter(|event| owner(event) == lane)
                            .collect()
                    };
                    assert_eq!(of(&before), of(&wanted), "lane {lane}");
                }
            } else {
                assert_eq!(before, wanted);
            }
            got.extend(before);
        }
        assert_eq!(events.next_at().is_some(), !expected.is_empty());
        got
    }

    #[test]
    fn events_come_out_in_order_whatever_the_slots() {
        for (reach, sources, lanes) in [
            (1, 1, 1),
            (4_000_000, 3, 9),
            (4_000_000, 100_000, 90),
            (1 << 40, 10, 300),
        ] {
            let all = run(Events::new(reach, sources, None), lanes, 1);
            assert!(all.len() > 100, "{}", all.len());
        }
    }

    #[test]
    fn nodes_are_driven_one_by_one_each_in_its_order() {
        for delay_ps in [100_000, 1_000_000, 777_777] {
            let nodes = Nodes {
                ends: (0..90).map(|lane| [0, lane]).collect(),
                count: 90,
                delay_ps,
            };
            let events = Events::new(4_000_000, 90, Some(nodes));
            assert!(events.division.is_some());
            let all = run(events, 90, delay_ps);
            let back = all.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
            assert!(back > 100, "{back}");
        }
    }

    #[test]
    fn a_window_is_one_delay_from_its_first_event_on() {
        let nodes = Nodes {
            ends: (0..90).map(|lane| [0, lane]).collect(),
            count: 90,
            delay_ps: 1_000_000,
        };
        let mut events = Events::new(4_000_000, 90, Some(nodes));
        let first = 30_000;
        assert!(
            first >> events.shift == 0,
            "the first event is late in its slot"
        );
        [(first, 3), (first + 999_999, 4)]
            .iter()
            .for_each(|(at, lane)| events.push(Time(*at), EventKey::new(*lane, EventKind::Wake)));
        let mut got = Vec::new();
        while events.turn(Time(first + 1_000_000)) {
            got.extend(std::iter::from_fn(|| events.next()).map(|due| due.at.0));
        }
        assert_eq!((got, events.turned), (vec![first, first + 999_999], 1));
    }

    #[test]
    fn few_nodes_are_driven_together_in_the_order_of_time() {
        let ends: Vec<[u32; 2]> = (0..SMALL as u32).map(|lane| [0, lane]).collect();
        let nodes = || Nodes {
            ends: ends.clone(),
            count: SMALL,
            delay_ps: 1_000_000,
        };
        for sources in [FEW + 1, 2 * FEW, SMALL] {
            let events = Events::new(4_000_000, sources, Some(nodes()));
            assert!(events.division.is_none());
            let all = run(events, sources as u64, 1_000_000);
            assert!(
                all.windows(2).all(|pair| pair[0].0 <= pair[1].0),
                "{sources} sources"
            );
        }
    }

    #[test]
    fn short_links_and_few_things_are_not_divided() {
        for (sources, delay_ps) in [(FEW, 1_000_000), (100, 5_000)] {
            let nodes = Nodes {
                ends: vec![[0, 0]; sources],
                count: 1,
                delay_ps,
            };
            assert!(
                Events::new(4_000_000, sources, Some(nodes))
                    .division
                    .is_none()
            );
        }
    }
}
