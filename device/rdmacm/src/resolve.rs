//! `rdma_resolve_addrinfo`, `rdma_query_addrinfo` and `rdma_write_cm_event` (rdma-core 60): asynchronous name
//! resolution, and events of the program's own.

use crate::addrinfo::Question;
use crate::id::{Id, IdArg};
use crate::pending::{Param, Pending};
use crate::synchronous::complete;
use abi::{
    RAI_DNS, RAI_SA, RDMA_CM_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_ADDRINFO_RESOLVED,
    RDMA_CM_EVENT_INTERNAL, RDMA_CM_EVENT_USER, rdma_addrinfo,
};
use core::ffi::{c_char, c_int};
use ffi::{Errno, In, Out, public_exports};

/// Event status for an error number of `getaddrinfo(3)`.
fn status(code: c_int) -> c_int {
    -match code {
        libc::EAI_SYSTEM => Errno::last().0,
        libc::EAI_AGAIN => libc::EAGAIN,
        libc::EAI_MEMORY => libc::ENOMEM,
        libc::EAI_BADFLAGS | libc::EAI_FAMILY | libc::EAI_SERVICE | libc::EAI_SOCKTYPE => {
            libc::EINVAL
        }
        _ => libc::ENOENT,
    }
}

/// Resolves the name and reports the result by an event.
fn report(this: &Id, question: &Question) {
    let answered = question.resolve();
    let mut state = this.state();
    let event = match answered {
        Ok(answer) => {
            state.resolved = Some(answer);
            Pending::plain(this.key(), RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
        }
        Err(code) => Pending::plain(this.key(), RDMA_CM_EVENT_ADDRINFO_ERROR, status(code)),
    };
    // The lock is held until the event is queued, so that `rdma_migrate_id` finds it in the old queue.
    state.queue.push(event);
}

/// An identifier that a thread resolves a name for. The caller counts the work as an unacknowledged event,
/// for which [`Id::wait_acknowledged`] waits, so that the identifier outlives the thread.
struct Resolving(&'static Id);

// SAFETY: the thread uses fields that locks guard, and the address of the identifier, which does not change.
unsafe impl Send for Resolving {}

impl Resolving {
    /// Takes `self` by value, so that the thread owns the count as well.
    fn look_for(self, question: &Question) {
        report(self.0, question);
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        self.0.note_acknowledged();
    }
}

public_exports! {
    /// `RAI_SA` requires the subnet administrator of InfiniBand: `EOPNOTSUPP`. Without a flag the C library
    /// resolves the name, as with `RAI_DNS`.
    fn rdma_resolve_addrinfo(id: IdArg<'_>, node: *const c_char, service: *const c_char,
        hints: In<'_, *const rdma_addrinfo>) -> status(c_int) {
        let this = id.get()?;
        // SAFETY: strings or NULL, and hints as the manual page requires.
        let question = unsafe { Question::read(node, service, hints.optional()) }?;
        match (question.flags & RAI_SA != 0, question.flags & RAI_DNS != 0) {
            (true, true) => return Err(Errno::INVALID),
            (true, false) => return Err(Errno::UNSUPPORTED),
            (false, _) => {}
        }
        this.state().resolved = None;
        this.note_event();
        let resolving = Resolving(this);
        let look = move || resolving.look_for(&question);
        host::spawn_quiet("rdma_addrinfo", look)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    /// Returns `ENODATA` before anything was resolved.
    fn rdma_query_addrinfo(id: IdArg<'_>, place: Out<'_, *mut rdma_addrinfo>) -> status(c_int) {
        let place = place.required()?;
        place.write(id.get()?.state().resolved.ok_or(Errno(libc::ENODATA))?.in_c())
    }

    /// Accepts only the two event types that connections do not cause.
    fn rdma_write_cm_event(id: IdArg<'_>, event: u32, status: c_int, argument: u64)
        -> status(c_int) {
        if event != RDMA_CM_EVENT_USER && event != RDMA_CM_EVENT_INTERNAL {
            return Err(Errno::INVALID);
        }
        let this = id.get()?;
        let mut event = Pending::plain(this.key(), event, status);
        event.param = Param::Argument(argument);
        let state = this.state();
        state.queue.push(event);
        Ok(())
    }
}
