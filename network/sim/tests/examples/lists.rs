//! Transfers that a file lists, and lengths of messages by a file.

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::world::Results;

fn run(workload: &str, file: &str) -> Result<(Experiment, Results), String> {
    let text = format!(
        "duration = \"1ms\"\n\
         topology = {{ kind = \"star\", hosts = 8, rate = \"100Gb/s\", delay = \"500ns\" }}\n\
         [[workload]]\n{workload}\n"
    );
    let mut files = |name: &str| match name {
        "list.csv" | "sizes.txt" => Ok(file.to_owned()),
        other => Err(format!("{other} is not there")),
    };
    let document =
        Document::read("lab.toml", &text, &mut files).map_err(|error| error.to_string())?;
    let experiment = Experiment::new(&document, &mut files).map_err(|error| error.to_string())?;
    let ran = experiment
        .run(&mut |_| true)
        .map_err(|error| error.to_string())?;
    Ok((experiment, ran.results))
}

#[test]
fn each_line_of_a_list_is_a_transfer() {
    let list = "from, to, bytes, start_ns\nh0,h5,65536,1000\n\nh7,h0,1,0\nh0,h5,300000,20000\n";
    let (experiment, results) = run("flows = \"list.csv\"\nstart = \"3us\"", list).unwrap();
    let flows = experiment.scenario.flows.iter().zip(&results.flows);
    let seen: Vec<_> = flows
        .map(|(flow, result)| (flow.from, flow.to, result.bytes, result.started.ns()))
        .collect();
    assert_eq!(
        seen,
        [
            (0, 5, 65_536, 4_000),
            (7, 0, 1, 3_000),
            (0, 5, 300_000, 23_000)
        ]
    );
    // Columns in another order, and those that may be left out.
    let (experiment, _) = run(
        "flows = \"list.csv\"\noperation = \"send\"",
        "bytes,to,from\n9,h1,h2\n",
    )
    .unwrap();
    let flow = experiment.scenario.flows[0];
    assert_eq!((flow.from, flow.to, flow.message_bytes), (2, 1, 9));
}

#[test]
fn mistakes_of_a_list_have_their_line() {
    let head = "from,to,bytes,start_ns\n";
    for (list, expected) in [
        (String::new(), "line 1: no column is called \"\""),
        (
            "from,to,size\n".to_owned(),
            "line 1: no column is called \"size\"; there are from, to",
        ),
        (
            "from,to,to\n".to_owned(),
            "line 1: two columns are called \"to\"",
        ),
        (
            "from,to,start_ns\n".to_owned(),
            "line 1: the column bytes is missing",
        ),
        (head.to_owned(), "it has no line with a transfer"),
        (
            format!("{head}h0,h1,5\n"),
            "line 2: 3 cells, and the head has 4",
        ),
        (
            format!("{head}h0,h9,5,0\n"),
            "line 2: to: no host is called \"h9\"",
        ),
        (
            format!("{head}h0,h0,5,0\n"),
            "line 2: sender and receiver are the same host",
        ),
        (
            format!("{head}h0,h1,0,0\n"),
            "line 2: the message has 0 bytes",
        ),
        (
            format!("{head}h0,h1,-5,0\n"),
            "line 2: bytes: \"-5\" is no number up to 2147483648",
        ),
        (
            format!("{head}h0,h1,3000000000,0\n"),
            "is no number up to 2147483648",
        ),
        (format!("{head}h0,h1,5,1.5\n"), "line 2: start_ns"),
    ] {
        let error = run("flows = \"list.csv\"", &list).err().unwrap();
        assert!(error.contains("workload[0].flows: list.csv"), "{error}");
        assert!(error.contains(expected), "{expected} is not in: {error}");
    }
    let error = run("flows = \"list.csv\"\nbytes = \"1MB\"", head)
        .err()
        .unwrap();
    assert!(
        error.contains("the list says what is sent, and bytes as well"),
        "{error}"
    );
    let error = run("flows = \"other.csv\"", head).err().unwrap();
    assert!(
        error.contains("other.csv: other.csv is not there"),
        "{error}"
    );
    let datagram = "flows = \"list.csv\"\noperation = \"datagram\"";
    let error = run(datagram, &format!("{head}h0,h1,5000,0\n"))
        .err()
        .unwrap();
    assert!(
        error.contains("a datagram is one packet of at most 4096"),
        "{error}"
    );
}

