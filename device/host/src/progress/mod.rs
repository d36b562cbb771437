//! Which thread serves the network, and when.
//!
//! Arrivals are taken, timers run and packets leave when a thread of the process calls
//! [`pump::Pump::progress`]. That is a thread of the program while the program posts, polls or waits, and
//! otherwise the progress thread of the device: a peer's RDMA WRITE arrives while the target sits in a TCP
//! read. Both may do so at once, one lock orders them; but two threads that share a socket slow each other
//! down, so one of them serves ([`policy::Server`]):
//!
//! ```text
//!                      3 calls, and one per 25 us
//!   ┌────────────────────────────────────────────────────────┐
//!   │                                                        ▼
//! ┌─┴──────────────────┐                        ┌────────────────────┐
//! │ ProgressThread     │  fewer calls, arm_cq   │ PollingProgram     │
//! │ serves, lingers    │ ◀──────────────────────┤ polls serve        │
//! │ 50 us, then sleeps │                        │ thread ticks:      │
//! │ until an arrival   │                        │ 50 us … 4 ms       │
//! └─┬──────────────────┘                        └─────────┬──────────┘
//!   │        ▲                                            │
//!   │        │ no wait for 4 ms, arm_cq                   │ wait_cq
//!   │      ┌─┴──────────────────┐                         │
//!   └─────▶│ WaitingProgram     │ ◀───────────────────────┘
//!  wait_cq │ waits serve        │
//!          │ thread ticks: 4 ms │
//!          └────────────────────┘
//! ```
//!
//! Each change is decided by `Policy::next_server`, at each wake-up of the progress thread; `arm_cq` and
//! waits for an event wake it. (A program that polls after its last wait goes from `WaitingProgram` to
//! `PollingProgram`.)
//!
//! A thread of the program that waits for an event does the same as the progress thread meanwhile, one at a
//! time ([`event_wait::WaitGuard`]):
//!
//! ```text
//!  poll for a while ──nothing──▶ set "program sleeps" in the rings ──▶ sleep for the wake-up socket
//!        │                                 │ a record is there               │ a peer's signal
//!        ▼                                 ▼                                 ▼
//!  the event ◀────────────────────── take records ◀──────────────────────────┘
//! ```
//!
//! | file | about |
//! |---|---|
//! | `policy` | the thread that serves; it decides by `poll_detector` and `wait_state`, without a lock |
//! | `schedule` | when requests leave (`batching`), the socket is read, acknowledgements wait, threads wake |
//! | `constants` | the times, numbers and sizes of both |
//! | `pump` | the state machine with its egress; `receive` is the socket, `completion_routes` the events |
//! | `thread` | the progress thread; `housekeeping` and `interface_watch` are its other work |
//! | `core_yield` | polls that find nothing |
//! | `event_wait`, `completion_wait` | threads that wait in place of the progress thread; `traffic`: when |
//! | `shared` | the lock around the pump, and the descriptors that wake the progress thread (`wake_up`) |
//! | `clock` | the time |
pub(crate) mod batching;
pub(crate) mod clock;
pub(crate) mod completion_routes;
pub(crate) mod completion_wait;
mod constants;
pub(crate) mod core_yield;
pub(crate) mod event_wait;
pub(crate) mod housekeeping;
mod interface_watch;
pub(crate) mod policy;
mod poll_detector;
pub(crate) mod pump;
mod receive;
pub(crate) mod schedule;
pub(crate) mod shared;
pub(crate) mod thread;
mod traffic;
mod wait_state;
pub(crate) mod wake_up;
