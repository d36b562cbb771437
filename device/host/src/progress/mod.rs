//! Which thread serves the network, and when.
pub(crate) mod batching;
pub(crate) mod clock;
pub(crate) mod completion_wait;
pub(crate) mod event_wait;
pub(crate) mod housekeeping;
mod interface_watch;
mod poll_detector;
pub(crate) mod pump;
mod receive;
pub(crate) mod shared;
pub(crate) mod thread;
mod traffic;
mod wait_state;
pub(crate) mod wake_up;
