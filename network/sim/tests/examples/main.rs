//! The experiments of `examples/`: each fabric file is run, and its results are checked.
#![allow(clippy::unwrap_used, reason = "tests")]

mod classes;
mod crs504;
mod digests;
mod functions;
mod guide;
mod incast;
mod infiniband;
mod life;
mod links;
mod lists;
mod live_functions;
mod nvme;
mod outputs;
mod pcie;
mod published;
mod replay;
mod settings;
mod shapes;
mod sonic;
mod spraying;
mod uet;
mod uneven;

use fabric_file::{Document, ReadFile};
use sim::experiment::Experiment;
use sim::report::{Finding, Report};
use sim::world::Results;
use std::path::Path;

/// A run of one of the files.
struct Ran {
    experiment: Experiment,
    results: Results,
    report: Report,
}

impl Ran {
    /// The first finding whose cause holds a text.
    fn finding(&self, cause: &str) -> &Finding {
        let found = self
            .report
            .findings
            .iter()
            .find(|finding| finding.cause.contains(cause));
        found.unwrap_or_else(|| {
            panic!(
                "no finding with \"{cause}\" among {:#?}",
                self.report.findings
            )
        })
    }

    fn dropped(&self) -> u64 {
        self.report
            .switches
            .iter()
            .map(|switch| switch.dropped)
            .sum()
    }
}

fn run_with(name: &str, sets: &[(&str, &str)], prepare: impl FnOnce(&mut Experiment)) -> Ran {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    let folder = path.parent().unwrap().to_owned();
    let mut files =
        |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut document =
        Document::read(name, &text, &mut files).unwrap_or_else(|error| panic!("{error}"));
    sets.iter().for_each(|(path, value)| {
        document
            .set(path, value)
            .unwrap_or_else(|error| panic!("{error}"))
    });
    ran_of(&document, &mut files, prepare)
}

fn ran_of(
    document: &Document,
    files: &mut ReadFile<'_>,
    prepare: impl FnOnce(&mut Experiment),
) -> Ran {
    let mut experiment = Experiment::new(document, files).unwrap_or_else(|error| panic!("{error}"));
    prepare(&mut experiment);
    let ran = experiment
        .run(&mut |_| true)
        .unwrap_or_else(|error| panic!("{error}"));
    let report = Report::new(&experiment, &ran.results, ran.partial);
    Ran {
        experiment,
        results: ran.results,
        report,
    }
}

fn run(name: &str, sets: &[(&str, &str)]) -> Ran {
    run_with(name, sets, |_| {})
}
