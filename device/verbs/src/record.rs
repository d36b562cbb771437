//! Recording of verbs calls: `rockery run --record FILE`. The format is [`wire::record`].
//!
//! Without a recording each call costs one load of a flag. With one, lines are collected and written in
//! blocks, since a system call per line would take longer than the recorded calls.

use core::fmt::Write as _;
use rnic::{Completion, CompletionKind, Data};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use wire::record::{Call, LINE_BYTES_MAX, Line, Transport, Verb};

/// The variable that names the file, which exists and has its first line.
const VARIABLE: &str = "ROCKERY_RECORD";

/// Lines are written when there are so many bytes of them,
const BLOCK_BYTES: usize = 64 << 10;

/// or when the last ones were written so long ago: a process that is killed loses no more.
const BLOCK_NS: u64 = 100_000_000;

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// The file to which calls of this process are recorded.
pub(crate) struct Recorder {
    file: File,
    pending: Mutex<Pending>,
}

/// Lines that are not written yet.
struct Pending {
    /// The process that they belong to: a child of `fork` has a copy of its parent's, which the parent
    /// writes.
    process: u32,
    text: String,
    written_ns: u64,
    failed: bool,
}

/// The recorder, if calls are recorded.
#[inline]
pub(crate) fn active() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// Begins to record, if the environment requests it. Called when a device is opened.
pub(crate) fn begin() {
    let Some(path) = environment::variable(VARIABLE).filter(|path| !path.is_empty()) else {
        return;
    };
    if RECORDER.get().is_some() {
        return;
    }
    match File::options().append(true).open(Path::new(&path)) {
        Ok(file) => {
            let pending = Pending {
                process: std::process::id(),
                text: String::new(),
                written_ns: 0,
                failed: false,
            };
            if RECORDER
                .set(Recorder {
                    file,
                    pending: Mutex::new(pending),
                })
                .is_ok()
            {
                // SAFETY: the function lives as long as the library, which is never unloaded.
                unsafe { libc::atexit(at_exit) };
            }
        }
        Err(error) => host::note(format_args!(
            "rockery: {}: calls are not recorded: {error}",
            Path::new(&path).display()
        )),
    }
}

extern "C" fn at_exit() {
    if let Some(recorder) = active() {
        recorder.flush();
    }
}

/// The machine's monotonic clock.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Recorder {
    /// A send request was posted.
    pub(crate) fn posted(
        &self,
        qpn: u32,
        opcode: u32,
        qp_type: u32,
        data: &Data<'_>,
        signaled: bool,
    ) {
        let bytes = match data {
            Data::Inline(bytes) => bytes.len() as u32,
            Data::Sges(sges) => sges
                .iter()
                .fold(0_u32, |sum, sge| sum.saturating_add(sge.length)),
        };
        let operation = match opcode {
            abi::IBV_WR_RDMA_WRITE | abi::IBV_WR_RDMA_WRITE_WITH_IMM => Verb::Write,
            abi::IBV_WR_SEND | abi::IBV_WR_SEND_WITH_IMM | abi::IBV_WR_SEND_WITH_INV => Verb::Send,
            abi::IBV_WR_RDMA_READ => Verb::Read,
            abi::IBV_WR_LOCAL_INV | abi::IBV_WR_BIND_MW => Verb::Local,
            _ => Verb::Atomic,
        };
        let transport = match qp_type {
            abi::IBV_QPT_UD => Transport::Ud,
            abi::IBV_QPT_UC => Transport::Uc,
            abi::IBV_QPT_RC => Transport::Rc,
            _ => Transport::Xrc,
        };
        self.add(
            qpn,
            Call::Post {
                operation,
                bytes,
                transport,
                signaled,
            },
        );
    }

    /// A receive request was posted.
    pub(crate) fn receives(&self, qpn: u32, bytes: u32) {
        self.add(qpn, Call::Receive { bytes });
    }

    /// The program took a completion.
    pub(crate) fn completed(&self, completion: &Completion) {
        let operation = match completion.kind {
            CompletionKind::Send => Verb::Send,
            CompletionKind::Write => Verb::Write,
            CompletionKind::Read => Verb::Read,
            CompletionKind::BindWindow | CompletionKind::LocalInvalidate => Verb::Local,
            CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate => Verb::Receive,
            CompletionKind::CompareSwap
            | CompletionKind::FetchAdd
            | CompletionKind::AtomicWrite => Verb::Atomic,
        };
        let (bytes, status) = (completion.length, completion.status as u32);
        self.add(
            completion.qpn.value(),
            Call::Done {
                operation,
                bytes,
                status,
            },
        );
    }

    fn add(&self, qpn: u32, call: Call) {
        let (at_ns, process) = (now_ns(), std::process::id());
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.process != process {
            pending.process = process;
            pending.text.clear();
        }
        let line = Line {
            at_ns,
            process,
            qpn,
            call,
        };
        // Writing to a string does not fail.
        let _ = writeln!(pending.text, "{line}");
        let is_old = at_ns.saturating_sub(pending.written_ns) > BLOCK_NS;
        if is_old || pending.text.len() > BLOCK_BYTES - LINE_BYTES_MAX {
            pending.written_ns = at_ns;
            self.write(&mut pending);
        }
    }

    fn flush(&self) {
        // A thread that ended within `add` holds the lock no longer; one that goes on will give it back.
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.process == std::process::id() {
            self.write(&mut pending);
        }
    }

    /// Whole lines in one call: other processes append to the same file.
    fn write(&self, pending: &mut Pending) {
        if !pending.failed
            && !pending.text.is_empty()
            && let Err(error) = (&self.file).write_all(pending.text.as_bytes())
        {
            host::note(format_args!("rockery: recording ends here: {error}"));
            pending.failed = true;
        }
        pending.text.clear();
    }
}
