//! Texts of words that the formats have, in any order: none panics, and each error names the file.

use crate::files::input;
use fabric::Rate;
use imports::{ImportError, Imported, Servers, chakra, goal, hpcc, htsim, nccl, simai};
use proptest::prelude::*;

const SERVERS: Servers = Servers {
    ranks: 2,
    rate: Rate::from_gbps(100),
};

const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "4096",
    "18446744073709551615",
    "0.5",
    "1e308",
    "100Gbps",
    "0.001ms",
    "\n",
    "\n",
    "\n",
    "\n",
    "CC_MODE",
    "KMAX_MAP",
    "LINK_DOWN",
    "HAS_WIN",
    "BUFFER_SIZE",
    "SIMULATOR_STOP_TIME",
    "ERROR_RATE_PER_LINK",
    "RATE_AI",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "model_parallel_NPU_group:",
    "ep:",
    "pp:",
    "all_gpus:",
    "ALLREDUCE",
    "ALLTOALL_EP",
    "ALLREDUCEALLTOALL",
    "NONE",
    "num_ranks",
    "rank",
    "{",
    "}",
    "a:",
    "a",
    "b:",
    "b",
    "send",
    "recv",
    "calc",
    "8b",
    "to",
    "from",
    "tag",
    "cpu",
    "requires",
    "irequires",
    "/*",
    "*/",
    "//",
    "h:1:2",
    "[0]",
    "NCCL",
    "INFO",
    "comm",
    "0xa",
    "nranks",
    "commId",
    "0xid",
    "-",
    "Init",
    "COMPLETE",
    "AllReduce:",
    "AllGather:",
    "Send:",
    "opCount",
    "count",
    "datatype",
    "root",
    "[nranks=2]",
    "Bytes",
    "->",
    "Algo",
    "TREE",
    "proto",
    "LL",
    "channel{Lo..Hi}={0..7}",
];

fn check(result: &Result<Imported, ImportError>) -> Result<(), TestCaseError> {
    if let Err(error) = result {
        prop_assert_eq!(&error.file, "file.0.et");
        prop_assert!(!error.what.is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_text_makes_an_import_panic(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..80),
        head in prop::sample::select(vec![
            "", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n", "num_ranks 2\nrank 0 {\n",
            "Nodes 4\nTiers 2\nTier 0\nRadix_Down 2\nRadix_Up 2\nTier 1\nRadix_Down 2\n",
            "6 2 1 2 4 X\n3 4 5\n0 3 9Gbps 1us 0\n0 4 1Gbps 1us 0\n1 3 9Gbps 1us 0\n1 4 1Gbps 1us 0\n",
        ]),
    ) {
        let text = format!("{head}{}", words.join(" "));
        let one = input("file.0.et", &text);
        check(&goal::import(one, SERVERS))?;
        check(&nccl::import(one, SERVERS))?;
        check(&hpcc::import(&hpcc::HpccFiles { topology: one, flows: Some(one), config: Some(one) }))?;
        let start_unit = htsim::StartUnit::Microseconds;
        check(&htsim::import(&htsim::HtsimFiles { topology: one, matrix: Some(one), start_unit }))?;
        check(&simai::import(&simai::SimaiFiles { topology: one, workload: Some(one), config: Some(one) }))?;
        let trace = chakra::Trace { name: "file.0.et", bytes: text.as_bytes() };
        check(&chakra::import("file.0.et", &[trace], SERVERS))?;
    }

    /// Bytes of the fields of a node.
    #[test]
    fn no_bytes_make_an_import_panic(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..16_u8], 0..200),
    ) {
        let traces = [
            chakra::Trace { name: "file.0.et", bytes: &bytes },
            chakra::Trace { name: "file.0.et", bytes: &bytes },
        ];
        check(&chakra::import("file.0.et", &traces[..1], SERVERS))?;
        check(&chakra::import("file.0.et", &traces, SERVERS))?;
    }
}
