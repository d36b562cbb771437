//! Runs of the page, each in a process of its own with a limit on its memory: a short fabric file can
//! describe a network that no machine has the memory for.

use std::io::{self, Read, Write};
use std::os::unix::process::parent_id;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ::nvme::serve::Bytes;
use serde_json::json;

use crate::{Error, output, sys};

/// The word that starts this program for one run.
pub(super) const COMMAND: &str = "web-run";
/// How often it is checked whether the client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// The memory of a run, and the number of runs at the same time.
#[derive(Debug)]
pub(super) struct Runs {
    memory: Bytes,
    free: Mutex<usize>,
    freed: Condvar,
}

/// The place of a run, which it has until this is dropped.
struct Place<'a>(&'a Runs);

impl Runs {
    /// As many runs at a time as there are processors, each with so many bytes of memory.
    pub(super) fn new(memory: Bytes) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            memory,
            free: Mutex::new(processors),
            freed: Condvar::new(),
        }
    }

    /// Answers a request of the page; ends the run when `is_gone` says that its client is.
    pub(super) fn answer(&self, request: &[u8], is_gone: &dyn Fn() -> bool) -> Vec<u8> {
        let Some(_place) = self.place(is_gone) else {
            return Vec::new();
        };
        match self.run(request, is_gone) {
            Ok(Some(answer)) => answer,
            Ok(None) => refused(&format!(
                "the run needs more than {} of memory: describe a smaller network, start rockery web with a \
                 larger --memory, or use rockery sim",
                self.memory
            )),
            Err(error) => refused(&format!("the run could not be started: {error}")),
        }
    }

    fn place(&self, is_gone: &dyn Fn() -> bool) -> Option<Place<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            let waited = self.freed.wait_timeout(free, LOOK);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
            if is_gone() {
                return None;
            }
        }
        *free -= 1;
        Some(Place(self))
    }

    /// The answer of a run; `None` when its process ended without one, as it does when its memory is used up.
    fn run(&self, request: &[u8], is_gone: &dyn Fn() -> bool) -> io::Result<Option<Vec<u8>>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([COMMAND, &self.memory.0.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        std::thread::scope(|scope| {
            let read = move || -> io::Result<Vec<u8>> {
                let mut answer = Vec::new();
                output
                    .map(|mut pipe| pipe.read_to_end(&mut answer))
                    .transpose()?;
                Ok(answer)
            };
            let reader = std::thread::Builder::new().spawn_scoped(scope, read)?;
            // A process that ends before it has read its request says so by its status.
            let _ = input.map(|mut pipe| pipe.write_all(request));
            let succeeded = ended(&mut child, is_gone)?;
            let answer = reader.join().unwrap_or_else(|_| Ok(Vec::new()))?;
            Ok(succeeded.then_some(answer))
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Waits for the end of a run, and kills it when its client is gone. Returns whether it succeeded.
fn ended(child: &mut Child, is_gone: &dyn Fn() -> bool) -> io::Result<bool> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if is_gone() {
            child.kill()?;
        }
        std::thread::sleep(LOOK.min(Duration::from_millis(20)));
    }
}

fn refused(why: &str) -> Vec<u8> {
    json!({ "refused": why }).to_string().into_bytes()
}

/// One run in this process: reads the request from standard input, and writes the answer to standard output.
///
/// # Errors
/// When its memory cannot be limited, or its standard input or output fails.
pub(crate) fn one(memory: u64) -> Result<(), Error> {
    sys::limit_memory(memory).map_err(Error::file("the limit of memory"))?;
    let server = parent_id();
    let mut request = Vec::new();
    io::stdin()
        .read_to_end(&mut request)
        .map_err(Error::file("standard input"))?;
    // Without the server, there is no client either.
    output::bytes(&playground::answer(&request, &mut |_| {
        parent_id() == server
    }))
}
