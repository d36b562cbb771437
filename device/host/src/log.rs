//! The log of the libraries, in the processes of programs: `ROCKERY_LOG` and `ROCKERY_LOG_FILE`.
//!
//! Everything is a `tracing` event with one of the targets `call`, `rnic`, `cm` and `host`. Without the
//! variable only warnings are written: settings that are wrong, and what the system refused. The subscriber
//! here takes no lock and keeps no descriptor open, because a program may fork, or close all descriptors, at
//! any moment: a line is one `write` to standard error, or to the file, which is opened for it.

pub use crate::log_filter::CALL;
use crate::log_filter::Filter;
pub(crate) use crate::log_filter::HOST;
use crate::settings;
use crate::sys::standard_error;
use os::write_signals::without_signals;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// Level of the C calls that are logged; read at each of them.
static CALLS: AtomicU8 = AtomicU8::new(NOT_STARTED);
const NOT_STARTED: u8 = 0;
const NO_CALLS: u8 = 1;
const SOME_CALLS: u8 = 2;

/// Whether any C calls are logged. The first call of the process installs the subscriber.
#[inline(always)]
pub fn has_calls() -> bool {
    match CALLS.load(Ordering::Relaxed) {
        NO_CALLS => false,
        calls => is_some(calls),
    }
}

#[cold]
fn is_some(calls: u8) -> bool {
    static START: Once = Once::new();
    if calls == NOT_STARTED {
        START.call_once(start);
    }
    CALLS.load(Ordering::Relaxed) == SOME_CALLS
}

fn start() {
    let filter = settings::log().unwrap_or_default();
    let calls = if filter.level_of(CALL) >= LevelFilter::DEBUG {
        SOME_CALLS
    } else {
        NO_CALLS
    };
    // An error means that the program, which is written in Rust, has a subscriber of its own: that one stays.
    let _ = tracing::subscriber::set_global_default(Logger {
        filter,
        file: settings::log_file(),
    });
    CALLS.store(calls, Ordering::Relaxed);
    for name in settings::unknown() {
        tracing::warn!(target: HOST, "{name} is no setting of rockery, and is ignored");
    }
}

/// The subscriber, which writes each event as a line.
struct Logger {
    filter: Filter,
    /// The file; `None` is standard error.
    file: Option<PathBuf>,
}

impl Subscriber for Logger {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.filter.level_of(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let (metadata, mut line) = (event.metadata(), Line::default());
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, micros) = (since.as_secs() % 86_400, since.subsec_micros());
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let (process, level) = (std::process::id(), metadata.level().as_str());
        // Writing to a string cannot fail.
        let _ = write!(
            line.text,
            "{hour:02}:{minute:02}:{second:02}.{micros:06} rockery[{process}] {level:<5} {}:",
            metadata.target()
        );
        event.record(&mut line);
        line.text.push_str(&line.fields);
        line.text.push('\n');
        self.write(line.text.as_bytes());
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Logger {
    /// Writes a line. An error changes nothing: there is no other place to report it.
    fn write(&self, line: &[u8]) {
        let _ = match &self.file {
            None => standard_error::write(line),
            Some(path) => append(path, line),
        };
    }
}

fn append(path: &PathBuf, line: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    without_signals(|| file.write_all(line))
}

/// A line under construction: the message, then the other fields as `name=value`.
#[derive(Default)]
struct Line {
    text: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.text, " {value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
