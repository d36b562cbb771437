//! The trace of this process (`ROCKERY_TRACE`): what its calls did, as records of [`::trace`].
//!
//! Each thread fills a chunk of the file of its own, through a shared mapping: no lock is taken, a fork finds
//! nothing half done, and nothing is lost when the process is killed.

use crate::settings;
use crate::sys::fork;
use crate::sys::trace_file::{Chunk, TraceFile};
use ::trace::Kind;
use std::cell::RefCell;
use std::sync::OnceLock;

static FILE: OnceLock<Option<TraceFile>> = OnceLock::new();

thread_local! {
    /// The chunk that this thread fills, and the generation of the process that took it.
    static CHUNK: RefCell<Option<(Chunk, u64)>> = const { RefCell::new(None) };
}

/// Whether this process is traced. The first call reads the variable.
#[inline(always)]
pub fn is_on() -> bool {
    file().is_some()
}

#[inline(always)]
fn file() -> Option<&'static TraceFile> {
    FILE.get_or_init(open).as_ref()
}

#[cold]
fn open() -> Option<TraceFile> {
    let path = settings::trace()?;
    let file = TraceFile::open(&path);
    if let Err(error) = &file {
        crate::note(format_args!(
            "rockery: {}: calls are not traced: {error}",
            path.display()
        ));
    }
    file.ok()
}

/// Nanoseconds of the machine's monotonic clock.
pub fn now_ns() -> u64 {
    crate::sys::trace_file::now_ns()
}

/// Writes a record of this moment. Fields without a value are [`::trace::NONE`]. A record that has no room is
/// counted in the file.
pub fn record(kind: Kind, fields: &[u64], text: &str) {
    record_at(now_ns(), kind, fields, text);
}

/// Records an event that happened at another time.
pub fn record_at(at_ns: u64, kind: Kind, fields: &[u64], text: &str) {
    let Some(file) = file() else { return };
    let generation = fork::generation();
    // A handler of a signal may have interrupted this very function: its record is lost.
    let written = CHUNK.try_with(|cell| {
        let Ok(mut place) = cell.try_borrow_mut() else {
            return false;
        };
        if let Some((chunk, of)) = place.as_mut()
            && *of == generation
            && chunk.push(at_ns, kind, fields, text)
        {
            return true;
        }
        *place = file.next_chunk().map(|chunk| (chunk, generation));
        let chunk = place.as_mut().map(|(chunk, _)| chunk);
        chunk.is_some_and(|chunk| chunk.push(at_ns, kind, fields, text))
    });
    if !written.unwrap_or(false) {
        file.count_lost();
    }
}
