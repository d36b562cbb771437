//! Connection management between two hosts, and alone against whoever sends datagrams.

mod captures;
mod hostile;
mod limits;
mod pair;
mod parting;
mod resolution;
mod setup;
mod torture;
