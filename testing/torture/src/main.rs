//! Runs seeds of the torture test: `torture --seeds 1000000`, with `--from FIRST` behind it those from
//! another one than 0 on, or one again: `torture --seed 42`. With `--shared-memory` before it over a
//! shared-memory channel (`--lane` is the option's old name), with `--compare` over both: then all that can
//! be seen has to be the same.

use std::process::ExitCode;
use torture::Between;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let between = match arguments.first().map(String::as_str) {
        Some("--shared-memory" | "--lane") => Between::SharedMemory,
        Some("--compare") => Between::Both,
        _ => Between::Network,
    };
    if between != Between::Network {
        arguments.remove(0);
    }
    let number = |text: &String| text.parse::<u64>().ok();
    match arguments.as_slice() {
        [flag, value] if flag == "--seed" => {
            number(value).map_or_else(usage, |seed| run(seed, 1, between))
        }
        [flag, value] if flag == "--seeds" => {
            number(value).map_or_else(usage, |count| run(0, count, between))
        }
        [flag, value, from, first] if flag == "--seeds" && from == "--from" => {
            let numbers = number(value).zip(number(first));
            numbers
                .filter(|(count, first)| first.checked_add(*count).is_some())
                .map_or_else(usage, |(count, first)| run(first, count, between))
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: torture [--shared-memory | --compare] --seeds COUNT [--from FIRST] | --seed SEED"
    );
    ExitCode::from(2)
}

fn run(first: u64, count: u64, between: Between) -> ExitCode {
    let mut total = torture::Summary::default();
    for seed in first..first + count {
        if between == Between::Both {
            match torture::compare(seed) {
                Ok(_) => continue,
                Err(failure) => {
                    eprintln!("{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
        match torture::run(seed, between) {
            Ok(summary) => {
                total.completed += summary.completed;
                total.dead += summary.dead;
                total.corrupted += summary.corrupted;
                total.retransmitted += summary.retransmitted;
                total.out_of_order += summary.out_of_order;
                total.executed += summary.executed;
                total.time_ns += summary.time_ns;
            }
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{count} seeds: {total:?}");
    ExitCode::SUCCESS
}
