//! Points at which faults happen.

use crate::calls::{CALLS, NO_ERRNO, canonical_call};
use crate::names::closest;
use crate::{Opcode, RuleError};
use core::fmt;

/// Calls on a queue pair.
const ON_QUEUE_PAIRS: &[&str] = &[
    "attach_mcast",
    "bind_mw",
    "destroy_qp",
    "detach_mcast",
    "modify_qp",
    "post_recv",
    "post_send",
    "query_ece",
    "query_qp",
    "set_ece",
];
/// Calls with a length of memory.
const WITH_SIZE: &[&str] = &[
    "post_recv",
    "post_send",
    "post_srq_recv",
    "reg_dmabuf_mr",
    "reg_mr",
    "rereg_mr",
];
/// Calls of libibverbs that are on no open device.
const ON_NO_DEVICE: &[&str] = &["get_device_list", "open_device", "read_sysfs_file"];

/// Where a fault happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    /// In a call of libibverbs or librdmacm, by its name in [`CALLS`].
    Call(&'static str),
    /// When a work request completes.
    Completion,
    /// When a packet leaves.
    Packet,
    /// When a message of the connection manager leaves, or a request arrives.
    Cm,
    /// At a time.
    Time,
    /// When a device is opened.
    Limit,
}

/// Points that are no calls.
const OTHERS: &[(&str, Point)] = &[
    ("completion", Point::Completion),
    ("packet", Point::Packet),
    ("cm", Point::Cm),
    ("time", Point::Time),
    ("limit", Point::Limit),
];

/// Something that an occasion may have, and a condition may be on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Device,
    Kind,
    Qpn,
    Peer,
    Opcode,
    Size,
}

impl Field {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Kind => "type",
            Self::Qpn => "qpn",
            Self::Peer => "peer",
            Self::Opcode => "opcode",
            Self::Size => "size",
        }
    }
}

impl Point {
    /// The point of a function that the libraries export or have in their tables. `None` for functions that
    /// report no error number.
    pub fn of_call(function: &str) -> Option<Self> {
        let name = canonical_call(function);
        let index = CALLS.binary_search(&name).ok()?;
        Some(Self::Call(CALLS[index]))
    }

    /// Reads the name of a point.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        if let Some((_, point)) = OTHERS.iter().find(|(name, _)| *name == text) {
            return Ok(*point);
        }
        Self::of_call(text).ok_or_else(|| {
            let plain = canonical_call(text);
            if NO_ERRNO.contains(&plain) {
                return RuleError::Impossible(format!(
                    "{text} fails: the call reports no error number"
                ));
            }
            let others = OTHERS.iter().map(|(name, _)| *name);
            let known = CALLS.iter().copied().chain(others);
            let remedy = match closest(plain, known) {
                Some(name) => format!("did you mean {name}?"),
                None => {
                    "write completion, packet, cm, time, limit, or a call of libibverbs or librdmacm \
                     such as post_send, reg_mr or rdma_connect"
                        .to_owned()
                }
            };
            RuleError::wrong("point of faults", text, remedy)
        })
    }

    /// Whether occasions at this point have a field.
    pub(crate) fn has(self, field: Field) -> bool {
        match (self, field) {
            (Self::Completion, _) => true,
            (Self::Packet, field) => !matches!(field, Field::Device | Field::Qpn),
            (Self::Cm, field) => matches!(field, Field::Peer | Field::Opcode),
            (Self::Time, field) => matches!(field, Field::Device | Field::Qpn),
            (Self::Limit, field) => field == Field::Device,
            (Self::Call(name), Field::Device) => {
                !name.starts_with("rdma_") && !ON_NO_DEVICE.contains(&name)
            }
            (Self::Call(name), Field::Kind | Field::Qpn) => ON_QUEUE_PAIRS.contains(&name),
            (Self::Call(name), Field::Peer | Field::Opcode) => name == "post_send",
            (Self::Call(name), Field::Size) => WITH_SIZE.contains(&name),
        }
    }

    /// Operations that occasions at this point can have, as [`Opcode::bit`]s; 0 where they have none.
    pub(crate) fn opcodes(self) -> u32 {
        let all = Opcode::ALL.iter().fold(0, |bits, one| bits | one.bit());
        match self {
            Self::Completion => all,
            Self::Call("post_send") => all & !Opcode::Recv.bit(),
            _ => 0,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name) => f.write_str(name),
            other => {
                let found = OTHERS.iter().find(|(_, point)| point == other);
                f.write_str(found.map_or("", |(name, _)| name))
            }
        }
    }
}
