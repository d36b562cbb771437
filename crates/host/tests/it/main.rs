//! Two devices on the loopback interface, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod answers;
mod events;
mod idle;
mod kills;
mod lane;
mod pair;
mod reliable;
mod scribbles;
