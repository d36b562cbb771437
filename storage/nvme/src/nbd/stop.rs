//! The request to end all sessions of an export, which wakes their threads.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use os::wait::Watched;

/// Whether the sessions of an export have to end.
#[derive(Debug)]
pub struct Stop {
    is_requested: AtomicBool,
    /// Readable once the end is requested.
    reader: PipeReader,
    writer: Mutex<Option<PipeWriter>>,
}

impl Stop {
    /// No end is requested yet.
    ///
    /// # Errors
    /// When no pipe can be created.
    pub fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        let (is_requested, writer) = (AtomicBool::new(false), Mutex::new(Some(writer)));
        Ok(Arc::new(Self {
            is_requested,
            reader,
            writer,
        }))
    }

    /// Requests the end: sessions take no further request, finish those that they have, and end.
    pub fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        // The end of a pipe is readable.
        drop(
            self.writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Whether the end is requested.
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }

    /// What to wait for until the end is requested: afterwards it would be ready all the time.
    pub(super) fn watched(&self) -> Watched {
        (
            if self.is_requested() {
                -1
            } else {
                self.reader.as_raw_fd()
            },
            false,
        )
    }
}
