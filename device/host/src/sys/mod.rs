//! All unsafe code of this crate: application memory and system calls.

pub(crate) mod address_space;
pub(crate) mod descriptors;
pub(crate) mod file_thread;
pub(crate) mod fork;
pub(crate) mod grant_table;
pub(crate) mod guarded;
pub(crate) mod memory;
pub(crate) mod open_devices;
pub(crate) mod other_process;
pub(crate) mod owners;
pub(crate) mod probes;
pub(crate) mod process;
pub(crate) mod readiness;
pub(crate) mod shared_files;
pub(crate) mod shared_mappings;
pub(crate) mod standard_error;
pub(crate) mod ticks;
pub(crate) mod timer;
pub(crate) mod trace_file;

/// Waits for the sockets and signals of a device, a connection manager or the agent: one wait returns so many
/// of them that none stays behind another for long.
pub(crate) type Epoll = os::epoll::Epoll<4>;
