//! The log of a server: lines for people, or JSON for programs, on standard error.

use tracing_subscriber::filter::LevelFilter;

/// What is logged, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Log {
    /// Log what is at least as important: off, error, warn, info, debug or trace.
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn")]
    level: LevelFilter,
    /// Log lines for people, or one JSON object a line.
    #[arg(long = "log-format", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Log {
    /// Begins to log.
    pub(crate) fn begin(&self) {
        let logger = tracing_subscriber::fmt().with_max_level(self.level).with_writer(std::io::stderr);
        // Somebody may have begun before us: then theirs is the log.
        _ = match self.format {
            Format::Text => logger.with_ansi(false).with_target(false).try_init(),
            Format::Json => logger.json().flatten_event(true).with_current_span(false).try_init(),
        };
    }
}
