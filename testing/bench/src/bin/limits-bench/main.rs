//! `make bench`: rockery beside the limits of its machine and beside other programs, in one run.
//!
//! Machines differ and their speed varies while they work, so what counts are ratios: each figure is
//! measured several times, each time between two measurements of its limits, and the median ratio is taken.
//! The results of each run and kind of processor are kept in `docs/lab-book/bench`. `docs/performance.md` has
//! the ratios of the last run of each, `docs/lab-book/bench.md` its figures and a drawing.

mod drawing;
mod measured;
mod page;
mod place;
mod results;
mod row;
mod rows;
mod tools;
mod turns;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bench::{Machine, Table, fixed_loop};
use clap::Parser;
use programs::Rockery;

use crate::place::Place;
use crate::results::Results;
use crate::row::Row;

/// Measures rockery beside its limits and peers, and writes docs/performance.md and docs/lab-book/bench.md.
#[derive(Parser)]
struct Arguments {
    /// Part of a row's name; other rows are not measured, and the page stays as it is. Can be repeated.
    #[arg(long, value_name = "TEXT")]
    row: Vec<String>,
    /// Lists the names of all rows, and measures nothing.
    #[arg(long)]
    list: bool,
    /// How often each figure is measured.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Command of another build of rockery: its figures are measured in turns with this one's, and shown.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Puts the measured rows into the page even if they are not all.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limits-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let rows: Vec<Row> = rows::all()
        .into_iter()
        .filter(|row| is_selected(&arguments.row, &row.name))
        .collect();
    if rows.is_empty() {
        return Err("--row: no row has this in its name; --list names all rows".into());
    }
    if arguments.rounds == 0 {
        return Err("--rounds: at least 1".into());
    }
    if arguments.list {
        rows.iter().for_each(|row| println!("{}", row.name));
        return Ok(());
    }
    let other = arguments
        .against
        .as_deref()
        .map(Path::canonicalize)
        .transpose();
    let other = other
        .map_err(|error| format!("--against: {error}"))?
        .map(|path| Place::new(Rockery::at(path)));
    let results = measure(&rows, other.as_ref(), arguments.rounds)?;
    println!("{}", shown(&results));
    let is_part = !arguments.row.is_empty();
    if other.is_some() || (is_part && !arguments.keep) {
        return Ok(());
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    results.keep(&docs.join(page::RESULTS), is_part)?;
    Ok(page::write_all(&docs)?)
}

fn is_selected(texts: &[String], name: &str) -> bool {
    texts.is_empty() || texts.iter().any(|text| name.contains(text.as_str()))
}

fn measure(rows: &[Row], other: Option<&Place>, rounds: usize) -> Result<Results, Box<dyn Error>> {
    let place = Place::new(Rockery::built());
    let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    let mut results = Results {
        machine: Machine::this(),
        date: String::from_utf8(date)?.trim().to_owned(),
        rounds,
        fixed_loop: Vec::new(),
        rows: Vec::new(),
    };
    for (index, row) in rows.iter().enumerate() {
        eprintln!("{}/{} {}", index + 1, rows.len(), row.name);
        results.fixed_loop.push(fixed_loop());
        results
            .rows
            .push(turns::measure(row, &place, other, rounds)?);
    }
    Ok(results)
}

/// The printed text: all rows as they would be in the page, or beside the other build.
fn shown(results: &Results) -> String {
    let compared = results
        .rows
        .iter()
        .map(|row| Some((row, row.against_other()?)))
        .collect::<Option<Vec<_>>>();
    let Some(compared) = compared else {
        return page::figures(std::slice::from_ref(results));
    };
    let mut table = Table::new(1, ["what", "this build", "other build", "this / other", ""]);
    for (row, [other, ratio, verdict]) in compared {
        table.push([row.name.clone(), row.figure(), other, ratio, verdict]);
    }
    format!("{}\n\n{}", results.head(), table.markdown())
}
