//! Faults that calls meet on purpose, before they do anything.

use crate::traced::Begun;
use crate::{Call, Errno};
use ::faults::{Action, Decision, Occasion, Point, QpKind};
use host::faults::Waits;

/// What the arguments of a call say about it.
#[derive(Clone, Default, Debug)]
pub struct Subject {
    /// Name of the device.
    pub device: Option<String>,
    /// Type of the queue pair.
    pub kind: Option<QpKind>,
    /// Number of the queue pair.
    pub qpn: Option<u32>,
    /// Bytes of memory.
    pub size: Option<u64>,
    /// Address of the first argument that is a pointer, and no object of verbs.
    pub object: Option<u64>,
}

/// Calls in which programs wait, and which a signal or `pthread_cancel(3)` ends.
const WAITING: &[&str] = &[
    "get_async_event",
    "get_cq_event",
    "rdma_accept",
    "rdma_connect",
    "rdma_create_ep",
    "rdma_disconnect",
    "rdma_get_cm_event",
    "rdma_get_request",
    "rdma_join_multicast",
    "rdma_resolve_addr",
    "rdma_resolve_addrinfo",
    "rdma_resolve_route",
];

/// Lets the fault of a call happen, if a rule has one for it, and begins the call's record in the trace.
///
/// # Errors
/// The error number that the call has to return in place of doing something.
#[cold]
pub fn before(call: Call, describe: impl FnOnce(&mut Subject)) -> Result<Option<Begun>, Errno> {
    let Some(point) = Point::of_call(call.name()) else {
        return Ok(None);
    };
    let mut subject = Subject::default();
    describe(&mut subject);
    let occasion = Occasion {
        device: subject.device.as_deref(),
        kind: subject.kind,
        qpn: subject.qpn,
        size: subject.size,
        ..Occasion::at(point)
    };
    let begun = Begun::now(call, subject.qpn, [subject.size, subject.object]);
    // Other actions are carried out by the call itself.
    let met = host::faults::decide(&occasion, Action::is_of_call)
        .map_or(Ok(()), |decision| errno_of(decision, &occasion));
    match (met, begun) {
        (Ok(()), begun) => Ok(begun),
        (Err(errno), begun) => {
            begun.into_iter().for_each(|begun| begun.end(errno.0));
            Err(errno)
        }
    }
}

/// Lets a fault of a call happen: waits, raises an event, or fails.
///
/// # Errors
/// The error number that the call has to return in place of doing something.
pub fn errno_of(decision: Decision, occasion: &Occasion<'_>) -> Result<(), Errno> {
    match decision.action {
        Action::Fail(number) => return Err(Errno(number)),
        Action::Raise(event) => host::faults::raise(occasion.device, event, occasion.qpn),
        _ => {}
    }
    let waits = match occasion.point {
        Point::Call(name) if WAITING.contains(&name) => Waits::Interruptibly,
        _ => Waits::ToTheEnd,
    };
    Ok(host::faults::wait(decision, waits)?)
}

/// The error number that the event of a call has to report, if a rule has one for it.
pub fn reported(function: &str) -> Option<Errno> {
    let occasion = Occasion::at(Point::of_call(function)?);
    let is_reported = |action| matches!(action, Action::Report(_));
    match host::faults::decide(&occasion, is_reported)?.action {
        Action::Report(number) => Some(Errno(number)),
        _ => None,
    }
}

/// Return values of calls that meet a fault, for each kind of them.
pub mod refused {
    use crate::{Call, Errno, Number};
    use core::ffi::c_int;
    use core::fmt::Debug;

    /// NULL with `errno`, as [`crate::pointer`] returns it.
    pub fn pointer<T>(call: Call, errno: Errno) -> *mut T {
        crate::pointer(call, || Err(errno))
    }

    /// The value of a failed call, as [`crate::code`] returns it.
    pub fn code(call: Call, errno: Errno) -> c_int {
        crate::code(call, || Err(errno))
    }

    /// The value of a failed call, as [`crate::status`] returns it.
    pub fn status(call: Call, errno: Errno) -> c_int {
        crate::status(call, || Err(errno))
    }

    /// The value of a failed call, as [`crate::number`] returns it.
    pub fn number<T: Number>(call: Call, errno: Errno) -> T {
        crate::number(call, || Err(errno))
    }

    /// As [`crate::plain`]: rules do not name calls that report no error.
    pub fn plain<T: Default + Debug>(_call: Call, _errno: Errno) -> T {
        T::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The tables of symbols say which functions the C library may leave by cancellation.
    #[test]
    fn calls_that_wait_are_those_of_the_tables_of_symbols() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/symbols");
        let mut waiting = Vec::new();
        for table in ["libibverbs.tsv", "librdmacm.tsv"] {
            let text = std::fs::read_to_string(folder.join(table)).unwrap();
            let rows = text.lines().filter(|row| row.ends_with("\twaits"));
            let names = rows.filter_map(|row| row.split('\t').next());
            waiting.extend(names.filter_map(|name| match Point::of_call(name) {
                Some(Point::Call(name)) => Some(name),
                _ => None,
            }));
        }
        waiting.sort_unstable();
        waiting.dedup();
        assert_eq!(waiting, WAITING);
    }
}
