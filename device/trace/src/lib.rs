//! Traces of RDMA programs: `rockery run --trace FILE`.
//!
//! The libraries write a trace while a program runs, through a shared mapping of the file, so that nothing is
//! lost when the program is killed. [`layout`] has the file's form: a header, and chunks, each of which one
//! thread of one process fills with records. [`Kind`] lists the records and their fields. [`Trace`] reads a
//! file, in the order of time; [`line()`] is the text of an event, and [`explain()`] finds the usual
//! mistakes.
#![forbid(unsafe_code)]

mod error;
mod event;
mod explain;
mod file;
mod kind;
pub mod layout;
mod names;
mod text;

pub use error::TraceError;
pub use event::Event;
pub use explain::{Finding, Mistake, explain};
pub use file::Trace;
pub use kind::{Kind, NONE};
pub use names::access_names;
pub use text::line;
