//! Lines of a text with their numbers, and the words in them.

use crate::{ImportError, Input};

/// A line that has words.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    file: &'a str,
    /// Its number, from 1 on.
    pub number: usize,
    /// What stands between its spaces.
    pub words: Vec<&'a str>,
}

/// The lines of a file that have words.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    file: &'a str,
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(input: Input<'a>) -> Self {
        Self {
            file: input.name,
            lines: input.text.lines().enumerate(),
        }
    }

    /// The next line, which the file has to have.
    pub(crate) fn expect(&mut self, what: &str) -> Result<Line<'a>, ImportError> {
        self.next().ok_or_else(|| ImportError {
            file: self.file.to_owned(),
            line: None,
            what: format!("the file ends before {what}"),
        })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        self.lines.find_map(|(index, text)| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let line = Line {
                file: self.file,
                number: index + 1,
                words,
            };
            (!line.words.is_empty()).then_some(line)
        })
    }
}

impl<'a> Line<'a> {
    pub(crate) fn error(&self, what: impl Into<String>) -> ImportError {
        ImportError {
            file: self.file.to_owned(),
            line: Some(self.number),
            what: what.into(),
        }
    }

    /// A note about the line.
    pub(crate) fn note_about(&self, what: &str) -> String {
        format!("{}:{}: {what}", self.file, self.number)
    }

    /// A word, which the line has to have.
    pub(crate) fn word(&self, index: usize, what: &str) -> Result<&'a str, ImportError> {
        let word = self.words.get(index).copied();
        word.ok_or_else(|| self.error(format!("{what} is missing: word {}", index + 1)))
    }

    /// A whole number of at most `most`.
    pub(crate) fn number(&self, index: usize, what: &str, most: u64) -> Result<u64, ImportError> {
        let word = self.word(index, what)?;
        let number: Result<u64, _> = word.parse();
        match number {
            Ok(number) if number <= most => Ok(number),
            Ok(number) => Err(self.error(format!("{what} is {number}, and at most {most}"))),
            Err(_) => Err(self.error(format!("{what} is a whole number, and not \"{word}\""))),
        }
    }

    /// A number with decimals, not below zero.
    pub(crate) fn decimal(&self, index: usize, what: &str) -> Result<f64, ImportError> {
        let word = self.word(index, what)?;
        let number = word.parse().ok();
        let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| self.error(format!("{what} is a number, and not \"{word}\"")))
    }

    /// Anything that a function reads from a word.
    pub(crate) fn quantity<T>(
        &self,
        index: usize,
        what: &str,
        read: fn(&str) -> Option<T>,
    ) -> Result<T, ImportError> {
        let word = self.word(index, what)?;
        read(word).ok_or_else(|| self.error(format!("{what} is not \"{word}\"")))
    }
}
