//! Collectives: against closed forms, and against what must hold whatever the algorithm.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod closed_forms;
mod conservation;
mod invariants;
mod mistakes;
mod models;
mod nccl;
mod outcomes;

use fabric_file::Document;
use sim::experiment::Experiment;
use sim::report::{CollectiveReport, Report};
use sim::world::Results;

/// A run of a fabric file.
struct Ran {
    experiment: Experiment,
    results: Results,
    report: Report,
}

impl Ran {
    fn collective(&self, name: &str) -> &CollectiveReport {
        let mut all = self.report.collectives.iter();
        all.find(|one| one.name == name).unwrap()
    }
}

fn experiment(text: &str) -> Result<Experiment, String> {
    let mut files = |name: &str| Err(format!("{name} is not there"));
    let document =
        Document::read("test.toml", text, &mut files).map_err(|error| error.to_string())?;
    Experiment::new(&document, &mut files).map_err(|error| error.to_string())
}

fn run_on(text: &str, threads: u32) -> Ran {
    let mut experiment = experiment(text).unwrap_or_else(|error| panic!("{error}"));
    experiment.scenario.threads = threads;
    let ran = experiment.run(&mut |_| true).unwrap();
    let report = Report::new(&experiment, &ran.results, ran.partial);
    Ran {
        experiment,
        results: ran.results,
        report,
    }
}

fn run(text: &str) -> Ran {
    run_on(text, 1)
}