#[test]
fn lengths_of_a_file_are_those_of_the_messages() {
    let workload = "load = 0.3\nsizes-file = \"sizes.txt\"";
    let (experiment, _) = run(workload, "1000 25\n2000 75\n64000 100\n").unwrap();
    let lengths = || {
        experiment
            .scenario
            .flows
            .iter()
            .map(|flow| flow.message_bytes)
    };
    let count = lengths().count() as f64;
    let part = |most: u32| lengths().filter(|bytes| *bytes <= most).count() as f64 / count;
    assert!(count > 300.0, "{count}");
    for (most, expected) in [
        (999, 0.0),
        (1_000, 0.25),
        (1_500, 0.5),
        (2_000, 0.75),
        (64_000, 1.0),
    ] {
        assert!(
            (part(most) - expected).abs() < 0.08,
            "{most}: {}",
            part(most)
        );
    }
    let error = run(workload, "1000 25\n500 100\n").err().unwrap();
    assert!(
        error.contains("sizes-file: sizes.txt, line 2: both numbers grow"),
        "{error}"
    );
    let both = format!("{workload}\nsizes = \"storage\"");
    let error = run(&both, "1000 100\n").err().unwrap();
    assert!(
        error.contains("the file is a distribution, and sizes as well"),
        "{error}"
    );
}

/// As many messages as the load says come to each receiver, in groups that begin at one moment.
#[test]
fn incasts_come_in_groups_of_different_senders() {
    let workload = "load = 0.3\nincast = 4\nmessage = \"4KiB\"\nto = [\"h[0-1]\"]";
    let (experiment, results) = run(workload, "").unwrap();
    let mut groups: std::collections::BTreeMap<(u32, u64), Vec<u32>> = Default::default();
    for flow in &experiment.scenario.flows {
        groups
            .entry((flow.to, flow.start.0))
            .or_default()
            .push(flow.from);
    }
    for ((to, _), senders) in &groups {
        let mut others = senders.clone();
        others.sort_unstable();
        others.dedup();
        assert_eq!((senders.len(), others.len()), (4, 4), "{senders:?}");
        assert!(*to < 2 && !senders.contains(to), "{to}: {senders:?}");
    }
    // 100 Gb/s for a millisecond, of which 30 %, are 229 groups of 16 KiB.
    for to in [0, 1] {
        let count = groups
            .keys()
            .filter(|(receiver, _)| *receiver == to)
            .count();
        assert!((190..270).contains(&count), "h{to}: {count} groups");
    }
    assert!(
        results
            .flows
            .iter()
            .filter(|flow| flow.messages == 1)
            .count()
            > 1_500
    );
    let error = |workload: &str| run(workload, "").err().unwrap();
    let few = error("load = 0.3\nincast = 1");
    assert!(
        few.contains("workload[0].incast: 1 at once is no incast"),
        "{few}"
    );
    let many = error("load = 0.3\nincast = 8");
    assert!(
        many.contains("h0 has 7 senders, and 8 are to send at once"),
        "{many}"
    );
}

const MATRIX: &str = "# two waves\nNodes 8\nConnections 3\nTriggers 0\n0->5 id 1 start 0 size 65536\r\n\n\
                      7->0 start 1.5 size 1\n0->5 start 20 size 300000\n";

