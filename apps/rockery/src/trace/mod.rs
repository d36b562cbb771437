//! Traces of programs: `rockery run --trace`, `rockery trace` and `rockery explain`.

mod explained;
mod ladder;
mod shown;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ::trace::Trace;
use ::trace::layout::{LIMIT_DEFAULT, header};
use os::mapping::{Mapping, READ};

use crate::args::Settings;
use crate::{Error, output, rules, sys};

/// The options of `rockery trace`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Show {
    /// Trace that rockery run --trace has written; of two machines, both
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How events are printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// File for the result, in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The formats of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each event
    Text,
    /// A JSON document in a line for each event
    Json,
    /// Chrome's trace events, for ui.perfetto.dev and chrome://tracing
    Perfetto,
    /// HTML: the messages between both ends as a ladder diagram
    Ladder,
}

/// The options of `rockery explain`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Explain {
    /// Trace that rockery run --trace has written; of two machines, both. Or the name of a rule of doctor,
    /// as its findings have it in brackets
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How mistakes are printed
    #[arg(long, value_enum, default_value = "text")]
    format: FindingFormat,
}

/// The formats of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FindingFormat {
    /// A page for a person
    Text,
    /// One JSON document
    Json,
}

/// The variables that make the libraries trace a program. The file is made here.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn variables(settings: &Settings) -> Result<Vec<(&'static str, OsString)>, Error> {
    let Some(path) = &settings.trace else {
        return Ok(Vec::new());
    };
    let limit = settings.trace_limit.unwrap_or(LIMIT_DEFAULT);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    let wall = wall.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
    let epoch_ns = wall.saturating_sub(host::traced::now_ns());
    host::capture::create_file(path)
        .and_then(|mut file| file.write_all(&header(limit, epoch_ns)))
        .map_err(Error::file(path))?;
    // The program may work in another folder.
    let path = path.canonicalize().map_err(Error::file(path))?;
    Ok(vec![(host::settings::TRACE, path.into())])
}

/// Files of traces, mapped.
struct Files(Vec<Mapping>);

impl Files {
    fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let files = paths.iter().map(|path| map(path));
        files.collect::<Result<_, _>>().map(Self)
    }

    fn read(&self) -> Result<Trace<'_>, Error> {
        let bytes: Vec<&[u8]> = self.0.iter().map(sys::bytes).collect();
        Trace::read(&bytes).map_err(Error::NoTrace)
    }
}

fn map(path: &Path) -> Result<Mapping, Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    let length = file.metadata().map_err(Error::file(path))?.len();
    // A mapping has a byte at least: a file without one is no trace, and is refused as one with zeros.
    let length = usize::try_from(length.max(1)).unwrap_or(usize::MAX);
    Mapping::shared(file.as_raw_fd(), 0, length, READ).map_err(Error::file(path))
}

/// Prints a trace.
///
/// # Errors
/// When a file is no trace, or the result cannot be written.
pub(crate) fn show(what: &Show) -> Result<(), Error> {
    let files = Files::open(&what.files)?;
    let trace = files.read()?;
    warn_of_lost(&trace);
    let mut sink = Sink::open(what.out.as_deref())?;
    match what.format {
        Format::Text => shown::text(&trace, &mut sink),
        Format::Json => shown::json(&trace, &mut sink),
        Format::Perfetto => shown::perfetto(&trace, &mut sink),
        Format::Ladder => sink.write(&ladder::page(&trace)),
    }?;
    sink.flush()
}

/// Prints the mistakes of a trace; the exit status is 1 if there are some. Of names of rules, what they mean.
///
/// # Errors
/// When a file is no trace, or the result cannot be written.
pub(crate) fn explain(what: &Explain) -> Result<ExitCode, Error> {
    if let Some(result) = explain_rules(what) {
        return result.map(|()| ExitCode::SUCCESS);
    }
    let files = Files::open(&what.files)?;
    let trace = files.read()?;
    warn_of_lost(&trace);
    let findings = ::trace::explain(&trace);
    match what.format {
        FindingFormat::Text => output::print(explained::text(&trace, &findings))?,
        FindingFormat::Json => output::json(explained::json(&trace, &findings))?,
    }
    Ok(match findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// `None` where the arguments are no names of rules: a file of that name is a trace.
fn explain_rules(what: &Explain) -> Option<Result<(), Error>> {
    if what.files.iter().any(|file| file.exists()) {
        return None;
    }
    let names: Option<Vec<&str>> = what.files.iter().map(|file| file.to_str()).collect();
    match what.format {
        FindingFormat::Text => rules::page(&names?).map(output::print),
        FindingFormat::Json => rules::document(&names?).map(output::json),
    }
}

fn warn_of_lost(trace: &Trace<'_>) {
    if trace.lost() > 0 {
        output::note!(
            "rockery: {} events had no room in the trace (rockery run --trace-limit BYTES)",
            trace.lost()
        );
    }
}

/// Where a trace is printed to, in blocks.
struct Sink {
    file: Option<File>,
    pending: String,
}

/// Text is written when there is so much of it.
const BLOCK_BYTES: usize = 1 << 16;

impl Sink {
    fn open(path: Option<&Path>) -> Result<Self, Error> {
        let file = path.map(|path| host::capture::create_file(path).map_err(Error::file(path)));
        Ok(Self {
            file: file.transpose()?,
            pending: String::new(),
        })
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        self.pending += text;
        match self.pending.len() < BLOCK_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let text = std::mem::take(&mut self.pending);
        match &mut self.file {
            Some(file) => file
                .write_all(text.as_bytes())
                .map_err(Error::file("--out")),
            None => output::bytes(text.as_bytes()),
        }
    }
}
