//! The house rules as tests: `cargo test -p rockery-tidy`.
//!
//! A rule is a function from the repository to findings, in a file of [`rules`] that says why the rule is
//! there. To add one: write the function with a test that it finds something, and give it a line in
//! `tests/house.rs`.

pub mod modules;
pub mod rules;
pub mod rust;
pub mod tree;

pub use tree::{File, Finding, Tree};
