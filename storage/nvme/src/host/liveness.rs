//! Whether a controller is alive, which its queues ask before they wait for it.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use wire::nvme::Status;

use super::HostError;
use os::wait::Watched;

/// Why a controller was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Keep Alive was not answered in this time.
    Unanswered(Duration),
    /// The target refused Keep Alive.
    Refused(Status),
    /// The admin queue ended.
    Ended(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(time) => {
                write!(
                    f,
                    "the target did not answer Keep Alive within {} s",
                    time.as_secs_f64()
                )
            }
            Self::Refused(status) => write!(f, "the target refused Keep Alive: {status}"),
            Self::Ended(error) => write!(f, "the admin queue ended: {error}"),
        }
    }
}

/// Whether a controller is alive: shared by its queues and the thread that sends Keep Alive.
#[derive(Debug)]
pub(super) struct Liveness {
    lost: OnceLock<Lost>,
    /// Readable once the controller is lost, which wakes threads that wait for a queue.
    reader: PipeReader,
    writer: Mutex<Option<PipeWriter>>,
}

impl Liveness {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        Ok(Arc::new(Self {
            lost: OnceLock::new(),
            reader,
            writer: Mutex::new(Some(writer)),
        }))
    }

    /// The error of a lost controller.
    pub(super) fn check_controller(&self) -> Result<(), HostError> {
        self.lost
            .get()
            .map_or(Ok(()), |lost| Err(HostError::KeepAlive(lost.clone())))
    }

    pub(super) fn watched(&self) -> Watched {
        (self.reader.as_raw_fd(), false)
    }

    /// Makes all queues of the controller fail.
    pub(super) fn lose(&self, lost: Lost) {
        _ = self.lost.set(lost);
        // The end of a pipe is readable.
        drop(
            self.writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}
