//! Places in the texts that a fabric file consists of: the file, included files, and settings of the command
//! line. Each text has its own range of positions, so that one number identifies text and place.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// A position or stretch within all texts.
pub(crate) type TextSpan = Range<usize>;

#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: String,
    start: usize,
    /// Where its lines end.
    newlines: Vec<usize>,
}

/// All texts that a document is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    sources: Vec<Source>,
}

/// A line of a text, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// The file's name.
    pub file: String,
    /// The line's number, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The line, or, if it is long, the part around the column.
    pub text: String,
    /// How many characters of the line are before `text`.
    pub skipped: usize,
    /// How many characters are marked, from the column on.
    pub width: usize,
}

/// Characters of a line that are shown at most, and how many of these stand before the column.
const SHOWN_MAX: usize = 200;
const SHOWN_BEFORE: usize = 60;

impl Sources {
    /// Adds a text; returns its number.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> usize {
        let start = self
            .sources
            .last()
            .map_or(0, |last| last.start + last.text.len() + 1);
        self.sources.push(Source {
            name: name.to_owned(),
            text: text.to_owned(),
            start,
            newlines: text.match_indices('\n').map(|(at, _)| at).collect(),
        });
        self.sources.len() - 1
    }

    /// Where the positions of a text begin.
    pub(crate) fn start(&self, number: usize) -> usize {
        self.sources.get(number).map_or(0, |source| source.start)
    }

    /// The name of the text of this number; empty where there is none.
    pub(crate) fn name(&self, number: usize) -> &str {
        self.sources.get(number).map_or("", |source| &source.name)
    }

    /// The text of this number; empty where there is none.
    pub(crate) fn text(&self, number: usize) -> &str {
        self.sources.get(number).map_or("", |source| &source.text)
    }

    /// The line of a position.
    pub(crate) fn line(&self, place: &TextSpan) -> Option<SourceLine> {
        let source = self
            .sources
            .iter()
            .rfind(|source| source.start <= place.start)?;
        let text = source.text.as_str();
        let mut at = (place.start - source.start).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &text[begin..];
        let content = rest.split(['\n', '\r']).next().unwrap_or_default();
        let column = text[begin..at].chars().count();
        let length = content.chars().count();
        let skipped = if length > SHOWN_MAX {
            column.saturating_sub(SHOWN_BEFORE)
        } else {
            0
        };
        let shown: String = content.chars().skip(skipped).take(SHOWN_MAX).collect();
        let room = (skipped + shown.chars().count()).saturating_sub(column);
        let wanted = text.get(at..place.end.saturating_sub(source.start).min(text.len()));
        Some(SourceLine {
            file: source.name.clone(),
            line: source.newlines.partition_point(|newline| *newline < begin) + 1,
            column: column + 1,
            text: shown,
            skipped,
            width: wanted
                .map_or(1, |text| text.chars().count())
                .min(room)
                .max(1),
        })
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = alloc::format!("{}", self.line);
        let (blank, marks) = (" ".repeat(gutter.len()), "^".repeat(self.width));
        writeln!(f, "{gutter} | {}", self.text)?;
        write!(
            f,
            "{blank} | {}{marks}",
            " ".repeat(self.column - 1 - self.skipped)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_text_keeps_its_lines() {
        let mut sources = Sources::default();
        assert_eq!(sources.add("a", "x = 1\ny = 2\n"), 0);
        let second = sources.add("b", "\u{e4} = 3");
        let second = sources.start(second);
        let line = sources.line(&(6..7)).unwrap();
        assert_eq!((line.file.as_str(), line.line, line.column), ("a", 2, 1));
        let line = sources.line(&(second + 5..second + 6)).unwrap();
        assert_eq!((line.file.as_str(), line.line, line.column), ("b", 1, 5));
        assert_eq!(line.to_string(), "1 | \u{e4} = 3\n  |     ^");
        let third = sources.add("c", &("x".repeat(5_000_000) + " = 1"));
        let place = sources.start(third) + 4_000_000;
        let line = sources.line(&(place..place + 900_000)).unwrap();
        assert_eq!(
            (line.column, line.text.len(), line.width),
            (4_000_001, SHOWN_MAX, 140)
        );
        assert_eq!(
            line.to_string()
                .lines()
                .nth(1)
                .unwrap()
                .trim_end()
                .chars()
                .count(),
            4 + SHOWN_MAX
        );
        assert!(
            sources.line(&(9_999_999..10_000_000)).is_some(),
            "behind the end is the end"
        );
    }
}