#[test]
fn connections_of_a_matrix_are_transfers() {
    let workload = "connections = \"list.csv\"\nstart = \"3us\"";
    let starts = |more: &str| {
        let (experiment, results) = run(&format!("{workload}\n{more}"), MATRIX).unwrap();
        let flows = experiment.scenario.flows.iter().zip(&results.flows);
        let seen = flows.map(|(flow, result)| (flow.from, flow.to, result.bytes, flow.start.0));
        seen.collect::<Vec<_>>()
    };
    let [first, second, third] = [(0, 5, 65_536), (7, 0, 1), (0, 5, 300_000)];
    let with = |(from, to, bytes): (u32, u32, u64), ps: u64| (from, to, bytes, ps);
    let expected = [
        with(first, 3_000_000),
        with(second, 4_500_000),
        with(third, 23_000_000),
    ];
    assert_eq!(starts(""), expected);
    let expected = [
        with(first, 3_000_000),
        with(second, 3_000_001),
        with(third, 3_000_020),
    ];
    assert_eq!(starts("start-unit = \"1ps\""), expected);
}

/// What is put into the matrix in place of what, and the mistake that it then has.
const MATRIX_MISTAKES: &[(&str, &str, &str)] = &[
    (
        "Nodes 8\n",
        "",
        "line 4: the line Nodes is missing before it",
    ),
    (
        "Nodes 8",
        "Nodes 9",
        "line 2: 9 nodes, and the network has 8 hosts",
    ),
    (
        "Connections 3",
        "Connections 2",
        "line 8: Connections is 2, and this is one more",
    ),
    (
        "Connections 3",
        "Connections 4",
        "Connections is 4, and there are 3",
    ),
    (
        "Connections 3",
        "Connections 9999999",
        "line 3: \"9999999\" is no number up to",
    ),
    (
        "Triggers 0",
        "Triggers 1",
        "line 4: connections that start others (triggers)",
    ),
    (
        "start 1.5",
        "trigger 1",
        "line 7: connections that start others (triggers)",
    ),
    ("Triggers 0", "Failures 1", "line 4: failures are not read"),
    ("7->0", "8->0", "line 7: node 8, and Nodes is 8"),
    (
        "7->0",
        "0->0",
        "line 7: sender and receiver are the same host",
    ),
    ("7->0", "7>0", "line 7: \"7>0\" is no connection"),
    ("7->0", "-7->0", "line 7: \"-7\" is no number"),
    ("start 1.5 ", "", "line 7: start is missing"),
    ("start 1.5", "start -1", "line 7: \"-1\" is no start time"),
    (
        "start 1.5",
        "start 999999999999999999",
        "is later than any run ends",
    ),
    ("size 1\n", "\n", "line 7: size is missing"),
    ("size 1\n", "size 0\n", "line 7: the message has 0 bytes"),
    (
        "size 1\n",
        "size 2147483649\n",
        "line 7: \"2147483649\" is no number up to",
    ),
    ("size 1\n", "size 1 prio 2\n", "line 7: prio is not read"),
    (
        "size 1\n",
        "size 1 colour 2\n",
        "line 7: \"colour\" is not known",
    ),
    ("size 1\n", "size 1 id\n", "line 7: \"id\" has no value"),
];

#[test]
fn mistakes_of_a_matrix_have_their_line() {
    let refused = |workload: &str, matrix: &str| {
        let workload = format!("connections = \"list.csv\"\n{workload}");
        run(&workload, matrix).err().unwrap()
    };
    for (from, to, expected) in MATRIX_MISTAKES {
        let changed = MATRIX.replace(from, to);
        assert_ne!(changed, MATRIX, "{from}");
        let error = refused("", &changed);
        assert!(
            error.contains("workload[0].connections: list.csv"),
            "{error}"
        );
        assert!(error.contains(expected), "{expected} is not in: {error}");
    }
    let empty = refused("", "");
    assert!(empty.contains("the line Connections is missing"), "{empty}");
    let both = refused("bytes = \"1MB\"", MATRIX);
    assert!(
        both.contains("the matrix says what is sent, and bytes as well"),
        "{both}"
    );
    let both = refused("flows = \"list.csv\"", MATRIX);
    assert!(both.contains("and connections as well"), "{both}");
}
