//! Logs of NCCL.

use crate::files::{input, run};
use fabric::Rate;
use imports::{ImportError, Imported, Servers, nccl};
use std::fmt::Write as _;

const SERVERS: Servers = Servers {
    ranks: 2,
    rate: Rate::from_gbps(400),
};

fn imported(text: &str) -> Result<Imported, ImportError> {
    nccl::import(input("nccl.log", text), SERVERS)
}

/// The place of a rank of two servers of two processors.
fn place(rank: usize) -> String {
    let (server, device) = (rank / 2, rank % 2);
    format!(
        "node{server}:{}:{} [{device}] NCCL INFO ",
        100 + rank,
        200 + rank
    )
}

fn call(rank: usize, function: &str, number: u32, values: &str) -> String {
    format!(
        "{}{function}: opCount {number:x} sendbuff 0x1 recvbuff 0x2 {values} stream 0x{rank}f\n",
        place(rank)
    )
}

/// Four ranks, and pairs of them within a server.
fn communicators() -> String {
    let mut text = String::new();
    for rank in 0..4 {
        let (place, pair, in_pair) = (place(rank), rank / 2, rank % 2);
        let _ = writeln!(
            text,
            "{place}ncclCommInitRank comm 0xa{rank} rank {rank} nranks 4 cudaDev {in_pair} busId \
             {rank}000 commId 0xall - Init COMPLETE"
        );
        let _ = writeln!(
            text,
            "{place}ncclCommSplit comm 0xb{rank} rank {in_pair} nranks 2 cudaDev {in_pair} busId \
             {rank}000 commId 0xpair{pair} - Init COMPLETE"
        );
    }
    text
}

#[test]
fn calls_of_communicators_become_collectives() {
    let mut text = communicators();
    text.push_str("rank0: unrelated output\nnode0:100:200 [0] NCCL INFO Channel 00/08 : 0 1 2 3\n");
    for rank in 0..4 {
        text += &call(
            rank,
            "AllReduce",
            0,
            &format!("count 1048576 datatype 7 op 0 root 0 comm 0xa{rank} [nranks=4]"),
        );
        text += &call(
            rank,
            "AllGather",
            0,
            &format!("count 1024 datatype 9 op 0 root 0 comm 0xb{rank} [nranks=2]"),
        );
        text += &call(
            rank,
            "Broadcast",
            1,
            &format!("count 4096 datatype 1 op 0 root 2 comm 0xa{rank} [nranks=4]"),
        );
    }
    text += "node0:100:200 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo TREE proto LL128 \
     channel{Lo..Hi}={0..7}\n";
    // An older log has numbers.
    text += "node0:100:200 [0] NCCL INFO AllGather: 2048 Bytes -> Algo 1 proto 0 time 9.1\n";
    let imported = imported(&text).unwrap();
    for table in [
        "[group.communicator-0]\nhosts = [\"n0r0\", \"n0r1\", \"n1r0\", \"n1r1\"]\nranks-per-server = 2\n",
        "kind = \"all-reduce\"\ngroup = \"communicator-0\"\nbytes = \"4MiB\"\nalgorithm = \
         \"double-tree\"\nprotocol = \"ll128\"\nchannels = 8\n",
        // Behind the all-reduce on its stream; a rank's part times two.
        "group = \"communicator-1\"\nbytes = \"4KiB\"\nalgorithm = \"ring\"\nprotocol = \"ll\"\nafter = \
         [\"all-reduce-11\"]\n",
        "kind = \"broadcast\"\ngroup = \"communicator-0\"\nbytes = \"4KiB\"\nroot = \"n1r0\"\nafter = \
         [\"all-gather-12\"]\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    assert_eq!(imported.fabric.matches("[[collective]]").count(), 4);
    assert_eq!(imported.notes, [""; 0]);
    assert_eq!(run(&imported).results.left, 0);
}

#[test]
fn sends_of_one_call_are_side_by_side() {
    let mut text = communicators();
    for rank in 0..4 {
        for to in (0..4).filter(|to| *to != rank) {
            text += &call(
                rank,
                "Send",
                5,
                &format!("count 65536 datatype 1 op 0 root {to} comm 0xa{rank} [nranks=4]"),
            );
            text += &call(
                rank,
                "Recv",
                5,
                &format!("count 65536 datatype 1 op 0 root {to} comm 0xa{rank} [nranks=4]"),
            );
        }
    }
    let imported = imported(&text).unwrap();
    assert_eq!(imported.fabric.matches("[[transfer]]").count(), 12);
    assert!(!imported.fabric.contains("after"), "{}", imported.fabric);
    assert_eq!(run(&imported).results.left, 0);
}

#[test]
fn what_a_log_does_not_say_is_assumed_and_named() {
    // One rank of sixteen.
    let mut text = format!(
        "{}comm 0xa0 rank 0 nranks 16 cudaDev 0 busId 1000 commId 0x5 - Init COMPLETE\n",
        place(0)
    );
    text += &call(
        0,
        "ReduceScatter",
        0,
        "count 65536 datatype 6 op 0 root 0 comm 0xa0 [nranks=16]",
    );
    let of_one = imported(&text).unwrap();
    assert_eq!(
        of_one.notes,
        ["the log is of 1 of 16 ranks: the others are taken to call the same"]
    );
    assert!(
        of_one.fabric.contains("bytes = \"2MiB\""),
        "{}",
        of_one.fabric
    );
    run(&of_one);

    // No line of communicators: an all-reduce of two ranks.
    let mut text = String::new();
    for rank in 0..2 {
        text += &call(
            rank,
            "AllReduce",
            0,
            &format!("count 4 datatype 7 op 0 root 0 comm 0xc{rank} [nranks=2]"),
        );
    }
    text += "node0:100:200 [0] NCCL INFO AllReduce: opCount 1 sendb\n";
    let without_init = imported(&text).unwrap();
    let notes = without_init.notes.join("\n");
    assert!(
        notes.contains("nccl.log:3: count is missing; the line is left out"),
        "{notes}"
    );
    assert!(
        notes.contains("the ranks of a communicator of 2 are numbered as the log has them"),
        "{notes}"
    );
    assert!(
        without_init.fabric.contains("hosts = [\"n0r0\", \"n0r1\"]"),
        "{}",
        without_init.fabric
    );

    // Two communicators of two ranks cannot be told apart.
    for rank in 2..4 {
        text += &call(
            rank,
            "AllReduce",
            0,
            &format!("count 4 datatype 7 op 0 root 0 comm 0xc{rank} [nranks=2]"),
        );
    }
    let error = imported(&text).unwrap_err().to_string();
    assert!(
        error.contains("cannot be told apart without \"Init COMPLETE\""),
        "{error}"
    );
}

#[test]
fn a_text_without_collectives_says_how_to_get_some() {
    let error = imported("hello\n").unwrap_err().to_string();
    assert!(
        error.starts_with("nccl.log: no line is a collective of NCCL: run with NCCL_DEBUG=INFO"),
        "{error}"
    );
}
