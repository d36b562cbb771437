//! What NCCL 2.28.9 posted in one all-reduce, counted in traces of its own transport for verbs
//! (`docs/applications.md`), and what crosses the links here. It had two channels there: the counts leave no
//! other number.

use super::experiment;
use sim::world::CapturedFrame;
use std::collections::BTreeMap;
use wire::Message;

/// Bytes of the record that clears the way, besides its immediate data.
const RECORD: u32 = 60;

/// WRITEs that left the ranks in one all-reduce: how many of which length, and records.
fn posted(hosts: u32, collective: &str) -> (Vec<(u32, usize)>, usize) {
    let mut experiment = experiment(&format!(
        "topology = {{ kind = \"star\", hosts = {hosts}, rate = \"100Gb/s\", delay = \"500ns\" }}\n\
         [[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nchannels = 2\n{collective}\n"
    ))
    .unwrap();
    experiment.scenario.watch.captures = (0..hosts).collect();
    experiment.scenario.watch.captured_max = 1 << 20;
    let results = experiment.run(&mut |_| true).unwrap().results;
    assert!(results.captured.len() < 1 << 20, "every packet is kept");
    let mut lengths: BTreeMap<u32, usize> = BTreeMap::new();
    // Hosts are the first ends of the star's links.
    for frame in results.captured.iter().filter(|frame| frame.direction == 0) {
        let CapturedFrame::Packet { headers, .. } = &frame.frame else {
            continue;
        };
        if let Message::Write {
            reth: Some(reth), ..
        } = headers.message
        {
            *lengths.entry(reth.length).or_default() += 1;
        }
    }
    let records = lengths.remove(&RECORD).unwrap_or(0);
    (lengths.into_iter().collect(), records)
}

/// Ranks, the algorithm, bytes of the all-reduce, and how many messages of which length.
type Row<'a> = (u32, &'a str, &'a str, &'a [(u32, usize)]);

#[test]
fn as_many_messages_are_posted_as_nccl_posts() {
    let ring = "algorithm = \"ring\"";
    let rows: [Row<'_>; 6] = [
        (2, ring, "64KiB", &[(0, 8), (16 << 10, 8)]),
        (2, ring, "16MiB", &[(1 << 20, 32)]),
        (2, ring, "256MiB", &[(1 << 20, 512)]),
        (4, ring, "16MiB", &[(1 << 20, 96)]),
        (4, "algorithm = \"tree\"", "16MiB", &[(512 << 10, 192)]),
        (
            2,
            "algorithm = \"ring\"\nprotocol = \"ll\"",
            "64KiB",
            &[(32 << 10, 8)],
        ),
    ];
    for (hosts, algorithm, bytes, expected) in rows {
        let (lengths, records) = posted(hosts, &format!("{algorithm}\nbytes = \"{bytes}\""));
        assert_eq!(lengths, expected, "{algorithm}, {hosts} ranks, {bytes}");
        // Each is preceded by one record.
        let messages: usize = expected.iter().map(|(_, count)| count).sum();
        assert_eq!(records, messages, "{algorithm}, {hosts} ranks, {bytes}");
    }
}
