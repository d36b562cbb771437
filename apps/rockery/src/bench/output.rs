//! Where a comparison writes its results.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Error, output};

/// The results of a comparison in each of its forms.
pub(super) trait Printed: Serialize {
    /// Text for a terminal.
    fn table(&self) -> String;
    /// A page that opens offline.
    fn page(&self) -> String;
    /// One JSON document.
    fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Where results go, besides the terminal.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// JSON file for all results; `-`, or no name, is standard output, in place of the tables.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// HTML file for a report with plots, which opens offline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Output {
    /// Writes the files, and prints the tables or the JSON document.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn write(&self, report: &impl Printed) -> Result<(), Error> {
        if let Some(path) = &self.html {
            std::fs::write(path, report.page()).map_err(Error::file(path))?;
        }
        let is_json_shown = self
            .json
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = self.json.as_ref().filter(|_| !is_json_shown) {
            std::fs::write(path, report.json()).map_err(Error::file(path))?;
        }
        let text = if is_json_shown {
            report.json()
        } else {
            report.table()
        };
        output::line(text.trim_end())
    }
}
