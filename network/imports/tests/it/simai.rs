//! Files of SimAI.

use crate::files::{input, run};
use imports::simai::{SimaiFiles, import};
use imports::{ImportError, Imported};

/// Two servers of two processors and an NVSwitch each; the first processors of both are at one switch, the
/// second ones at another.
const TOPOLOGY: &str = "\
8 2 2 2 8 H100
4 5 6 7
0 4 2880Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 4 2880Gbps 0.000025ms 0
1 7 400Gbps 0.0005ms 0
2 5 2880Gbps 0.000025ms 0
2 6 400Gbps 0.0005ms 0
3 5 2880Gbps 0.000025ms 0
3 7 400Gbps 0.0005ms 0
";

const WORKLOAD: &str = "\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 \
checkpoints: 0 checkpoint_initiates: 0
3
embedding -1 1000 ALLREDUCE 1048576 500 NONE 0 0 NONE 0 100
mlp -1 2000 NONE 0 2000 ALLREDUCE 65536 1000 ALLREDUCE 4194304 100
head -1 3000 ALLGATHER 2097152 3000 REDUCESCATTER 2097152 1000 ALLGATHER_DP_EP 0
";

fn imported(topology: &str, workload: &str) -> Result<Imported, ImportError> {
    import(&SimaiFiles {
        topology: input("topology", topology),
        workload: Some(input("workload.txt", workload)),
        config: None,
    })
}

#[test]
fn layers_become_collectives_of_the_groups_of_ranks() {
    let imported = imported(TOPOLOGY, WORKLOAD).unwrap();
    for table in [
        // A tensor-parallel group is one server.
        "[group.tensor-0]\nhosts = [\"h0\", \"h1\"]\nranks-per-server = 2\nlocal = { rate = \
         \"2880Gb/s\", delay = \"50ns\" }\n",
        "[group.data-1]\nhosts = [\"h1\", \"h3\"]\n\n",
        "name = \"forward-0.1\"\nkind = \"all-reduce\"\ngroup = \"tensor-1\"\nbytes = \"1MiB\"\ncompute \
         = \"1us\"\n",
        // Layers without a collective are computed before the next one that has some.
        "name = \"forward-2.0\"\nkind = \"all-gather\"\ngroup = \"tensor-0\"\nbytes = \"2MiB\"\nafter = \
         [\"forward-0.0\"]\ncompute = \"5us\"\n",
        "name = \"inputs-2.0\"\nkind = \"reduce-scatter\"\ngroup = \"tensor-0\"\nbytes = \"2MiB\"\n\
         after = [\"forward-2.0\"]\ncompute = \"3us\"\n",
        "name = \"inputs-1.0\"\nkind = \"all-reduce\"\ngroup = \"tensor-0\"\nbytes = \"64KiB\"\nafter = \
         [\"inputs-2.0\"]\ncompute = \"3us\"\n",
        // Nobody waits for gradients of weights.
        "name = \"weights-1.0\"\nkind = \"all-reduce\"\ngroup = \"data-0\"\nbytes = \"4MiB\"\nafter = \
         [\"inputs-1.0\", \"inputs-1.1\"]\ncompute = \"1us\"\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    assert!(
        !imported.fabric.contains("name = \"s4\""),
        "an NVSwitch is no switch of the network"
    );
    // The step ends when the gradients of the first layer's inputs were computed.
    let end = "name = \"end.3\"\nkind = \"barrier\"\ngroup = \"compute-3\"\nafter = [\"inputs-1.1\"]\n\
     compute = \"500ns\"\n";
    assert!(imported.fabric.contains(end), "{}", imported.fabric);
    assert_eq!(imported.notes, [""; 0]);
    let ran = run(&imported);
    assert_eq!(ran.results.left, 0);
}

#[test]
fn experts_are_divided_among_neighbouring_groups() {
    let workload = "\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 4
1
moe -1 1000 ALLTOALL_EP 1048576 1 NONE 0 1 ALLREDUCE_DP_EP 4096 100
";
    let imported = imported(TOPOLOGY, workload).unwrap();
    for table in [
        "[group.expert-0]\nhosts = [\"h0\", \"h1\"]\n",
        "[group.expert-1]\nhosts = [\"h2\", \"h3\"]\n",
        "[group.data-of-experts-0]\nhosts = [\"h0\", \"h2\"]\n",
        "[group.data-of-experts-1]\nhosts = [\"h1\", \"h3\"]\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    run(&imported);
}

#[test]
fn mistakes_are_named_with_their_line() {
    let workload = |text: &str| imported(TOPOLOGY, text).unwrap_err().to_string();
    let head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group:";
    for (said, expected) in [
        (
            workload("DATA\n1\n"),
            "workload.txt:1: DATA is not read: HYBRID_TRANSFORMER_FWD_IN_BCKWD is",
        ),
        (
            workload(&format!("{head} 3 ep: 1 pp: 1 all_gpus: 4\n0\n")),
            "workload.txt:1: 4 processors cannot be divided",
        ),
        (
            workload(&format!("{head} 0 ep: 0 pp: 0 all_gpus: 4\n0\n")),
            "workload.txt:1: 4 processors cannot be divided",
        ),
        (
            workload(&format!("{head} 8 ep: 1 pp: 1 all_gpus: 8\n0\n")),
            "workload.txt:1: all_gpus is 8, and the topology has 4 processors",
        ),
        (
            workload(&format!("{head} 1\n2\na -1 1 NONE 0 1 NONE 0 1 NONE 0\n")),
            "workload.txt: the file ends before layer 2 of 2",
        ),
        (
            workload(&format!("{head} 1\n1\na -1 1 SUM 5 1 NONE 0 1 NONE 0\n")),
            "workload.txt:3: SUM is no collective of a workload",
        ),
        (
            workload(&format!("{head} 1\n1\na -1 1 ALLREDUCE\n")),
            "workload.txt:3: the number of bytes is missing: word 5",
        ),
        (
            imported("8 3 2 2 0 H100\n4 5 6 7\n", WORKLOAD)
                .unwrap_err()
                .to_string(),
            "topology:1: 4 processors are no whole number of servers of 3",
        ),
        (
            imported("8 2 2 2 0 H100\n0 5 6 7\n", WORKLOAD)
                .unwrap_err()
                .to_string(),
            "topology:1: the switches are not behind the 4 processors",
        ),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}
