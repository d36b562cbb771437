//! `rockery sim`: networks in virtual time.

mod files;
mod parquet;
mod repetitions;
mod runs;
mod summary;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::sim::experiment::{CAPTURED_MAX, Experiment, check_sweep};
use ::sim::report::{
    Report, collectives_csv, counted, flows_csv, hops_csv, links_csv, number_settings, ports_csv,
    table, vendor_tables, write_life, write_pcap,
};
use ::sim::world::Results;
use fabric::{Span, Time};
use fabric_file::{Document, Point};

use crate::args::{LifeFormat, Sim};
use crate::{Error, output, printable};
pub(crate) use files::Files;
use files::beside;
use repetitions::Repetitions;

/// Samples in a run for the plots, where no interval is given.
const SAMPLES: u64 = 200;

/// The interval of samples where the duration of the run is not known.
const SAMPLE_UNKNOWN: Span = Span::from_us(20);

/// A run's report, and what is only known with its network at hand.
pub(super) struct Done {
    report: Report,
    experiment: Experiment,
    results: Results,
}

/// Runs the simulations that a fabric file describes.
///
/// # Errors
/// Mistakes in the file, and files that cannot be written.
pub(crate) fn act(sim: &Sim) -> Result<ExitCode, Error> {
    let files = Files::new(sim)?;
    let text = files.read(&sim.file)?;
    let mut document = Document::read(&sim.file.display().to_string(), &text, &mut files.reader())?;
    files.check_outputs()?;
    for (path, value) in &sim.set {
        document.set(path, value)?;
    }
    if let Some(seed) = sim.seed {
        document.set("seed", &seed.to_string())?;
    }
    let points = document.fields()?.points().map_err(Error::SweepTooLarge)?;
    if sim.points {
        let numbered: Vec<(usize, &Point)> = points.iter().enumerate().collect();
        return print_points(&numbered).map(|()| ExitCode::SUCCESS);
    }
    let all = points.clone();
    let points = chosen(sim, points)?;
    let of_one_run = [
        ("--pcap", !sim.pcap.is_empty()),
        ("--repetitions", sim.repetitions.is_some()),
        ("--trace", sim.trace.is_some()),
    ];
    let mut given = of_one_run.into_iter().filter(|(_, is_given)| *is_given);
    if let Some((option, _)) = given.next().filter(|_| points.len() > 1) {
        return Err(Error::OneRunOnly(option));
    }
    check_sweep(&document, &all, &mut files.reader())?;
    if sim.check {
        return check_points(&document, &points, &files).map(|()| ExitCode::SUCCESS);
    }
    if sim.explain {
        return explain(sim, &document, &points, &files).map(|()| ExitCode::SUCCESS);
    }
    let plan = runs::RunPlan {
        sim,
        document: &document,
        files: &files,
        points: &points,
    };
    let failing = match points.as_slice() {
        [(_, point)] => one(&plan, point)?,
        _ => sweep(&plan)?,
    };
    Ok(if failing == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How many findings `--fail-on` names, in all runs.
fn failing<'a>(sim: &Sim, reports: impl IntoIterator<Item = &'a Report>) -> usize {
    let Some(severity) = sim.fail_on else {
        return 0;
    };
    reports
        .into_iter()
        .map(|report| severity.matching(report))
        .sum()
}

fn print_points(points: &[(usize, &Point)]) -> Result<(), Error> {
    for (number, point) in points {
        let settings: Vec<String> = point
            .iter()
            .map(|(path, value)| format!("{path}={value}"))
            .collect();
        output::line(format_args!("{number}\t{}", settings.join("\t")))?;
    }
    Ok(())
}

/// The runs that are to be made, with their numbers.
fn chosen(sim: &Sim, points: Vec<Point>) -> Result<Vec<(usize, Point)>, Error> {
    let count = points.len();
    let mut numbered: Vec<(usize, Point)> = points.into_iter().enumerate().collect();
    if let Some(wanted) = sim.point {
        numbered.retain(|(number, _)| *number == wanted);
        if numbered.is_empty() {
            return Err(Error::NoSuchPoint { wanted, count });
        }
    }
    Ok(numbered)
}

fn check_points(
    document: &Document,
    points: &[(usize, Point)],
    files: &Files,
) -> Result<(), Error> {
    let mut described = None;
    for (_, point) in points {
        described.get_or_insert(runs::experiment(document, point, files)?);
    }
    let Some(experiment) = described else {
        return Ok(());
    };
    name_notes(&experiment.notes());
    let topology = &experiment.network.topology;
    output::line(format_args!(
        "{}: {}, {}, {}, {} in {}, {}",
        if experiment.file.title.is_empty() {
            "no title"
        } else {
            &experiment.file.title
        },
        counted(u64::from(topology.hosts()), "host", "hosts"),
        counted(u64::from(topology.switches()), "switch", "switches"),
        counted(topology.links().len() as u64, "link", "links"),
        counted(
            experiment.scenario.flows.len() as u64,
            "queue pair",
            "queue pairs"
        ),
        counted(experiment.workloads.len() as u64, "workload", "workloads"),
        counted(points.len() as u64, "run", "runs")
    ))
}

/// Prints the formulas of models; in a sweep, those of each run.
fn explain(
    sim: &Sim,
    document: &Document,
    points: &[(usize, Point)],
    files: &Files,
) -> Result<(), Error> {
    for (number, point) in points {
        let experiment = runs::experiment(document, point, files)?;
        if experiment.models.is_empty() {
            return Err(Error::NoModel(sim.file.clone()));
        }
        if points.len() > 1 {
            print_points(&[(*number, point)])?;
        }
        for model in &experiment.models {
            output::line(format_args!("{}", model.explanation.trim_end()))?;
        }
    }
    Ok(())
}

/// Names what has no effect, and the lines of vendors' configurations that the run leaves out.
fn name_notes(notes: &[String]) {
    for note in notes {
        output::note!("rockery: {note}");
    }
}

/// Refuses options that InfiniBand does not have.
fn refuse_options_of_ethernet(sim: &Sim, experiment: &Experiment) -> Result<(), Error> {
    let options = [
        ("--pcap", !sim.pcap.is_empty()),
        ("--skip-steady", sim.skip_steady),
    ];
    let is_infiniband = experiment.subnet.is_some();
    let mut refused = options
        .into_iter()
        .filter(|(_, is_given)| is_infiniband && *is_given);
    match refused.next() {
        Some((option, _)) => Err(Error::NotOnInfiniband(option)),
        None => Ok(()),
    }
}

/// One run: a table, and the files that the options name. Returns how many findings `--fail-on` names.
fn one(plan: &runs::RunPlan<'_>, point: &Point) -> Result<usize, Error> {
    let sim = plan.sim;
    let mut experiment = runs::experiment(plan.document, point, plan.files)?;
    refuse_options_of_ethernet(sim, &experiment)?;
    name_notes(&experiment.notes());
    let known = experiment.notes().len();
    experiment.scenario.threads = sim.threads.unwrap_or(1);
    let links = captured_links(&experiment, sim)?;
    experiment.scenario.watch.captures = links.iter().map(|(link, _)| *link).collect();
    experiment.scenario.watch.captured_max = if links.is_empty() { 0 } else { CAPTURED_MAX };
    experiment.scenario.watch.sample_every = sample_every(&experiment, sim);
    experiment.scenario.watch.hops = sim.hops;
    let traced = sim.trace.as_deref().map(|name| experiment.queue_pair(name));
    experiment.scenario.watch.traced = traced.transpose()?;
    experiment.scenario.skip_steady = sim.skipping();
    let mut repetitions = sim
        .repetitions
        .as_deref()
        .map(Repetitions::create)
        .transpose()?;
    let done = runs::run(
        experiment,
        point,
        io::stderr().is_terminal(),
        repetitions.as_mut(),
    )?;
    repetitions.map_or(Ok(()), Repetitions::end)?;
    name_notes(&done.report.notes[known..]);
    for (link, path) in links {
        let mut file = io::BufWriter::new(fs::File::create(&path).map_err(Error::file(&path))?);
        write_pcap(&mut file, &done.experiment, link, &done.results.captured)
            .map_err(Error::file(&path))?;
        file.flush().map_err(Error::file(&path))?;
    }
    let is_alone = write_trace(sim, &done)?;
    if let Some(path) = &sim.csv {
        csvs(sim, path, &done.report)?;
    }
    if let Some(path) = &sim.parquet {
        parquets(sim, path, std::slice::from_ref(&done.report))?;
    }
    if let Some(path) = &sim.html {
        write(
            path,
            &::report::simulation::page(&done.experiment, &done.report),
        )?;
    }
    if let Some(path) = &sim.json {
        write(path, &(done.report.json() + "\n"))?;
    }
    if !is_alone && !is_stdout(sim.json.as_deref()) && !is_stdout(sim.csv.as_deref()) {
        // What is printed last stays on the screen: the findings.
        let tables = vendor_tables(&done.experiment, &done.results);
        for printed in tables.iter().filter(|_| sim.tables) {
            output::print(format_args!(
                "{}, as {} prints it\n\n{}\n",
                printed.switch, printed.system, printed.text
            ))?;
        }
        output::print(table(&done.report))?;
        if let Some(first) = tables.first().filter(|_| !sim.tables) {
            output::print(format_args!(
                "\n--tables shows counters of {} as {} prints them.\n",
                first.switch, first.system
            ))?;
        }
    }
    Ok(failing(sim, [&done.report]))
}

/// Writes the life of the queue pair that `--trace` names; whether standard output is for it alone.
fn write_trace(sim: &Sim, done: &Done) -> Result<bool, Error> {
    let Some(life) = &done.results.life else {
        return Ok(false);
    };
    let format = sim.trace_format.into();
    let path = sim.trace_out.as_deref();
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = write_life(&mut text, &done.experiment, life, format);
        let is_alone = sim.trace_format != LifeFormat::Text;
        let end = if is_alone { "" } else { "\n" };
        output::print(format_args!("{}{end}", String::from_utf8_lossy(&text)))?;
        return Ok(is_alone);
    };
    let mut file = io::BufWriter::new(fs::File::create(path).map_err(Error::file(path))?);
    write_life(&mut file, &done.experiment, life, format).map_err(Error::file(path))?;
    file.flush().map_err(Error::file(path))?;
    Ok(false)
}

