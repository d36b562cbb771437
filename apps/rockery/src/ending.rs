//! The orderly end of a process by a signal.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use ::nvme::host::{Client, Shutdown};

use crate::Error;
use crate::sys::EndSignals;

/// The time for a command that is outstanding when the process is asked to end.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the end of the command is checked.
const INTERVAL: Duration = Duration::from_millis(5);

/// Calls `finish` in a thread at the first signal. It ends the process; a further signal does that at once.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn at_first_signal(
    signals: EndSignals,
    finish: impl FnOnce(i32) + Send + 'static,
) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let started = thread.spawn(move || finish(signals.wait()));
    started
        .map(drop)
        .map_err(Error::file("a thread for signals"))
}

/// Keeps commands of this process from reaching a disk after its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orderly(Arc<Mutex<()>>);

impl Orderly {
    /// At a signal waits for the command that is outstanding, shuts down the controller, and ends the
    /// process by this signal.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn begin(signals: EndSignals, client: &Client) -> Result<Self, Error> {
        let orderly = Self::default();
        let (commands, shutdown) = (orderly.clone(), client.shutdown());
        at_first_signal(signals, move |signal| commands.end(&shutdown, signal))?;
        Ok(orderly)
    }

    /// Executes a command, which a signal waits for.
    pub(crate) fn command<T>(&self, command: impl FnOnce() -> T) -> T {
        let _outstanding = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        command()
    }

    fn end(&self, shutdown: &Shutdown, signal: i32) -> ! {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        // The lock is kept, so that no further command begins.
        let _commands = loop {
            match self.0.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(INTERVAL)
                }
                tried => break tried,
            }
        };
        if let Err(error) = shutdown.run() {
            crate::output::note!(
                "rockery: the target may still execute commands of before: {error}"
            );
        }
        EndSignals::end_by(signal)
    }
}
