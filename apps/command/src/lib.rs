//! What the programs `rockery` and `rockery-bench` share: folders of this user, processes, programs on PATH,
//! text for terminals, and the arguments of the comparisons that `rockery bench` starts.
#![deny(unsafe_code)]

pub mod bench;
pub mod printable;
pub mod process;
pub mod program;
pub mod runtime;
#[allow(unsafe_code, reason = "system calls that std does not have")]
pub mod sys;
