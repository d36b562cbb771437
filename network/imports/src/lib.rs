//! Files of other simulators and of training jobs as fabric files: networks, lists of flows, and what ranks
//! compute and send. What a file says is taken over, known to say nothing here, or named in a note; what
//! would change the meaning of the whole is refused with its line.

pub mod chakra;
pub mod goal;
mod graph;
pub mod hpcc;
pub mod htsim;
mod job;
mod lines;
pub mod nccl;
mod quantity;
mod schedule;
mod servers;
pub mod simai;
mod text;

pub use servers::{RANKS_PER_SERVER_MAX, Servers};

use std::fmt;

/// A file to import.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its name in errors and notes.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// A fabric file, the lists that it names, and what it has not taken over as it was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// The text of the fabric file.
    pub fabric: String,
    /// Files that belong beside it.
    pub lists: Vec<List>,
    /// What was left out, assumed or changed.
    pub notes: Vec<String>,
}

/// A file that a fabric file names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// The name by which the fabric file names it.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// A file that cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ImportError {
    /// The name of the file that is wrong.
    pub file: String,
    /// The line, from 1 on, if it is one line's.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}
