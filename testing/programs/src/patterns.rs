//! Patterns of bytes through every operation, each byte checked at its destination: `probe/patterns.c`.

use crate::probe::Probe;
use crate::{Exchange, Machine};

/// TCP port of the end that waits.
pub const PORT: u16 = 18521;
/// Each operation takes a second or two, in a guest as well.
const SECONDS: u64 = 90;

/// The operations of the probe. Both ends are requester and responder at once.
pub const OPERATIONS: [&str; 6] = ["send", "write", "read", "atomic", "uc", "ud"];

/// Moves patterns with one operation; `options` of the probe are `-m PATH_MTU`, `-6`, and `-s`
/// for memory that both ends can map.
///
/// # Panics
/// With the output of both ends, when a byte or a completion is wrong.
#[track_caller]
pub fn expect(
    one: &dyn Machine,
    other: &dyn Machine,
    probe: &Probe,
    options: &str,
    operation: &str,
) {
    let path = probe.path().to_string_lossy();
    let argv: Vec<&str> = [&*path]
        .into_iter()
        .chain(options.split_whitespace())
        .chain([operation])
        .collect();
    match Exchange::run(one, other, &argv, "-g", PORT, SECONDS) {
        Ok(exchange) => {
            let ends = exchange.expect_success();
            assert!(
                ends.server.output.contains("all as they were sent"),
                "{}",
                ends.server.output
            );
            assert!(
                ends.client.output.contains("all as they were sent"),
                "{}",
                ends.client.output
            );
        }
        Err(error) => panic!("{options} {operation}: {error}"),
    }
}
