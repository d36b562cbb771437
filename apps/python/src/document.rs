//! Fabric files, and runs of their experiments.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric::Span;
use fabric_file::{FileError, Point, Problem};
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sim::experiment::Experiment;
use sim::input;
use units::{Quantity, Timespan};

use crate::report::Report;

pyo3::create_exception!(
    rockery,
    FabricError,
    PyValueError,
    "A fabric file that cannot be simulated.\n\nThe message states each mistake with its place in the file. \
     ``problems`` is a list of dictionaries with the keys ``file``, ``line`` and ``column`` (from 1, None \
     where unknown), ``field``, ``what`` and ``instead``."
);

/// Threads of one run at most, as for `rockery sim --threads`.
const THREADS_MAX: u32 = 64;

/// Stops runs on other threads.
#[pyclass(frozen, module = "rockery._rockery")]
#[derive(Default)]
pub(crate) struct Stop {
    stopped: AtomicBool,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends all runs that were given this object, within about 0.1 s. They raise KeyboardInterrupt.
    fn set(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// A fabric file with everything that it includes, and with settings.
#[pyclass(frozen, module = "rockery._rockery")]
pub(crate) struct Document {
    document: fabric_file::Document,
    /// Folder to which names of further files are relative.
    folder: PathBuf,
    points: Vec<Point>,
}

#[pymethods]
impl Document {
    /// Reads a file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, settings: Vec<(String, String)>) -> PyResult<Self> {
        py.detach(|| {
            let read = File::open(&path).and_then(input::text);
            let text =
                read.map_err(|error| PyOSError::new_err(format!("{}: {error}", path.display())))?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            new(&path.display().to_string(), &text, folder, &settings)
        })
    }

    /// Takes a file's text. Names of further files are relative to `folder`.
    #[staticmethod]
    fn parse(
        py: Python<'_>,
        name: &str,
        text: &str,
        folder: PathBuf,
        settings: Vec<(String, String)>,
    ) -> PyResult<Self> {
        py.detach(|| new(name, text, folder, &settings))
    }

    /// The settings of each run of the sweep: paths and values; one empty list without a sweep.
    #[getter]
    fn points(&self) -> Vec<Point> {
        self.points.clone()
    }

    /// Simulates one point.
    #[pyo3(signature = (point, *, sample, hops, threads, stop))]
    fn run(
        &self,
        py: Python<'_>,
        point: usize,
        sample: Option<&str>,
        hops: bool,
        threads: u32,
        stop: Option<Py<Stop>>,
    ) -> PyResult<Report> {
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(PyValueError::new_err(format!(
                "threads: from 1 to {THREADS_MAX}, not {threads}"
            )));
        }
        let sample = sample.map(span).transpose()?;
        let count = self.points.len();
        let Some(point) = self.points.get(point) else {
            return Err(PyIndexError::new_err(format!(
                "no run {point}: the sweep has {count}, from 0"
            )));
        };
        let stop = stop.as_ref().map(|stop| &stop.get().stopped);
        let report = py.detach(|| self.simulate(point, sample, hops, threads, stop))?;
        Ok(Report(Arc::new(report)))
    }
}

impl Document {
    fn simulate(
        &self,
        point: &Point,
        sample: Option<Span>,
        hops: bool,
        threads: u32,
        stop: Option<&AtomicBool>,
    ) -> PyResult<sim::report::Report> {
        let mut document = self.document.clone();
        for (path, value) in point {
            document.vary(path, value).map_err(refused)?;
        }
        let mut experiment =
            Experiment::new(&document, &mut input::reader(&self.folder)).map_err(refused)?;
        experiment.scenario.threads = threads;
        experiment.scenario.watch.sample_every = sample;
        experiment.scenario.watch.hops = hops;
        let mut interrupted = None;
        let ran = experiment.run(&mut |_| {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                interrupted = Some(pyo3::exceptions::PyKeyboardInterrupt::new_err("stopped"));
            } else {
                // Ctrl-C; on the main thread only.
                interrupted = Python::attach(|py| py.check_signals()).err();
            }
            interrupted.is_none()
        });
        if let Some(error) = interrupted {
            return Err(error);
        }
        let ran = ran.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut report = sim::report::Report::new(&experiment, &ran.results, ran.partial);
        report.settings.clone_from(point);
        Ok(report)
    }
}

fn new(
    name: &str,
    text: &str,
    folder: PathBuf,
    settings: &[(String, String)],
) -> PyResult<Document> {
    let mut document =
        fabric_file::Document::read(name, text, &mut input::reader(&folder)).map_err(refused)?;
    for (path, value) in settings {
        document.set(path, value).map_err(refused)?;
    }
    let points = document.fields().map_err(refused)?.points();
    let points = points.map_err(|runs| {
        PyValueError::new_err(format!("[sweep] has {runs} runs, which are too many"))
    })?;
    sim::experiment::check_sweep(&document, &points, &mut input::reader(&folder))
        .map_err(refused)?;
    Ok(Document {
        document,
        folder,
        points,
    })
}

fn span(text: &str) -> PyResult<Span> {
    let span = Timespan::parse(text)
        .map(|it| it.0)
        .filter(|span| span.0 > 0);
    span.ok_or_else(|| {
        PyValueError::new_err(format!(
            "sample: '{text}' is no interval: write {}",
            Timespan::GRAMMAR
        ))
    })
}

/// The exception for mistakes in a file.
fn refused(error: FileError) -> PyErr {
    Python::attach(|py| {
        let raised = FabricError::new_err(error.to_string());
        let problems: PyResult<Vec<_>> = error
            .0
            .iter()
            .map(|problem| described(py, problem))
            .collect();
        match problems.and_then(|problems| raised.value(py).setattr("problems", problems)) {
            Ok(()) => raised,
            Err(other) => other,
        }
    })
}

fn described<'py>(py: Python<'py>, problem: &Problem) -> PyResult<Bound<'py, PyDict>> {
    let line = problem.line.as_ref();
    let described = PyDict::new(py);
    described.set_item("file", line.map(|line| &line.file))?;
    described.set_item("line", line.map(|line| line.line))?;
    described.set_item("column", line.map(|line| line.column))?;
    described.set_item("field", &problem.field)?;
    described.set_item("what", &problem.what)?;
    described.set_item("instead", &problem.instead)?;
    Ok(described)
}
