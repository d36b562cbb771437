//! `librockery-clocks.so`, for `LD_PRELOAD`: a program in a lab that is slowed down (`rockery lab up --slow`)
//! reads the lab's clock instead of the machine's, and its waits are measured by the lab's clock too.
//!
//! - [`scale`] converts between the times of the machine and of the lab; [`lab`] has the lab of this process.
//! - [`reading`] replaces the C library's functions that read a clock, [`sleeping`] those that sleep,
//!   [`waiting`] and [`locks`] those that wait with a limit, [`timers`] timers, [`sockets`] time limits and
//!   timestamps of sockets, and [`direct`] `syscall(2)`, which runtimes of other languages wait by.
//! - [`next`] and [`real`] find the C library's own.
//!
//! Clocks of processor time are not slowed. rockery's own libraries call the C library directly, not through
//! this one: they divide by the slowdown themselves.
//!
//! Nothing here allocates, locks or uses the standard library's clocks: programs call these functions in
//! signal handlers, and the standard library's locks wait by functions that are replaced here.

mod direct;
mod lab;
mod locks;
#[path = "../../sysfs/src/next.rs"]
mod next;
mod reading;
mod real;
mod scale;
mod sleeping;
mod sockets;
mod timers;
mod waiting;
