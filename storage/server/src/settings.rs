//! Files of settings that a server is started with. A name may be wrong: a device may never end, and a FIFO
//! waits for a writer, so each file has to be a regular one of a limited size.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The bytes of a regular file.
///
/// # Errors
/// When it cannot be read, is no regular file, or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // A FIFO is opened without waiting for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        let what = "it is a device, a FIFO or a folder, where a regular file is needed";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!(
            "it is larger than {} MiB, which no such file is",
            most.div_ceil(1 << 20)
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The same of a file in UTF-8.
///
/// # Errors
/// As [`read`], and when it is no UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let what = "it is no text in UTF-8";
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn files_of_other_kinds_and_long_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(
            Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        for path in [Path::new("/dev/zero"), folder.path(), &fifo] {
            let error = read(path, 16).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidInput,
                "{path:?}: {error}"
            );
        }
        let file = folder.path().join("file");
        fs::write(&file, [b'a'; 16]).unwrap();
        assert_eq!(read_text(&file, 16).unwrap(), "a".repeat(16));
        assert_eq!(
            read(&file, 15).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(
            read_text(&file, 16).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
