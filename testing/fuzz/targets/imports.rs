//! Files that `rockery import` reads, by the first byte. Parts of one input are divided by the byte 0.
#![no_main]

use fabric::Rate;
use imports::{Input, Servers, chakra, goal, hpcc, htsim, nccl, simai};

const SERVERS: Servers = Servers {
    ranks: 2,
    rate: Rate::from_gbps(100),
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let mut parts = text.split('\0').map(|text| Input {
        name: "file",
        text,
    });
    let first = parts.next().unwrap_or(Input {
        name: "file",
        text: "",
    });
    let (second, third) = (parts.next(), parts.next());
    let imported = match which % 6 {
        0 => hpcc::import(&hpcc::HpccFiles {
            topology: first,
            flows: second,
            config: third,
        }),
        1 => simai::import(&simai::SimaiFiles {
            topology: first,
            workload: second,
            config: third,
        }),
        2 => htsim::import(&htsim::HtsimFiles {
            topology: first,
            matrix: second,
            start_unit: htsim::StartUnit::Picoseconds,
        }),
        3 => goal::import(first, SERVERS),
        4 => nccl::import(first, SERVERS),
        _ => {
            let trace = |name| chakra::Trace { name, bytes: rest };
            chakra::import("file", &[trace("x.0.et"), trace("x.1.et")], SERVERS)
        }
    };
    match imported {
        Ok(imported) => {
            let mut none = |name: &str| Err(format!("{name} is not there"));
            let read = fabric_file::Document::read("fabric.toml", &imported.fabric, &mut none);
            read.expect("a fabric file");
        }
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
        }
    }
});
