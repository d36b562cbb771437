//! Tests of the wire formats against others: Linux' packets, Wireshark's fields, and random bytes.
#![allow(
    clippy::disallowed_methods,
    reason = "captures are files, and tshark is a program"
)]
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod captures;
mod cm;
mod contract;
mod dissector;
mod lldp;
mod nvme;

mod properties;
mod record;
mod smb;
mod support;
