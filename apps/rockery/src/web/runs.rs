//! Runs of the page, each in a process of its own with a limit on its memory: a short fabric file can
//! describe a network that no machine has the memory for.

use std::io::{self, Read, Write};
use std::os::unix::process::{ExitStatusExt, parent_id};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ::nvme::serve::Bytes;
use serde_json::json;

use crate::{Error, output, sys};

/// The word that starts this program for one run.
pub(super) const COMMAND: &str = "web-run";
/// How often it is checked whether the client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of a run's standard error that are kept.
const ERROR_BYTES: u64 = 4096;

/// The memory of a run, and the number of runs at the same time.
#[derive(Debug)]
pub(super) struct Runs {
    memory: Bytes,
    free: Mutex<usize>,
    freed: Condvar,
}

/// The place of a run, which it has until this is dropped.
struct Place<'a>(&'a Runs);

/// A run that has ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    /// Standard output of the run.
    answer: Vec<u8>,
    /// The begin of its standard error.
    errors: String,
}

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
        let Some(_place) = self.take_place(is_gone) else {
            return Vec::new();
        };
        match self.run(request, is_gone) {
            Ok(ended) if ended.status.success() => ended.answer,
            Ok(ended) => refused(&ended.reason(self.memory)),
            Err(error) => refused(&format!("the run could not be started: {error}")),
        }
    }

    fn take_place(&self, is_gone: &dyn Fn() -> bool) -> Option<Place<'_>> {
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

    fn run(&self, request: &[u8], is_gone: &dyn Fn() -> bool) -> io::Result<Ended> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([COMMAND, &self.memory.0.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        std::thread::scope(|scope| {
            let thread = |read| std::thread::Builder::new().spawn_scoped(scope, read);
            let output = thread(reader(output, u64::MAX))?;
            let errors = thread(reader(errors, ERROR_BYTES))?;
            // A process that ends before it has read its request says so by its status.
            let _ = input.map(|mut pipe| pipe.write_all(request));
            let status = wait(&mut child, is_gone)?;
            let [answer, errors] =
                [output, errors].map(|thread| thread.join().unwrap_or_else(|_| Ok(Vec::new())));
            Ok(Ended {
                status,
                answer: answer?,
                errors: String::from_utf8_lossy(&errors?).into_owned(),
            })
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

impl Ended {
    /// The sentence that tells the browser why the run failed. A process that reaches its memory limit is
    /// aborted by its allocator, with a message; the kernel kills one when the machine has no memory left.
    fn reason(&self, memory: Bytes) -> String {
        let is_out_of_memory = self.errors.contains("memory allocation of")
            || self.status.signal() == Some(libc::SIGKILL);
        if is_out_of_memory {
            return format!(
                "the run needs more than {memory} of memory: describe a smaller network, start rockery web \
                 with a larger --memory, or use rockery sim"
            );
        }
        let said = self.errors.trim().trim_start_matches("rockery: ");
        format!(
            "the run failed ({}){}{said}: rockery sim runs the same file without a limit of memory",
            self.status,
            if said.is_empty() { "" } else { ": " },
        )
    }
}

/// Reads all of a pipe, and keeps its first `most` bytes.
fn reader(
    pipe: Option<impl Read + Send + 'static>,
    most: u64,
) -> Box<dyn FnOnce() -> io::Result<Vec<u8>> + Send> {
    Box::new(move || {
        let mut kept = Vec::new();
        if let Some(mut pipe) = pipe {
            (&mut pipe).take(most).read_to_end(&mut kept)?;
            io::copy(&mut pipe, &mut io::sink())?;
        }
        Ok(kept)
    })
}

/// Waits for the end of a run, and kills it when its client is gone.
fn wait(child: &mut Child, is_gone: &dyn Fn() -> bool) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(status: i32, errors: &str) -> String {
        let ended = Ended {
            status: ExitStatus::from_raw(status),
            answer: Vec::new(),
            errors: errors.to_owned(),
        };
        ended.reason(Bytes(300 << 20))
    }

    #[test]
    fn a_run_without_memory_is_told_from_one_that_fails() {
        let aborted = reason(libc::SIGABRT, "memory allocation of 1024 bytes failed\n");
        assert!(aborted.contains("more than 300MiB of memory"), "{aborted}");
        let killed = reason(libc::SIGKILL, "");
        assert!(killed.contains("more than 300MiB of memory"), "{killed}");
        let failed = reason(
            1 << 8,
            "rockery: the limit of memory: Operation not permitted\n",
        );
        let expected =
            "the run failed (exit status: 1): the limit of memory: Operation not permitted";
        assert!(failed.starts_with(expected), "{failed}");
        let panicked = reason(
            libc::SIGABRT,
            "thread 'main' panicked at run.rs:7:1:\nindex\n",
        );
        assert!(
            panicked.contains("panicked at run.rs:7:1") && !panicked.contains("more than"),
            "{panicked}"
        );
    }

    #[test]
    fn the_rest_of_a_long_output_is_read_and_not_kept() {
        let kept = reader(Some(io::repeat(7).take(1 << 20)), 16)().unwrap();
        assert_eq!(kept, [7; 16]);
    }
}
