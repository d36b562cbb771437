//! JSON.

use super::Report;
use fabric::Drop;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

impl Report {
    /// The report as JSON, one document.
    pub fn json(&self) -> String {
        // Numbers, texts and lists: all of them have a form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report that [`Report::json`] wrote: equal to the one that was written.
    ///
    /// # Errors
    /// Where the text is no report, with the line.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Counts by reason: every reason is one of [`Drop`]'s names.
pub(super) fn reasons<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<(&'static str, u64)>, D::Error> {
    let counts = Vec::<(String, u64)>::deserialize(from)?;
    let known = |(name, count): (String, u64)| {
        let reason = Drop::ALL
            .into_iter()
            .map(Drop::name)
            .find(|known| *known == name);
        reason
            .map(|reason| (reason, count))
            .ok_or_else(|| D::Error::unknown_variant(&name, &[]))
    };
    counts.into_iter().map(known).collect()
}
