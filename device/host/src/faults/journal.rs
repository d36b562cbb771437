//! The file that faults are written to: `ROCKERY_FAULT_JOURNAL`.

use crate::log::HOST;
use crate::settings;
use ::faults::Entry;
use os::write_signals::without_signals;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Appends a line. The file is opened for each, since programs close descriptors that they do not know; lines
/// of several processes do not mix. If a line cannot be written, the first such error is a note.
pub(super) fn write(entry: &Entry<'_>) {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    tracing::info!(target: HOST, rule = entry.decision.rule, occasion = entry.decision.occasion,
        point = %entry.occasion.point, "fault: {}", entry.decision.action);
    let Some(path) = PATH.get_or_init(settings::fault_journal) else {
        return;
    };
    let line = format!("{entry}\n");
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| without_signals(|| file.write_all(line.as_bytes())));
    if let Err(error) = written
        && !FAILED.swap(true, Ordering::Relaxed)
    {
        crate::note(format_args!(
            "rockery: {}: faults happen that are not in the journal: {error}",
            path.display()
        ));
    }
}
