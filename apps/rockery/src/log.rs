//! The log of a server: lines for people, or JSON for programs, on standard error.

use tracing_subscriber::filter::LevelFilter;

/// Level and format of the log on standard error.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Log {
    /// Lowest level that is logged: off, error, warn, info, debug or trace.
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn")]
    level: LevelFilter,
    /// Format of the log: text, or JSON with one object per line.
    #[arg(long = "log-format", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Log {
    /// Installs the logger for this process.
    pub(crate) fn begin(&self) {
        let logger = tracing_subscriber::fmt()
            .with_max_level(self.level)
            .with_writer(std::io::stderr);
        // A logger that was installed before stays.
        _ = match self.format {
            Format::Text => logger.with_ansi(false).with_target(false).try_init(),
            Format::Json => logger
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .try_init(),
        };
    }
}
