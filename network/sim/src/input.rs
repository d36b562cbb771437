//! Reading the files that commands are given: fabric files, the files that they name, configurations,
//! snapshots and captures. They may come from others: each has to be a regular file of a limited size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of a fabric file, and of each file that it names, at most.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Opens a regular file: a device may never end, and a FIFO waits for a writer.
///
/// # Errors
/// When there is none, or when it is something else.
pub fn regular(path: &Path) -> io::Result<File> {
    let refused = || {
        io::Error::other(
            "it is a device, a FIFO or a folder, where a regular file is needed: save the data in one",
        )
    };
    if !fs::metadata(path)?.is_file() {
        return Err(refused());
    }
    // The name may have been given to another file meanwhile.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(refused())
    }
}

/// The bytes of a file that a user names: a regular file of a limited size.
///
/// # Errors
/// As [`regular`], and when it is larger than [`FILE_BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    bytes(regular(path)?)
}

/// The same of a file in UTF-8.
///
/// # Errors
/// As [`read`] and [`text`].
pub fn read_text(path: &Path) -> io::Result<String> {
    text(regular(path)?)
}

/// The text of an open file.
///
/// # Errors
/// When it is larger than [`FILE_BYTES_MAX`], no UTF-8, or cannot be read.
pub fn text(file: File) -> io::Result<String> {
    let what = "it is no text in UTF-8";
    String::from_utf8(bytes(file)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))
}

fn bytes(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!(
            "it is larger than {} MiB, which no such file is",
            FILE_BYTES_MAX >> 20
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Reads the files that a fabric file in `folder` names, relative to it: the `files` argument of
/// [`Experiment::new`](crate::experiment::Experiment::new).
pub fn reader(folder: &Path) -> impl FnMut(&str) -> Result<String, String> {
    move |name| {
        regular(&folder.join(name))
            .and_then(text)
            .map_err(|error| error.to_string())
    }
}
