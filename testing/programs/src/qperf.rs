//! Clients of qperf that connect by RDMA-CM.

use crate::{Error, Finished, Machine};

/// How often a client is started that came before its server listened.
const TRIES: usize = 5;

/// Runs a test of qperf against the server at an address.
///
/// The server names its port before it calls `rdma_listen` on it. A client that connects between the two is
/// rejected (reason 8, invalid service ID), as it is on Linux, and is started again.
///
/// # Errors
/// When a client does not end in time, or cannot be started.
pub fn client(
    on: &impl Machine,
    server: &str,
    test: &str,
    seconds: u64,
) -> Result<Finished, Error> {
    let argv = ["qperf", "-t", "1", "-cm", "1", server, test];
    let mut finished = on.run(&argv, seconds)?;
    for _ in 1..TRIES {
        if !finished.output.contains("Event rejected") {
            break;
        }
        finished = on.run(&argv, seconds)?;
    }
    Ok(finished)
}
