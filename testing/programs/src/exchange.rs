//! Two ends of one program: perftest, the ping-pongs and our own probe are all started once as a server, and
//! once more with the server's address.

use crate::machine::until;
use crate::{Error, Finished, Machine};

/// How long a program may take to be ready to serve: an emulated machine is slow.
const READY_SECONDS: u64 = 180;
/// How long the server may take to notice that the client is done.
const DRAIN_SECONDS: u64 = 180;

/// The results of both ends.
#[derive(Debug)]
pub struct Exchange {
    /// The program that was started first, without an address.
    pub server: Finished,
    /// The program that got the server's address.
    pub client: Finished,
}

impl Exchange {
    /// Runs `argv` at both ends; the client gets the server's address as one more argument.
    ///
    /// Where a machine's device has to be named, `-d` and `index` (the option that takes a GID index: `-x` in
    /// perftest, `-g` in the ping-pongs) name it, but for an index that `argv` has already. `{end}` in it
    /// is `server` or `client`.
    ///
    /// # Errors
    /// When an end cannot be started, the server does not listen on `port`, or an end is too late.
    pub fn run(
        server: &dyn Machine,
        client: &dyn Machine,
        argv: &[&str],
        index: &str,
        port: u16,
        seconds: u64,
    ) -> Result<Self, Error> {
        let words = named(words_for(server, argv, index), "server");
        let mut serving = server.start(&borrowed(&words))?;
        // The output of a server that ended explains more than that it does not listen.
        let mut ended = None;
        let ready = until(READY_SECONDS, || {
            ended = serving.finished()?;
            Ok(ended.is_some() || server.listens(port)?)
        })?;
        if let Some(finished) = ended {
            return Err(Error::Failed {
                command: argv.join(" "),
                output: finished.output,
            });
        }
        if !ready {
            return Err(server.does_not_listen(port, READY_SECONDS));
        }
        let mut words = named(words_for(client, argv, index), "client");
        words.push(server.address().to_string());
        let client = client.run(&borrowed(&words), seconds)?;
        let server = serving.wait(DRAIN_SECONDS).map_err(|error| Error::Failed {
            command: format!(
                "{}: {error}; of its client with status {:?}",
                argv.join(" "),
                client.status
            ),
            output: client.output.clone(),
        })?;
        Ok(Self { server, client })
    }

    /// Itself, when both ends succeeded.
    ///
    /// # Panics
    /// With all that both printed, when one failed.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        let (server, client) = (&self.server, &self.client);
        assert!(
            server.succeeded() && client.succeeded(),
            "the server ended with {:?}:\n{}\nthe client ended with {:?}:\n{}",
            server.status,
            server.output,
            client.status,
            client.output
        );
        self
    }
}

fn named(words: Vec<String>, end: &str) -> Vec<String> {
    words
        .into_iter()
        .map(|word| word.replace("{end}", end))
        .collect()
}

/// The words with those that name the machine's device, where it has to be named.
pub(crate) fn words_for(machine: &dyn Machine, argv: &[&str], index: &str) -> Vec<String> {
    let mut words: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    if let Some((device, gid)) = machine.device() {
        words.extend(["-d".to_owned(), device.to_owned()]);
        if !argv.contains(&index) {
            words.extend([index.to_owned(), gid.to_string()]);
        }
    }
    words
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
