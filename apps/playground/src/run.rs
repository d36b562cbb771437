//! One run, for the page.

use std::collections::BTreeMap;

use fabric::{Span, Time};
use fabric_file::{Document, FabricFile, Point};
use serde_json::{Value, json};
use sim::experiment::{CAPTURED_MAX, Experiment, Ran};
use sim::report::{Report, flows_csv, ports_csv, table, vendor_tables, write_pcap};

use crate::request::Request;
use crate::{dials, problems};

/// Samples of all ports together, about: as many as a page can draw.
const SAMPLES_MAX: u64 = 400_000;

/// Samples of one port, at least and at most.
const SAMPLES: std::ops::RangeInclusive<u64> = 20..=200;

/// Time between two samples where the end of the run is not known, for the largest number of samples of a
/// port.
const SAMPLE_UNKNOWN: Span = Span::from_us(20);

/// Called with the part of the run that is done, from 0 to 1; returns `false` to stop the run.
type Watch<'a> = &'a mut dyn FnMut(f64) -> bool;

/// A request's experiment, and the fields of its file without settings.
struct Prepared {
    experiment: Experiment,
    file: FabricFile,
    /// Settings of the request and of the sweep.
    settings: Point,
}

/// Reads the file, and applies the sliders' settings; for other fields of a sweep, the first values.
fn prepare(request: &Request) -> Result<Prepared, Value> {
    let refused = |error: fabric_file::FileError| problems::of(&error);
    let mut document: Document = request.document().map_err(refused)?;
    let file = document.fields().map_err(refused)?;
    let too_large =
        |runs: usize| json!({ "refused": format!("[sweep] has {runs} runs, which are too many") });
    let first = file
        .points()
        .map_err(too_large)?
        .into_iter()
        .next()
        .unwrap_or_default();
    let is_set = |path: &str| request.set.iter().any(|(set, _)| set == path);
    let mut settings: Point = first
        .into_iter()
        .filter(|(path, _)| !is_set(path))
        .collect();
    settings.extend(request.set.iter().cloned());
    // Sliders of the page are those of the sweep: one of them may have no effect beside another one's value.
    for (path, value) in &settings {
        document.vary(path, value).map_err(refused)?;
    }
    let experiment = Experiment::new(&document, &mut request.reader()).map_err(refused)?;
    Ok(Prepared {
        experiment,
        file,
        settings,
    })
}

/// Runs, and reports for the page.
///
/// # Errors
/// The answer to a request that cannot be run.
pub(crate) fn report(request: &Request, watch: Watch<'_>) -> Result<Value, Value> {
    let Prepared {
        mut experiment,
        file,
        settings,
    } = prepare(request)?;
    experiment.scenario.watch.hops = true;
    experiment.scenario.watch.sample_every = Some(sample_every(&experiment));
    let ran = run(&mut experiment, watch)?;
    let mut report = Report::new(&experiment, &ran.results, ran.partial);
    report.settings.clone_from(&settings);
    let vendors = vendor_tables(&experiment, &ran.results);
    let vendors: Vec<Value> = vendors
        .iter()
        .map(|printed| json!({ "switch": printed.switch, "system": printed.system, "text": printed.text }))
        .collect();
    Ok(json!({
        "title": report.title,
        "settings": settings,
        "dials": dials::of(&file),
        "body": format!(
            "<style>{}</style>{}",
            report::table_style(),
            report::simulation::body(&experiment, &report)
        ),
        "text": table(&report),
        "findings": report.findings,
        "notes": report.notes,
        "events": report.events,
        "vendors": vendors,
        "times_us": report.series.first().map(|series| series.at_us.clone()).unwrap_or_default(),
        "loads": loads(&experiment, &report),
        "ports": report.ports.iter().map(|port| &port.port).collect::<Vec<_>>(),
        "csv": { "flows": flows_csv(&report, None, true), "ports": ports_csv(&report) },
    }))
}

/// Runs, and writes the packets of one link as a pcap file.
///
/// # Errors
/// The answer to a request that cannot be run.
pub(crate) fn capture(request: &Request, watch: Watch<'_>) -> Result<Vec<u8>, Value> {
    let Prepared { mut experiment, .. } = prepare(request)?;
    let Some((link, _)) = experiment.port(&request.port) else {
        return Err(json!({ "refused": format!("no port is called {}", request.port) }));
    };
    experiment.scenario.watch.captures = vec![link];
    experiment.scenario.watch.captured_max = CAPTURED_MAX;
    let ran = run(&mut experiment, watch)?;
    let mut file = Vec::new();
    let written = write_pcap(&mut file, &experiment, link, &ran.results.captured);
    written.map_err(|error| json!({ "refused": error.to_string() }))?;
    Ok(file)
}

/// Runs with samples, or, if that would be too many, without.
fn run(experiment: &mut Experiment, watch: Watch<'_>) -> Result<Ran, Value> {
    let mut progress = |progress: sim::experiment::Progress| watch(progress.done);
    if let Ok(ran) = experiment.run(&mut progress) {
        return Ok(ran);
    }
    experiment.scenario.watch.sample_every = None;
    experiment
        .run(&mut progress)
        .map_err(|error| json!({ "refused": error.to_string() }))
}

fn sample_every(experiment: &Experiment) -> Span {
    let ports = 2 * experiment.network.topology.links().len() as u64;
    let count = (SAMPLES_MAX / ports.max(1)).clamp(*SAMPLES.start(), *SAMPLES.end());
    match experiment.scenario.end {
        Time::NEVER => SAMPLE_UNKNOWN.times(SAMPLES.end() / count),
        end => Span((end.0 / count).max(1)),
    }
}

/// For each link the load of its busier direction at each sample, in percent.
fn loads(experiment: &Experiment, report: &Report) -> Vec<Vec<u8>> {
    let mut loads = vec![Vec::new(); experiment.network.topology.links().len()];
    let ports: BTreeMap<&str, _> = report
        .ports
        .iter()
        .map(|port| (port.port.as_str(), port))
        .collect();
    for series in &report.series {
        let Some(port) = ports.get(series.port.as_str()) else {
            continue;
        };
        let of_link: &mut Vec<u8> = &mut loads[port.link as usize];
        of_link.resize(series.rate_bps.len().max(of_link.len()), 0);
        for (load, rate) in of_link.iter_mut().zip(&series.rate_bps) {
            let percent = 100.0 * rate / port.rate_bps.max(1) as f64;
            *load = (*load).max(percent.round().min(100.0) as u8);
        }
    }
    loads
}