fn sweep(plan: &runs::RunPlan<'_>) -> Result<usize, Error> {
    let sim = plan.sim;
    if let Some((_, first)) = plan.points.first() {
        name_notes(&runs::experiment(plan.document, first, plan.files)?.notes());
    }
    let mut reports = runs::all(plan, io::stderr().is_terminal())?;
    if let Some(path) = &sim.csv {
        number_settings(&mut reports);
        let rows = reports.iter().enumerate();
        let text: String = rows
            .map(|(row, (number, report))| flows_csv(report, Some(*number), row == 0))
            .collect();
        write(path, &text)?;
        if sim.hops && !is_stdout(Some(path)) {
            let rows = reports.iter().enumerate();
            let text: String = rows
                .map(|(row, (number, report))| hops_csv(report, Some(*number), row == 0))
                .collect();
            write(&beside(path, ".hops.csv"), &text)?;
        }
        let has_any = reports
            .iter()
            .any(|(_, report)| !report.collectives.is_empty());
        if has_any && !is_stdout(Some(path)) {
            let rows = reports.iter().enumerate();
            let text: String = rows
                .map(|(row, (number, report))| collectives_csv(report, Some(*number), row == 0))
                .collect();
            write(&beside(path, ".collectives.csv"), &text)?;
        }
        if sim.hops && has_any && !is_stdout(Some(path)) {
            let rows = reports.iter().enumerate();
            let text: String = rows
                .map(|(row, (number, report))| links_csv(report, Some(*number), row == 0))
                .collect();
            write(&beside(path, ".links.csv"), &text)?;
        }
    }
    let only: Vec<Report> = reports.iter().map(|(_, report)| report.clone()).collect();
    if let Some(path) = &sim.parquet {
        parquets(sim, path, &only)?;
    }
    if let Some(path) = &sim.html {
        write(path, &::report::simulation::sweep_page(&reports))?;
    }
    if let Some(path) = &sim.json {
        // Documents side by side, one per run, as tools for JSON streams take them.
        let text: String = only.iter().map(|report| report.json() + "\n").collect();
        write(path, &text)?;
    }
    if !is_stdout(sim.json.as_deref()) && !is_stdout(sim.csv.as_deref()) {
        output::print(summary::table(&reports))?;
    }
    Ok(failing(sim, &only))
}

