//! JSON.

use super::Report;

impl Report {
    /// The report as JSON, one document.
    pub fn json(&self) -> String {
        // Numbers, texts and lists: nothing that JSON cannot say.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
