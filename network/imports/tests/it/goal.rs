//! Schedules in GOAL.

use crate::files::{input, run};
use fabric::Rate;
use imports::{Imported, Servers, goal};
use std::fmt::Write as _;

const SERVERS: Servers = Servers {
    ranks: 1,
    rate: Rate::from_gbps(100),
};

fn imported(text: &str) -> Imported {
    goal::import(input("s.goal", text), SERVERS).unwrap_or_else(|error| panic!("{error}"))
}

/// Each rank tells the one at a distance of 1, 2, 4 and so on what it knows, and hears of another.
fn dissemination(ranks: usize) -> String {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let _ = writeln!(text, "rank {rank} {{");
        let mut distance = 1;
        let mut round = 0;
        while distance < ranks {
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            let _ = writeln!(text, "s{round}: send 4096b to {to} tag {round}");
            let _ = writeln!(text, "r{round}: recv 4096b from {from} tag {round}");
            if round > 0 {
                let _ = writeln!(text, "s{round} requires s{}", round - 1);
                let _ = writeln!(text, "s{round} requires r{}", round - 1);
            }
            distance *= 2;
            round += 1;
        }
        text.push_str("}\n");
    }
    text
}

#[test]
fn a_dissemination_of_sixteen_ranks_takes_four_rounds() {
    let one = run(&imported(
        "num_ranks 2\nrank 0 {\nsend 4096b to 1\n}\nrank 1 {\nrecv 4096b from 0\n}\n",
    ));
    let all = run(&imported(&dissemination(16)));
    assert_eq!(all.results.left, 0);
    // No round has two messages on one link. Rounds end at the sender, by an acknowledgement.
    let round = one.results.end.0;
    assert!(
        all.results.end.0 <= 4 * round,
        "{} and {round}",
        all.results.end.0
    );
    assert!(
        all.results.end.0 > 3 * round,
        "{} and {round}",
        all.results.end.0
    );
}

#[test]
fn computing_and_requirements_are_those_of_the_sender() {
    let text = "\
num_ranks 3
// A comment, and /* another */ one.
rank 0 {
l1: calc 1000 cpu 0
l2: send 8b to 1 tag 5 cpu 0 nic 0
l2 requires l1
l3: calc 500 cpu 1 /* over
two lines */
l3 requires l2
l4: send 16b to 1 tag 5
l4 requires l3
l5: calc 77
l5 requires l4
l6: send 1b to 2
l6 irequires l4
}
rank 1 {
l1: recv 8b from 0 tag 5
l2: recv 16b from 0 tag 5
l3: calc 9
l3 requires l2
}
rank 2 {
recv 1b from 0
}
";
    let imported = imported(text);
    for table in [
        "name = \"line-4\"\nkind = \"barrier\"\ngroup = \"compute-0\"\ncompute = \"1us\"\n",
        "name = \"line-5\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"8B\"\nafter = [\"line-4\"]\n",
        "name = \"line-10\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"16B\"\nafter = [\"line-7\"]\n",
        "name = \"line-12\"\nkind = \"barrier\"\ngroup = \"compute-0\"\nafter = [\"line-10\"]\ncompute \
         = \"77ns\"\n",
        // It begins when line 10 does.
        "name = \"line-14\"\nfrom = \"h0\"\nto = \"h2\"\nbytes = \"1B\"\nafter = [\"line-7\"]\n",
        // What has been received is known by the line of its send.
        "group = \"compute-1\"\nafter = [\"line-10\"]\ncompute = \"9ns\"\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    assert_eq!(
        imported.notes,
        ["computing on 2 processors of a rank (cpu): a host computes one after the other"]
    );
    assert_eq!(run(&imported).results.left, 0);
}

#[test]
fn mistakes_are_named_with_their_line() {
    let two = |zero: &str, one: &str| {
        format!("num_ranks 2\nrank 0 {{\n{zero}\n}}\nrank 1 {{\n{one}\n}}\n")
    };
    for (text, expected) in [
        (String::new(), "s.goal: the file ends before num_ranks"),
        (
            "num_ranks 99999999".to_owned(),
            "s.goal:1: the number of ranks is 99999999, and at most",
        ),
        (
            "num_ranks 1\nrank 1 {\n}\n".to_owned(),
            "s.goal:2: a rank is 1, and at most 0",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 1\n".to_owned(),
            "s.goal: rank 0 has no end",
        ),
        (
            "num_ranks 1\n/* no end\n".to_owned(),
            "s.goal:2: this comment has no end",
        ),
        (
            two("a: calc 1\na: calc 2", ""),
            "s.goal:4: the label a is there twice",
        ),
        (
            two("a: calc 1\na requires b", ""),
            "s.goal:4: rank 0 has no label b above",
        ),
        (
            two("a: calc 1\nb: calc 1\na requires b\nb requires a", ""),
            "s.goal:3: this waits for itself",
        ),
        (
            two("send 8b to 1 tag 2", ""),
            "s.goal:3: rank 1 receives no such message with tag 2",
        ),
        (
            two("", "recv 8b from 0"),
            "s.goal:6: rank 0 sends no such message with tag 0 here",
        ),
        (
            two("", "recv 8b from -1"),
            "s.goal:6: a receive from any rank",
        ),
        (two("send 8b to 0", ""), "s.goal:3: rank 0 and itself"),
        (
            two("send 8 to 1", ""),
            "s.goal:3: \"8\" is no size such as 8b",
        ),
        (two("wait 8", ""), "s.goal:3: \"wait\" is not understood"),
    ] {
        let said = goal::import(input("s.goal", &text), SERVERS)
            .unwrap_err()
            .to_string();
        assert!(said.starts_with(expected), "{said}");
    }
}
