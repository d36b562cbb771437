//! What documents and pages show: tables, the examples of docs/ci.md, attacks, and pages in browsers; and
//! workflows of services of CI, ours and those of users.

mod attack;
mod bench;
mod ci;
mod errors;
mod faults;
mod playground;
mod reports;
mod runner;
mod services;
mod site;
mod web;
mod workflows;
