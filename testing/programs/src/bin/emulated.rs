//! Long tests on emulated 64-bit ARM: seeds of the torture test, each over a network, over shared memory and
//! as a comparison of both, in QEMU's user mode; and processes that are killed, in an emulated machine of two
//! processors.
//!
//! `cargo run --release -p rockery-programs --bin emulated -- SEEDS KILLS`, as root, since the machine has a
//! network.

use std::process::ExitCode;
use std::time::Instant;

use programs::emulated::{kills, torture};

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|it| it.parse()).collect();
    let Ok([seeds, killed]) = numbers.as_deref() else {
        eprintln!("emulated: how many seeds, and how many kills?");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let result = torture(*seeds).and_then(|()| {
        let seconds = begin.elapsed().as_secs();
        println!("{seeds} seeds pass over a network, over shared memory and compared: {seconds} s");
        kills(*killed)
    });
    match result {
        Ok(()) => {
            let seconds = begin.elapsed().as_secs();
            println!("{killed} kills are survived: {seconds} s in all");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("emulated: {error}");
            ExitCode::FAILURE
        }
    }
}
