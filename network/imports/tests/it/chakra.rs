//! Execution traces of Chakra, encoded here field by field.

use crate::files::run;
use fabric::Rate;
use imports::chakra::{Trace, import};
use imports::{ImportError, Imported, Servers};

const SERVERS: Servers = Servers {
    ranks: 1,
    rate: Rate::from_gbps(100),
};

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [
        varint(field << 3 | 2),
        varint(value.len() as u64),
        value.to_vec(),
    ]
    .concat()
}

/// An attribute with a number, whose field number says the type.
fn attribute(name: &str, field: u64, value: u64) -> Vec<u8> {
    bytes(
        10,
        &[bytes(1, name.as_bytes()), number(field, value)].concat(),
    )
}

fn node(id: u64, kind: u64, waits: &[u64], rest: &[Vec<u8>]) -> Vec<u8> {
    let packed: Vec<u8> = waits.iter().flat_map(|id| varint(*id)).collect();
    let mut node = [number(1, id), bytes(2, b"a node"), number(3, kind)].concat();
    if !packed.is_empty() {
        node.extend(bytes(5, &packed));
    }
    node.extend(rest.concat());
    node
}

fn trace(nodes: &[Vec<u8>]) -> Vec<u8> {
    let metadata = bytes(1, b"1.0.0");
    let mut trace = [varint(metadata.len() as u64), metadata].concat();
    for node in nodes {
        trace.extend(varint(node.len() as u64));
        trace.extend(node);
    }
    trace
}

fn imported(traces: &[Vec<u8>]) -> Result<Imported, ImportError> {
    let names: Vec<String> = (0..traces.len())
        .map(|rank| format!("folder/step.{rank}.et"))
        .collect();
    let traces: Vec<Trace<'_>> = names
        .iter()
        .zip(traces)
        .map(|(name, bytes)| Trace { name, bytes })
        .collect();
    import("step", &traces, SERVERS)
}

/// Computes, reduces, computes, and sends to the next rank; rank 0 computes longer.
fn step(rank: u64, ranks: u64) -> Vec<u8> {
    let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    trace(&[
        node(1, 4, &[], &[number(7, if rank == 0 { 30 } else { 20 })]),
        // The type, all-reduce, is 0 and left out; the size is an int64.
        node(
            2,
            7,
            &[1],
            &[
                attribute("is_cpu_op", 27, 0),
                attribute("comm_size", 9, 1 << 20),
            ],
        ),
        node(3, 4, &[2], &[number(7, 5)]),
        node(
            4,
            5,
            &[3],
            &[
                attribute("comm_dst", 7, to),
                attribute("comm_size", 13, 4096),
                attribute("comm_tag", 7, 9),
            ],
        ),
        node(
            5,
            6,
            &[2],
            &[
                attribute("comm_src", 7, from),
                attribute("comm_size", 13, 4096),
                attribute("comm_tag", 7, 9),
            ],
        ),
        node(
            6,
            7,
            &[4, 5],
            &[
                attribute("comm_type", 9, 2),
                attribute("comm_size", 9, 1024),
            ],
        ),
        node(7, 4, &[6], &[number(7, 1)]),
    ])
}

#[test]
fn nodes_become_steps_that_wait_for_each_other() {
    let imported = imported(&[step(0, 3), step(1, 3), step(2, 3)]).unwrap();
    for table in [
        "name = \"rank-0-node-1\"\nkind = \"barrier\"\ngroup = \"compute-0\"\ncompute = \"30us\"\n",
        "name = \"all-reduce-0\"\nkind = \"all-reduce\"\ngroup = \"group-0\"\nbytes = \"1MiB\"\nafter = \
         [\"rank-0-node-1\", \"rank-1-node-1\", \"rank-2-node-1\"]\n",
        "from = \"h0\"\nto = \"h1\"\nbytes = \"4KiB\"\nafter = [\"rank-0-node-3\"]\n",
        // The part of a rank, times three.
        "kind = \"all-gather\"\ngroup = \"group-0\"\nbytes = \"3KiB\"\nafter = [\"message-1\", \
         \"message-2\", \"message-4\"]\n",
        "name = \"rank-2-node-7\"\nkind = \"barrier\"\ngroup = \"compute-2\"\nafter = \
         [\"all-gather-3\"]\ncompute = \"1us\"\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    assert_eq!(imported.fabric.matches("[[transfer]]").count(), 3);
    assert_eq!(imported.notes, [""; 0]);
    let ran = run(&imported);
    assert_eq!(ran.results.left, 0);
    assert!(ran.results.end.0 > 35_000_000, "both times of computing");
}

#[test]
fn traces_that_do_not_belong_together_are_refused() {
    let alone = |nodes: &[Vec<u8>]| {
        imported(&[trace(nodes), trace(&[])])
            .unwrap_err()
            .to_string()
    };
    let send = |to: u64| node(1, 5, &[], &[attribute("comm_dst", 7, to)]);
    for (said, expected) in [
        (alone(&[]), "step: no node is a collective or a message"),
        (
            alone(&[send(1)]),
            "step: a message from h0 to h1 has no other end",
        ),
        (
            alone(&[send(0)]),
            "folder/step.0.et: node 1 (\"a node\") is a message between rank 0 and rank 0 of 2",
        ),
        (
            alone(&[node(1, 7, &[], &[])]),
            "step: all-reduce-0 has one rank",
        ),
        (
            alone(&[node(1, 4, &[8], &[])]),
            "folder/step.0.et: node 1 (\"a node\") waits for node 8, which is not there",
        ),
        (
            alone(&[node(1, 4, &[2], &[]), node(2, 4, &[1], &[])]),
            "folder/step.0.et: node 1 (\"a node\") waits for itself",
        ),
        (
            imported(&[vec![0x1f, 0x8b, 8]]).unwrap_err().to_string(),
            "folder/step.0.et: the trace is compressed: gzip -d",
        ),
        (
            imported(&[vec![5, 1]]).unwrap_err().to_string(),
            "folder/step.0.et: it ends within a field",
        ),
        (
            import(
                "x",
                &[Trace {
                    name: "x.1.et",
                    bytes: &trace(&[]),
                }],
                SERVERS,
            )
            .unwrap_err()
            .to_string(),
            "x: 1 traces, and none of them is of rank 0",
        ),
        (
            import(
                "x",
                &[Trace {
                    name: "x.txt",
                    bytes: &[],
                }],
                SERVERS,
            )
            .unwrap_err()
            .to_string(),
            "x.txt: a trace is called NAME.RANK.et",
        ),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}
