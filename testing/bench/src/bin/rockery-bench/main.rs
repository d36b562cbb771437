//! `rockery-bench`: published comparisons, repeated on this machine. `rockery bench` starts this program.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "`output` decides what happens when standard output or standard error is closed"
)]

mod disk_file;
mod documents;
mod error;
mod figures;
mod matrix;
mod model;
mod nvme;
mod output;
mod page;
mod paths;
mod place;
mod programs;
mod published;
mod repeats;
mod report;
mod smb;
mod steady;
mod tap;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use command::bench::Bench;
use command::printable;

use error::Error;
use programs::Programs;

/// Repeats published comparisons on this machine, with tables, JSON and a page of plots.
///
/// `rockery bench` starts this program with its own arguments.
#[derive(Debug, Parser)]
#[command(name = "rockery-bench", version)]
struct Args {
    /// Path of the command rockery that is measured; without it, the one in the folder of this program, or
    /// else the one on PATH.
    #[arg(long, value_name = "PATH")]
    rockery: Option<PathBuf>,
    /// What is compared, with its options.
    #[command(subcommand)]
    bench: Bench,
}

fn main() -> ExitCode {
    let Args { rockery, bench } = Args::parse();
    match act(&bench, rockery) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::OutputClosed) => command::sys::end_by_a_broken_pipe(),
        Err(error) => {
            // The message may contain text of another program.
            output::note!("rockery-bench: {}", printable::lines(&error.to_string()));
            ExitCode::from(error.status())
        }
    }
}

/// Runs a comparison.
///
/// # Errors
/// When nothing could be measured, or a file cannot be written.
fn act(bench: &Bench, rockery: Option<PathBuf>) -> Result<(), Error> {
    let programs = Programs::new(rockery)?;
    match bench {
        Bench::Nvme(what) => nvme::act(what, &programs),
        Bench::Smb(what) => smb::act(what, &programs),
        Bench::Paths(what) => paths::act(what, &programs),
        Bench::Documents(what) => documents::act(what, &programs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
