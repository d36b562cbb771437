//! Regular expressions of this folder's lines.

use regex::Regex;

/// A pattern in which `\s` is a blank or a tab, and `\d` and `\w` are of ASCII: the crate `regex` has no
/// tables of Unicode here.
#[allow(
    clippy::unwrap_used,
    reason = "the patterns are constants, and tests use each"
)]
pub(super) fn pattern(text: &str) -> Regex {
    let text = text.replace(r"[\w\s]", r"[A-Za-z0-9_\x20\t]");
    let text = text
        .replace(r"\S", r"[^\x20\t]")
        .replace(r"\s", r"[\x20\t]");
    let text = text.replace(r"\d", "[0-9]").replace(r"\w", "[A-Za-z0-9_]");
    Regex::new(&text).unwrap()
}
