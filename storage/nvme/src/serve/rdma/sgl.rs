//! Where the data of a command are: in its capsule, or in the memory of the host.

use std::ops::Range;

use wire::nvme::{Command, Sgl, Status};

/// The memory of the host that a command names in its SGL.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) invalidate: bool,
}

/// The data of a command, and where they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) remote: Remote,
    pub(super) length: usize,
    /// Whether the data are in the capsule of the command.
    pub(super) in_place: bool,
}

/// The data of a command, as its SGL describes them.
pub(super) struct Described {
    pub(super) length: u32,
    /// The place of in-capsule data behind the command.
    pub(super) in_capsule: Option<Range<usize>>,
    /// The memory of the host for other data.
    pub(super) remote: Remote,
}

/// Reads the SGL of a command that `behind` follows in its capsule (RDMA transport 1.0, 2.3).
pub(super) fn describe(command: &Command, behind: &[u8]) -> Result<Described, Status> {
    let in_host = |length, remote| Described {
        length,
        in_capsule: None,
        remote,
    };
    match command.sgl() {
        Ok(Sgl::Keyed {
            address,
            length,
            key,
            invalidate,
        }) => {
            let remote = Remote {
                address,
                key,
                invalidate: invalidate && length > 0,
            };
            Ok(in_host(length, remote))
        }
        Ok(Sgl::InCapsule { offset, length }) => {
            let start =
                usize::try_from(offset).map_err(|_| Status::SGL_OFFSET_INVALID.permanent())?;
            let end = start
                .checked_add(length as usize)
                .filter(|end| *end <= behind.len());
            let end = end.ok_or(Status::SGL_OFFSET_INVALID.permanent())?;
            Ok(Described {
                length,
                in_capsule: Some(start..end),
                remote: Remote::default(),
            })
        }
        Ok(Sgl::Address { length: 0, .. }) => Ok(in_host(0, Remote::default())),
        _ => Err(Status::SGL_TYPE_INVALID.permanent()),
    }
}
