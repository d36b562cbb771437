//! What a namespace is made of: its store, its size, and the name from which its identifiers are derived.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServeError;
use super::config::{BackendConfig, Bytes, NamespaceConfig};
use crate::identifier::Uuid;
use crate::machine::MachineId;
use crate::nqn::Nqn;
use crate::store::{FileStore, Memory, Store};

/// An open store, and how much of it is served.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) store: Store,
    /// The size that is served, before it is rounded to whole blocks.
    pub(super) bytes: u64,
    /// A sentence about bytes that hosts do not reach.
    pub(super) warning: Option<String>,
}

impl fmt::Display for BackendConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "{}", path.display()),
            Self::Memory(_) => f.write_str("memory"),
            Self::Null(_) => f.write_str("null"),
        }
    }
}

impl Backing {
    pub(super) fn open(config: &NamespaceConfig) -> Result<Self, ServeError> {
        let block_size = u32::from(config.block_size);
        let path = PathBuf::from(config.backend.to_string());
        let cannot = |source: io::Error| match (source.kind(), &config.backend) {
            (
                io::ErrorKind::NotFound,
                BackendConfig::File {
                    path, size: None, ..
                },
            ) => ServeError::NoFile { path: path.clone() },
            _ => ServeError::Backend {
                path: path.clone(),
                source,
            },
        };
        let (store, bytes, found, size) = match &config.backend {
            BackendConfig::Memory(bytes) => (
                Store::Memory(Memory::new(bytes.0).map_err(cannot)?),
                bytes.0,
                bytes.0,
                None,
            ),
            BackendConfig::Null(bytes) => (Store::Null, bytes.0, bytes.0, None),
            BackendConfig::File { path, size, direct } => {
                let opened = open_file(path, *size, *direct, config.read_only, block_size);
                let (store, found) = opened.map_err(cannot)?;
                let bytes = size.map_or(found, |size| size.0.min(found));
                (Store::File(Arc::new(store)), bytes, found, *size)
            }
        };
        if bytes < u64::from(block_size) {
            return Err(ServeError::Empty { path, bytes });
        }
        let warning = warning(&path, found, size, block_size);
        Ok(Self {
            store,
            bytes,
            warning,
        })
    }

    /// The lasting name of the store. Memory has a random one: it is another disk after each start.
    pub(super) fn lasting_name(&self) -> Result<String, ServeError> {
        let cannot = |file: &FileStore, source| ServeError::Backend {
            path: file.path().to_owned(),
            source,
        };
        match &self.store {
            Store::File(file) => file.lasting_name().map_err(|source| cannot(file, source)),
            Store::Memory(_) | Store::Null => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes)
                    .map_err(|error| ServeError::Random(io::Error::other(error)))?;
                Ok(format!("memory {}", Uuid::from(bytes)))
            }
        }
    }
}

/// The NQN of a subsystem that has no other name, whose first namespace is this one: it stays the same over
/// restarts for a file or a block device, and no other disk has it. A missing file is created if the
/// namespace has a size.
///
/// # Errors
/// When the file cannot be used.
pub fn default_nqn(first: &NamespaceConfig) -> Result<Nqn, ServeError> {
    let lasting_name = Backing::open(first)?.lasting_name()?;
    Ok(Nqn::of_storage(&MachineId::this(), &lasting_name))
}

fn open_file(
    path: &Path,
    size: Option<Bytes>,
    direct: bool,
    read_only: bool,
    block_size: u32,
) -> io::Result<(FileStore, u64)> {
    if let Some(size) = size.filter(|_| !read_only) {
        FileStore::extend(path, size.0)?;
    }
    let store = FileStore::open(path, block_size as usize, read_only, direct)?;
    let found = store.bytes()?;
    Ok((store, found))
}

/// A sentence about the bytes of a file that hosts do not reach, and about those that they would expect: what
/// has `found` bytes is served as far as `size` says, in whole blocks.
pub(super) fn warning(
    path: &Path,
    found: u64,
    size: Option<Bytes>,
    block_size: u32,
) -> Option<String> {
    let block = u64::from(block_size);
    let wanted = size.map_or(found, |size| size.0);
    let served = wanted.min(found) / block * block;
    let path = path.display();
    if found < wanted {
        return Some(format!(
            "{path} has {found} bytes, fewer than the {wanted} of its size: {served} bytes are served. \
             Give a size of at most {found}, or extend the file or device"
        ));
    }
    if served == found {
        return None;
    }
    let unreached = found - served;
    let whole = found.div_ceil(block) * block;
    let remedy = match served == found / block * block {
        true => format!(
            "They are no whole number of blocks of {block} bytes. A size of {whole} appends zeros to the \
             file, and serves all of it"
        ),
        false if !wanted.is_multiple_of(block) => format!(
            "Its size of {wanted} is no whole number of blocks of {block} bytes, and is less than the file: \
             leave the size out to serve {}",
            found / block * block
        ),
        false => format!(
            "Its size of {wanted} is less than the file: leave the size out to serve {}",
            found / block * block
        ),
    };
    Some(format!(
        "{path} has {found} bytes, and {served} are served: hosts do not reach the last {unreached} bytes. \
         {remedy}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_hosts_do_not_reach_are_named_with_both_sizes() {
        let said = |found, size: Option<u64>, block| {
            warning(Path::new("disk"), found, size.map(Bytes), block)
        };
        assert_eq!(said(8192, None, 4096), None);
        assert_eq!(said(8192, Some(8192), 4096), None);
        assert_eq!(said(1024, None, 512), None);
        for (found, size, block, numbers) in [
            (
                1_000_001,
                None,
                4096,
                &["1000001", "999424", "577", "1003520"][..],
            ),
            (
                1_000_001,
                None,
                512,
                &["1000001", "999936", "65", "1000448"],
            ),
            (
                1_000_001,
                Some(1_000_001),
                4096,
                &["1000001", "999424", "577", "1003520"],
            ),
            (
                1_000_001,
                Some(65536),
                4096,
                &["1000001", "65536", "934465", "leave the size out"],
            ),
            (
                8192,
                Some(5000),
                4096,
                &["8192", "4096", "5000", "leave the size out"],
            ),
            (8192, Some(16384), 4096, &["8192", "16384", "at most"]),
        ] {
            let text = said(found, size, block).unwrap();
            for number in numbers {
                assert!(text.contains(number), "{number}: {text}");
            }
        }
    }
}
