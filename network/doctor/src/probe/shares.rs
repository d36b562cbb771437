//! Shares of a link: hosts send in several classes at once, and the traffic that arrives of each class is
//! compared with the configured share.

use std::collections::BTreeMap;

use super::load::{SLOT, StreamOutcome};

/// Parts of the duration of a load that are not counted, in percent: at the begin (queues fill, and orders
/// arrive one after the other) and at the end.
const BEGIN: u64 = 20;
const END: u64 = 10;

/// The part of the duration, in percent, until which a packet counts for the whole load: a program that
/// starts late is late with the last ones. What the buffers of a way hold arrives later.
const LATEST: u64 = 110;

/// Part of its traffic above which a class is not limited by its share.
const SATISFIED: f64 = 0.95;

/// Part of its share below which a class is starved. Packets and scheduler rounds are discrete, and programs
/// do not send evenly, hence the margin.
const STARVED: f64 = 0.8;

/// The part of a link that is configured for a class while all of these classes send.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// A DSCP of the class.
    pub dscp: u8,
    /// Share of the link in percent. A class below a strict one has 0.
    pub percent: f64,
}

/// The measured share of a class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// The DSCP of the class.
    pub dscp: u8,
    /// The configured part in percent.
    pub expected: f64,
    /// The part of the traffic that arrived, in percent.
    pub measured: f64,
    /// Whether it sent more than arrived, so that it would have used a larger part.
    pub limited: bool,
}

impl Share {
    /// Whether it got less than its share, while it sent enough to use that.
    pub fn is_starved(&self) -> bool {
        self.limited && self.measured < self.expected * STARVED
    }
}

/// Percents of weights.
pub fn expected_of(weights: &[(u8, u32)]) -> Vec<Expected> {
    let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let percent = |weight: u32| f64::from(weight) * 100.0 / sum.max(1.0);
    weights
        .iter()
        .map(|(dscp, weight)| Expected {
            dscp: *dscp,
            percent: percent(*weight),
        })
        .collect()
}

/// Measures the share of each class.
///
/// # Errors
/// The reason why the streams do not show the shares.
pub fn measured(
    streams: &[StreamOutcome],
    expected: &[Expected],
) -> Result<Vec<Share>, &'static str> {
    if streams.iter().any(|stream| stream.end.is_none()) {
        return Err("not all hosts sent until the end");
    }
    if !streams.iter().all(StreamOutcome::is_of_the_network) {
        return Err("a program did not keep up with the rate; try a lower one");
    }
    let mut classes: BTreeMap<u8, ClassTraffic> = BTreeMap::new();
    for stream in streams {
        let class = classes.entry(stream.order.traffic_class >> 2).or_default();
        class.add(stream);
    }
    let total: f64 = classes.values().map(|class| class.counted.arrived).sum();
    if total <= 0.0 {
        return Err("none of the packets arrived");
    }
    let of = |expected: &Expected| {
        let class = classes.get(&expected.dscp).copied().unwrap_or_default();
        Share {
            dscp: expected.dscp,
            expected: expected.percent,
            measured: class.counted.arrived * 100.0 / total,
            limited: class.is_limited(),
        }
    };
    let shares: Vec<Share> = expected.iter().map(of).collect();
    match shares.iter().any(|share| share.limited) {
        true => Ok(shares),
        false => Err("the hosts together did not fill a link; try a higher rate"),
    }
}

/// Bytes of a class.
#[derive(Clone, Copy, Default)]
struct Bytes {
    arrived: f64,
    due: f64,
}

impl Bytes {
    fn is_satisfied(self) -> bool {
        self.arrived >= self.due * SATISFIED
    }
}

/// The traffic of a class.
#[derive(Clone, Copy, Default)]
struct ClassTraffic {
    /// While all senders are sending.
    counted: Bytes,
    /// During the whole load.
    whole: Bytes,
    /// Whether packets waited for the interface of a sender, as in a lossless class that is paused.
    is_held_back: bool,
}

impl ClassTraffic {
    fn add(&mut self, stream: &StreamOutcome) {
        let bytes = f64::from(stream.order.bytes);
        self.counted.arrived += f64::from(stream.within(BEGIN, 100 - END)) * bytes;
        self.counted.due += stream.due_within(BEGIN, 100 - END) * bytes;
        self.whole.arrived += f64::from(stream.within(0, LATEST)) * bytes;
        self.whole.due += stream.due_within(0, 100) * bytes;
        self.is_held_back |= stream.is_held_back();
    }

    /// Whether the share of the class limited it. Not where its senders were never paused and all of it
    /// arrived in time: its program was late with packets in the time that counts, and has sent them before
    /// or after. A lossless class loses nothing, so its pauses tell that it was limited, or packets that wait
    /// in buffers at the end.
    fn is_limited(self) -> bool {
        !self.counted.is_satisfied() && (self.is_held_back || !self.whole.is_satisfied())
    }
}

