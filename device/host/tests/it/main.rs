//! Two devices on the loopback interface, over real sockets.
#![allow(
    dead_code,
    unused_imports,
    reason = "modules are shared with `processes`, and each side uses a part"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod answers;
mod cm_panic;
mod crowd;
mod cuts;
mod deregistration;
mod descriptors;
mod events;
mod idle;
mod kills;
mod pair;
mod reliable;
mod scribbles;
mod shm;
mod sys;
mod trust;
mod waits;
