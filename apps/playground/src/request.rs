//! Requests of the page.

use std::collections::BTreeMap;

use fabric_file::{Document, FileError};
use serde::Deserialize;

/// The name of the edited file in messages.
pub(crate) const EDITED: &str = "file";

/// A request of the page, with its files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The work to do.
    #[serde(rename = "do")]
    pub(crate) action: Action,
    /// The fabric file.
    #[serde(default)]
    pub(crate) text: String,
    /// Files that the fabric file names, by these names.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    /// Settings: paths and values, as `--set` takes them.
    #[serde(default)]
    pub(crate) set: Vec<(String, String)>,
    /// The port whose link is captured.
    #[serde(default)]
    pub(crate) port: String,
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// The examples, and the schema of fabric files.
    Start,
    /// One run, with its report.
    Run,
    /// One run, with the packets of a link.
    Capture,
}

impl Request {
    /// The fabric file without the settings.
    pub(crate) fn document(&self) -> Result<Document, FileError> {
        Document::read(EDITED, &self.text, &mut self.reader())
    }

    /// Gets the files that the fabric file names.
    pub(crate) fn reader(&self) -> impl FnMut(&str) -> Result<String, String> {
        |name| {
            let plain = name.trim_start_matches("./");
            self.files
                .get(plain)
                .cloned()
                .ok_or_else(|| "the page has no file of this name".to_owned())
        }
    }
}