/// The tables of one run.
fn csvs(sim: &Sim, path: &Path, report: &Report) -> Result<(), Error> {
    write(path, &flows_csv(report, None, true))?;
    // Standard output gets one table.
    if !is_stdout(Some(path)) {
        write(&beside(path, ".ports.csv"), &ports_csv(report))?;
        if !report.collectives.is_empty() {
            write(
                &beside(path, ".collectives.csv"),
                &collectives_csv(report, None, true),
            )?;
        }
        if sim.hops {
            write(&beside(path, ".hops.csv"), &hops_csv(report, None, true))?;
        }
        if sim.hops && !report.collectives.is_empty() {
            write(&beside(path, ".links.csv"), &links_csv(report, None, true))?;
        }
    }
    Ok(())
}

fn parquets(sim: &Sim, path: &Path, reports: &[Report]) -> Result<(), Error> {
    parquet::write(path, reports)?;
    if reports.iter().any(|report| !report.collectives.is_empty()) {
        parquet::write_collectives(&beside(path, ".collectives.parquet"), reports)?;
    }
    if sim.hops {
        parquet::write_hops(&beside(path, ".hops.parquet"), reports)
    } else {
        Ok(())
    }
}

fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    if path == Path::new("-") {
        // Names are in strings of JSON, or in fields of CSV, which has no escapes.
        return output::document(printable::json(text));
    }
    fs::write(path, text).map_err(Error::file(path))
}

/// The links whose packets are to be written, and where to.
fn captured_links(experiment: &Experiment, sim: &Sim) -> Result<Vec<(u32, PathBuf)>, Error> {
    let link = |(name, path): &(String, PathBuf)| {
        let found = experiment.port(name).map(|(link, _)| (link, path.clone()));
        found.ok_or_else(|| {
            let links = experiment.network.topology.links().iter();
            let ends = links.flat_map(|link| link.ends).take(8);
            let names: Vec<String> = ends.map(|end| experiment.network.port_name(end)).collect();
            Error::NoSuchPort {
                name: name.clone(),
                there: format!("{}, …", names.join(", ")),
            }
        })
    };
    sim.pcap.iter().map(link).collect()
}

fn sample_every(experiment: &Experiment, sim: &Sim) -> Option<Span> {
    let wanted = sim.sample.or_else(|| {
        let end = experiment.scenario.end;
        let known = (end != Time::NEVER).then_some(Span(end.0 / SAMPLES));
        (sim.html.is_some() && !sim.skip_steady).then(|| known.unwrap_or(SAMPLE_UNKNOWN))
    });
    wanted.filter(|every| every.0 > 0)
}
