//! Mistakes in a fabric file: their kind, their place, and a correction.

use super::source::SourceLine;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The kind of a mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The text is not TOML.
    Syntax,
    /// A field that does not exist.
    UnknownField,
    /// A value that the field cannot have.
    Value,
    /// A name that no table or node has.
    UnknownName,
    /// Fields that contradict each other, or one that is missing.
    Combination,
    /// A file that is named and cannot be read.
    Reference,
    /// Beyond one of rockery's limits.
    Limit,
}

/// One mistake in a fabric file, where it stands, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The kind of the mistake.
    pub mistake: Mistake,
    /// The field, from the top: `switch[0].qos`. Empty where that is not known.
    pub field: String,
    /// A description of the mistake.
    pub what: String,
    /// The correction, where one is known.
    pub instead: Option<String>,
    /// The line in the file, where it is known.
    pub line: Option<SourceLine>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.line {
            write!(f, "{}:{}:{}: ", line.file, line.line, line.column)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)?;
        if let Some(line) = &self.line {
            for row in alloc::format!("{line}").lines() {
                write!(f, "\n  {row}")?;
            }
        }
        if let Some(instead) = &self.instead {
            write!(f, "\n  {instead}")?;
        }
        Ok(())
    }
}

/// All mistakes that were found at once.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(|problem| alloc::format!("{problem}")).collect::<Vec<_>>().join("\n"))]
pub struct FileError(pub Vec<Problem>);
