//! Connection management between two hosts, and of one host against arbitrary datagrams.

mod captures;
mod hostile;
mod limits;
mod pair;
mod parting;
mod resolution;
mod setup;
mod torture;
