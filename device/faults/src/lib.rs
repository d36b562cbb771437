//! Faults that programs meet on purpose: `rockery run --fault`.
//!
//! ```text
//! post_send: fail ENOMEM after 100 opcode rdma_write
//! ───┬───── ─────┬────── ────────────┬─────────────
//!  point      action             conditions
//! ```
//!
//! A [`Rule`] says at which [`Point`] an [`Action`] happens, and under which conditions. The text above is
//! its one form: the command passes rules to the libraries as such lines, the control socket takes them, and
//! a file in TOML (feature `file`) has the same words as keys. A [`Plan`] has the rules of a process, counts
//! the [`Occasion`]s that each of them matches, and decides. Its decisions depend on these counts and on the
//! seed alone, so that a run with the same calls meets the same faults.
//!
//! There is no clock, no socket and no environment variable here: `host::faults` has them.

mod action;
mod calls;
mod error;
#[cfg(feature = "file")]
mod file;
mod journal;
mod names;
mod occasion;
mod plan;
mod point;
mod rule;
mod send_filter;
mod status;
mod text;
mod value;

pub use action::Action;
pub use calls::{CALLS, NO_ERRNO, canonical_call};
pub use error::RuleError;
#[cfg(feature = "file")]
pub use file::{FileError, read_file};
pub use journal::Entry;
pub use names::{CmKind, EventKind, Limit, Opcode, PacketKind, QpKind};
pub use occasion::Occasion;
pub use plan::{Decision, Interest, Plan, Status as RuleStatus, Timed};
pub use point::Point;
pub use rule::{Rule, Rules};
pub use send_filter::SendFilter;
pub use status::WcStatus;
pub use value::Ratio;
