//! What documents and pages show: tables, the examples of docs/ci.md, attacks, and pages in browsers.

mod attack;
mod bench;
mod ci;
mod errors;
mod playground;
mod web;
