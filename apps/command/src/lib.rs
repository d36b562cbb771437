//! What the programs `rockery`, `rockery-bench` and `rockery-device-plugin` share: folders of this user,
//! processes, programs on PATH, text for terminals, and the arguments of the programs that `rockery` starts.
#![deny(unsafe_code)]

pub mod bench;
pub mod device_plugin;
pub mod printable;
pub mod process;
pub mod program;
pub mod runtime;
#[allow(unsafe_code, reason = "system calls that std does not have")]
pub mod sys;