impl StreamOutcome {
    /// Packets that arrived between two parts of the ordered time, in percent.
    fn within(&self, from: u64, to: u64) -> u32 {
        let slots = u64::from(self.order.millis) / SLOT.as_millis() as u64;
        let slot = |percent: u64| ((slots * percent / 100) as usize).min(self.slots.len());
        self.slots[slot(from)..slot(to)].iter().sum()
    }

    /// Packets that the sender was due to send in that time, without those that were due while its program
    /// was not scheduled.
    fn due_within(&self, from: u64, to: u64) -> f64 {
        let behind = self.end.map_or(0, |end| end.behind);
        let due = f64::from(self.offered() - behind);
        let slots = u64::from(self.order.millis) / SLOT.as_millis() as u64;
        let part = (slots * to / 100 - slots * from / 100) as f64 / slots.max(1) as f64;
        due * part
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{LoadEnd, LoadOrder};
    use super::*;

    /// A stream of one second with 1000 packets due, of which so many arrive in each slot of 10 ms.
    fn stream(dscp: u8, each: u32) -> StreamOutcome {
        let order = LoadOrder {
            traffic_class: dscp << 2 | 2,
            bytes: 1000,
            millis: 1000,
            ..LoadOrder::default()
        };
        StreamOutcome {
            host: format!("h{dscp}"),
            order,
            end: Some(LoadEnd {
                sent: each * 100,
                held_back: 1000 - each * 100,
                ..LoadEnd::default()
            }),
            refused: None,
            arrived: each * 100,
            marked: 0,
            slots: vec![each; 100],
            overrun: 0,
        }
    }

    fn starved(streams: &[StreamOutcome], weights: &[(u8, u32)]) -> Vec<u8> {
        let shares = measured(streams, &expected_of(weights)).unwrap();
        shares
            .iter()
            .filter(|share| share.is_starved())
            .map(|share| share.dscp)
            .collect()
    }

    #[test]
    fn a_class_with_less_than_its_share_is_starved_and_one_that_sent_no_more_is_not() {
        assert!(starved(&[stream(26, 5), stream(0, 5)], &[(26, 50), (0, 50)]).is_empty());
        assert_eq!(
            starved(&[stream(26, 1), stream(0, 9)], &[(26, 50), (0, 50)]),
            [26]
        );
        assert_eq!(
            starved(&[stream(26, 0), stream(0, 10)], &[(26, 50), (0, 50)]),
            [26]
        );
        // DSCP 0 sends ten packets a slot and gets all of them, so nothing is known of its share.
        assert!(starved(&[stream(26, 8), stream(0, 10)], &[(26, 20), (0, 80)]).is_empty());
        // A class below a strict one has no share that it could miss.
        assert!(starved(&[stream(26, 9), stream(0, 0)], &[(26, 100), (0, 0)]).is_empty());
    }

    #[test]
    fn a_class_of_which_all_arrives_is_not_limited_however_unevenly_it_is_sent() {
        let mut uneven = stream(0, 10);
        uneven.slots[30..60].fill(0);
        uneven.slots[..10].fill(40);
        assert!(starved(&[stream(26, 4), uneven], &[(26, 0), (0, 100)]).is_empty());
    }

    #[test]
    fn a_lossless_class_whose_sender_is_paused_is_limited_although_nothing_of_it_is_lost() {
        let mut paused = stream(26, 8);
        paused.end = Some(LoadEnd {
            sent: 960,
            held_back: 40,
            ..LoadEnd::default()
        });
        // What the buffers of the way held arrives at the end.
        paused.arrived = 960;
        paused.slots.extend([8; 20]);
        let mut buffered = paused.clone();
        buffered.end = Some(LoadEnd {
            sent: 1000,
            ..LoadEnd::default()
        });
        buffered.arrived = 1000;
        buffered.slots.extend([8; 5]);
        for lossless in [paused, buffered] {
            let streams = [lossless, stream(0, 5)];
            let shares = measured(&streams, &expected_of(&[(26, 60), (0, 40)]));
            assert!(shares.unwrap().iter().all(|share| share.limited));
        }
    }

    #[test]
    fn a_free_link_and_slow_programs_say_nothing() {
        let weights = expected_of(&[(26, 1), (0, 1)]);
        let free = [stream(26, 10), stream(0, 10)];
        assert!(
            measured(&free, &weights)
                .unwrap_err()
                .contains("did not fill a link")
        );
        let mut slow = [stream(26, 5), stream(0, 5)];
        slow[1].end = Some(LoadEnd {
            sent: 500,
            behind: 500,
            ..LoadEnd::default()
        });
        assert!(
            measured(&slow, &weights)
                .unwrap_err()
                .contains("did not keep up")
        );
        slow[1].end = None;
        assert!(
            measured(&slow, &weights)
                .unwrap_err()
                .contains("not all hosts sent until the end")
        );
    }

    #[test]
    fn what_arrives_before_all_senders_send_is_not_counted() {
        let (mut early, late) = (stream(26, 5), stream(0, 5));
        early.slots[..20].fill(1000);
        assert!(starved(&[early, late], &[(26, 50), (0, 50)]).is_empty());
    }
}
