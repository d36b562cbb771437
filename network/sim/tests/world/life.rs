//! The life of a queue pair, beside what the run itself counts.

use fabric::{Drop, Time};
use sim::world::{
    Flow, Life, LifeEvent, LifePlace, LifeRecord, Loss, Lossless, Results, Traced, Watch,
};
use wire::{Message, Syndrome};

use super::three_to_one::{MESSAGES, RECEIVER, marking, three_to_one};

/// Three hosts write to a fourth. The first one's queue pair is watched.
fn incast(common: &Lossless, loss: u32, traced: Option<Traced>) -> Results {
    incast_with(common, loss, traced, None)
}

/// The same with another flow behind.
fn incast_with(
    common: &Lossless,
    loss: u32,
    traced: Option<Traced>,
    more: Option<Flow>,
) -> Results {
    let watch = Watch {
        traced,
        ..Watch::default()
    };
    three_to_one(common, loss, watch, more)
}

fn of(flow: u32, psn: Option<u32>) -> Option<Traced> {
    Some(Traced { flow, psn })
}

fn count(life: &Life, which: impl Fn(&LifeRecord) -> bool) -> u64 {
    life.records.iter().filter(|record| which(record)).count() as u64
}

fn is_data(record: &LifeRecord) -> bool {
    let packet = record.packet.as_ref();
    packet.is_some_and(|packet| {
        matches!(
            packet.headers.roce().unwrap().message,
            Message::Write { .. }
        )
    })
}

#[test]
fn watching_changes_nothing_and_counts_what_the_queue_pair_counts() {
    let without = incast(&marking(), 0, None);
    let with = incast(&marking(), 0, of(0, None));
    let life = with.life.clone().unwrap();
    assert_eq!(without.life, None);
    assert_eq!(
        Results {
            life: None,
            ..with.clone()
        },
        without
    );
    assert!(life.records.is_sorted_by_key(|record| record.at));
    assert_eq!(life.left_out, 0);

    let flow = &with.flows[0];
    let posted = |record: &LifeRecord| matches!(record.event, LifeEvent::Posted { .. });
    let completed = |record: &LifeRecord| matches!(record.event, LifeEvent::Completed { .. });
    assert_eq!(
        [count(&life, posted), count(&life, completed)],
        [MESSAGES; 2]
    );
    let from_host = |record: &LifeRecord| {
        let sent = matches!(record.event, LifeEvent::Sent { waited: None, .. });
        sent && is_data(record)
    };
    assert_eq!(count(&life, from_host), flow.sender.sent_packets);
    let last = life
        .records
        .iter()
        .rfind(|record| completed(record))
        .unwrap();
    assert_eq!(last.at, flow.finished);

    // The pauses of the sender's port, all of them over when the run ends.
    let port = |record: &&LifeRecord| record.place == LifePlace::Port(0, 0);
    let paused = life
        .records
        .iter()
        .filter(port)
        .filter_map(|record| match record.event {
            LifeEvent::Resumed { after, .. } => Some(after.0),
            _ => None,
        });
    let paused: u64 = paused.sum();
    assert_eq!(paused, with.hosts[0].queues[3].paused_ps);
    assert!(paused > 0);
}

#[test]
fn queues_and_marks_are_those_of_the_switch() {
    let results = [0, 1, 2].map(|flow| incast(&marking(), 0, of(flow, None)));
    let port = &results[0].switches[0].ports[RECEIVER as usize].queues[3];
    let lives = results
        .each_ref()
        .map(|results| results.life.as_ref().unwrap());
    let marked = |record: &LifeRecord| {
        let marked = matches!(record.event, LifeEvent::Sent { marked: true, .. });
        marked && is_data(record)
    };
    let marks: u64 = lives.iter().map(|life| count(life, marked)).sum();
    assert_eq!(marks, port.marked_packets);
    assert!(marks > 0);
    let arrived =
        |record: &LifeRecord| matches!(record.event, LifeEvent::Arrived { marked: true, .. });
    let arrivals: u64 = lives.iter().map(|life| count(life, arrived)).sum();
    assert_eq!(arrivals, marks);
    // What was before the last packet of the longest queue, and itself: the peak that the switch has counted.
    let longest = lives
        .iter()
        .flat_map(|life| &life.records)
        .filter_map(|record| match record.event {
            LifeEvent::Enqueued { ahead_bytes, .. } if is_data(record) => Some(ahead_bytes),
            _ => None,
        });
    let longest = longest.max().unwrap();
    assert!(
        longest < port.peak_bytes && longest + 4_200 >= port.peak_bytes,
        "{longest}"
    );
}

