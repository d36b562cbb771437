//! Two programs that connect by RDMA-CM: the server listens on a port that no table of the kernel shows.

use crate::machine::{until, words};
use crate::{Error, Exchange, Machine};

/// How long a server may take to be ready: in an emulated machine the question alone takes seconds.
const READY_SECONDS: u64 = 120;
/// How long it may take to notice that the client is done.
const DRAIN_SECONDS: u64 = 30;

/// Runs a server, and when it waits for requests a client, each a line of words.
///
/// # Errors
/// When an end cannot be started, the server does not get ready, or an end is too late.
pub fn run(
    server: (&dyn Machine, &str),
    client: (&dyn Machine, &str),
    seconds: u64,
) -> Result<Exchange, Error> {
    let mut serving = server.0.start(&words(server.1))?;
    let mut ended = None;
    let ready = until(READY_SECONDS, || {
        ended = serving.finished()?;
        Ok(ended.is_some() || server.0.awaits_requests()?)
    })?;
    if let Some(finished) = ended {
        return Err(Error::Failed {
            command: server.1.to_owned(),
            output: finished.output,
        });
    }
    if !ready {
        let what = format!("{} awaiting requests", server.1);
        return Err(Error::TooLate {
            what,
            seconds: READY_SECONDS,
            output: serving.output()?,
        });
    }
    let client = client.0.run(&words(client.1), seconds)?;
    let server = serving.wait(DRAIN_SECONDS).map_err(|error| Error::Failed {
        command: format!(
            "{}: {error}; of its client with status {:?}",
            server.1, client.status
        ),
        output: client.output.clone(),
    })?;
    Ok(Exchange { server, client })
}

/// The same, where both ends have to succeed.
///
/// # Panics
/// When they do not.
#[track_caller]
pub fn expect(
    server: (&dyn Machine, &str),
    client: (&dyn Machine, &str),
    seconds: u64,
) -> Exchange {
    match run(server, client, seconds) {
        Ok(exchange) => exchange.expect_success(),
        Err(error) => panic!("{} and {}: {error}", server.1, client.1),
    }
}
