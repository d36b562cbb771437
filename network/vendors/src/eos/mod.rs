//! Arista EOS with queuing profiles (published RoCE guides for EOS 4.36; aristanetworks/avd's data model).

mod classify;
pub(crate) mod read;
pub(crate) mod remedy;
pub(crate) mod shown;
mod watchdog;
pub(crate) mod write;
