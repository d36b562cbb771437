//! The rules.

pub mod arrows;
pub mod claims;
pub mod comments;
pub mod cycles;
pub mod environment;
pub mod licences;
pub mod manifests;
pub mod pages;
pub mod parameters;
pub mod paths;
pub mod printing;
pub mod sans_io;
pub mod size;
pub mod types;
pub mod unsafe_code;
pub mod words;
