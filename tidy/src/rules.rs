//! The rules.

pub mod arrows;
pub mod manifests;
pub mod paths;
pub mod sans_io;
pub mod settling;
pub mod size;
pub mod unsafe_code;
pub mod words;