#[test]
fn packets_that_are_lost_are_sent_again() {
    let results = incast(&Lossless::default(), u32::MAX / 200, of(0, None));
    let life = results.life.unwrap();
    let again = |record: &LifeRecord| matches!(record.event, LifeEvent::Sent { again: true, .. });
    let lost =
        |record: &LifeRecord| record.event == LifeEvent::Lost(Loss::Damaged) && is_data(record);
    assert_eq!(
        count(&life, again),
        results.flows[0].sender.retransmitted_packets
    );
    assert!(count(&life, again) >= count(&life, lost) && count(&life, lost) > 0);
    let nak = |record: &LifeRecord| {
        let message = record
            .packet
            .map(|packet| packet.headers.roce().unwrap().message);
        matches!(message, Some(Message::Acknowledge(aeth)) if aeth.syndrome == Syndrome::NAK_SEQUENCE)
    };
    assert!(count(&life, nak) > 0);
}

#[test]
fn what_a_switch_drops_has_its_reason() {
    let common = Lossless {
        class: None,
        buffer_bytes: 60_000,
        ..Lossless::default()
    };
    let results = [0, 1, 2].map(|flow| incast(&common, 0, of(flow, None)));
    for why in Drop::ALL {
        let of_it = |record: &LifeRecord| record.event == LifeEvent::Lost(Loss::Dropped(why));
        let lives = results.iter().map(|results| results.life.as_ref().unwrap());
        let seen: u64 = lives.map(|life| count(life, of_it)).sum();
        assert_eq!(seen, results[0].drops(why), "{why:?}");
    }
    let all: u64 = Drop::ALL.into_iter().map(|why| results[0].drops(why)).sum();
    assert!(all > 0);
}

/// Pauses of the port before the first message is posted are none of the queue pair.
#[test]
fn a_life_begins_with_the_first_message() {
    let late = Flow {
        start: Time::from_ns(60_000),
        messages: 1,
        ..Flow::write(0, RECEIVER, 50_000)
    };
    let results = incast_with(&marking(), 0, of(3, None), Some(late));
    let life = results.life.unwrap();
    let first = life.records[0];
    assert_eq!(
        (first.at, first.event),
        (Time::from_ns(60_000), LifeEvent::Posted { message: 0 })
    );
    assert!(results.hosts[0].pauses_received > 0);
}

/// One packet: its message, its way, and what told its sender that it had arrived.
#[test]
fn one_packet_has_its_message_and_its_acknowledgement() {
    let whole = incast(&marking(), 0, of(1, None)).life.unwrap();
    // In the third message, of 13 packets each.
    let starts = whole.records.iter().filter(|record| {
        matches!(record.event, LifeEvent::Sent { waited: None, .. }) && is_data(record)
    });
    let psn = starts
        .clone()
        .nth(30)
        .unwrap()
        .packet
        .unwrap()
        .headers
        .psn();
    let life = incast(&marking(), 0, of(1, psn.map(|psn| psn as u32)))
        .life
        .unwrap();
    let first = life.records.first().unwrap();
    let last = life.records.last().unwrap();
    assert_eq!(first.event, LifeEvent::Posted { message: 2 });
    assert_eq!(last.event, LifeEvent::Completed { message: 2 });
    let whole_way: Vec<LifeRecord> = whole
        .records
        .iter()
        .copied()
        .filter(|record| {
            let is_it = record
                .packet
                .is_some_and(|packet| packet.headers.psn() == psn);
            is_it && is_data(record)
        })
        .collect();
    let way: Vec<LifeRecord> = life.records.iter().copied().filter(is_data).collect();
    assert_eq!(way, whole_way);
    assert!(
        way.len() >= 3,
        "the host and the switch send it, and it arrives: {way:?}"
    );
    let acknowledged: Vec<&LifeRecord> = life
        .records
        .iter()
        .filter(|record| {
            record.packet.is_some_and(|packet| {
                matches!(
                    packet.headers.roce().unwrap().message,
                    Message::Acknowledge(_)
                )
            })
        })
        .collect();
    let [acknowledged] = acknowledged[..] else {
        panic!("{acknowledged:?}")
    };
    assert_eq!(acknowledged.place, LifePlace::Host(1));
    assert!(acknowledged.packet.unwrap().headers.psn() >= psn);
}
