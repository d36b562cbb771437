//! Runs with a progress bar, one or all of a sweep, and what Ctrl-C does to them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ::sim::experiment::{Experiment, Progress};
use ::sim::report::{RepetitionReport, Report};
use ::sim::world::EndedRepetition;
use fabric_file::{Document, Point};
use indicatif::{ProgressBar, ProgressStyle};

use super::Done;
use super::files::Files;
use super::repetitions::Repetitions;
use crate::Error;
use crate::args::Sim;

/// Steps of the bar of one run.
const STEPS: u64 = 1000;

/// Runs that are shorter than this never show a bar.
const BAR_AFTER: Duration = Duration::from_millis(300);

/// Exit status after a second Ctrl-C, as a shell gives it for SIGINT.
const INTERRUPTED: i32 = 130;

/// The input that all runs share.
pub(super) struct RunPlan<'a> {
    pub(super) sim: &'a Sim,
    pub(super) document: &'a Document,
    pub(super) files: &'a Files,
    pub(super) points: &'a [(usize, Point)],
}

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C ends runs early, with what they have; the second ends the program.
fn catch_interrupts() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let handler = || {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(INTERRUPTED);
            }
        };
        // Without a handler Ctrl-C ends the program, as it does everywhere.
        let _ = ctrlc::set_handler(handler);
    });
}

fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The experiment of one point of the sweep.
///
/// # Errors
/// Mistakes in the file, and outputs that would overwrite what the file names.
pub(super) fn experiment(
    document: &Document,
    point: &Point,
    files: &Files,
) -> Result<Experiment, Error> {
    let mut document = document.clone();
    for (path, value) in point {
        document.vary(path, value)?;
    }
    let experiment = Experiment::new(&document, &mut files.reader())?;
    experiment.refuse_settings_of_labs()?;
    files.check_outputs()?;
    Ok(experiment)
}

/// Runs one experiment, and reports on it. `show`: with a bar on the terminal.
pub(super) fn run(
    experiment: Experiment,
    point: &Point,
    show: bool,
    repetitions: Option<&mut Repetitions>,
) -> Result<Done, Error> {
    catch_interrupts();
    let bar = bar(
        STEPS,
        show,
        "{bar:30} {percent:>3}% {msg} {elapsed} ETA {eta}",
    );
    let started = std::time::Instant::now();
    let mut watch = |progress: Progress| {
        if started.elapsed() > BAR_AFTER {
            let rate = progress.hops as f64 / started.elapsed().as_secs_f64() / 1e6;
            let left = match progress.messages_left {
                0 => String::new(),
                left => format!(", {left} messages left"),
            };
            bar.set_message(format!(
                "{:.3} ms{left}, {rate:.1} M hops/s",
                progress.now.0 as f64 / 1e9
            ));
            bar.set_position((progress.done * STEPS as f64) as u64);
        }
        !stopped()
    };
    let ran = match repetitions {
        None => experiment.run(&mut watch)?,
        Some(repetitions) => {
            let mut tell = |ended: EndedRepetition| {
                if let Some(one) = RepetitionReport::new(&experiment, ended) {
                    repetitions.write(&one);
                }
            };
            experiment.run_and_tell(&mut watch, Some(&mut tell))?
        }
    };
    bar.finish_and_clear();
    let mut report = Report::new(&experiment, &ran.results, ran.partial);
    report.settings.clone_from(point);
    Ok(Done {
        report,
        experiment,
        results: ran.results,
    })
}

/// Runs all points on as many threads as there are processors, or as `--threads` gives; reports in the order
/// of the points. After Ctrl-C those that were not begun are left out.
pub(super) fn all(plan: &RunPlan<'_>, show: bool) -> Result<Vec<(usize, Report)>, Error> {
    catch_interrupts();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = plan
        .sim
        .threads
        .map_or(cores, |threads| threads as usize)
        .min(plan.points.len());
    let bar = bar(
        plan.points.len() as u64,
        show,
        "{bar:30} {pos}/{len} runs {elapsed} ETA {eta}",
    );
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Report, Error>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, point)) =
                    plan.points.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if stopped() {
                        break;
                    }
                    let report =
                        experiment(plan.document, point, plan.files).and_then(|mut experiment| {
                            super::refuse_options_of_ethernet(plan.sim, &experiment)?;
                            experiment.scenario.watch.sample_every = plan.sim.sample;
                            experiment.scenario.watch.hops = plan.sim.hops;
                            experiment.scenario.skip_steady = plan.sim.skipping();
                            run(experiment, point, false, None).map(|done| done.report)
                        });
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((*number, report));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter()
        .map(|(number, report)| report.map(|report| (number, report)))
        .collect()
}

fn bar(length: u64, show: bool, template: &str) -> ProgressBar {
    if !show {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style.progress_chars("█▌ "))
}
