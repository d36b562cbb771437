//! Static probes for bpftrace, perf and SystemTap (USDT): where requests are posted and completions taken.
//!
//! A probe is a function of one `nop`, and a note in the section `.note.stapsdt` that says where it is and
//! which registers hold its arguments (SystemTap's wiki, "UserSpaceProbeImplementation"). A tracer puts a
//! breakpoint in place of the `nop`; without one nothing else runs. The note is linked to its function, so
//! that a linker that leaves out the function leaves out the note: notes of inlined code that is not used
//! would name addresses that there are not. Names and arguments are an interface: docs/trace.md lists them.

use rnic::Completion;
use wire::Qpn;

/// The probe of a function, with 64-bit arguments. `$arguments` has `8@` and the register of each.
macro_rules! probe {
    ($function:path, $name:literal, $arguments:literal, $($value:expr),+ $(,)?) => {
        probe!(@ $function, [
            "990: nop",
            ".pushsection .note.stapsdt, \"o\", \"note\", {function}",
            ".balign 4",
            ".4byte 992f-991f, 994f-993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            // The place, a base for prelinkers, and a semaphore: there is neither.
            "993: .8byte 990b, 0, 0",
            ".asciz \"rockery\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
        ] $($value),+)
    };
    (@ $function:path, [$($line:expr),+ $(,)?] $($value:expr),+) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction does nothing and reads the registers of its arguments at most.
        unsafe {
            core::arch::asm!(
                $($line,)+
                $(in(reg) $value,)+
                function = sym $function,
                options(att_syntax, nomem, nostack, preserves_flags),
            );
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: the instruction does nothing and reads the registers of its arguments at most.
        unsafe {
            core::arch::asm!(
                $($line,)+
                $(in(reg) $value,)+
                function = sym $function,
                options(nomem, nostack, preserves_flags),
            );
        }
    }};
}

/// A send request is about to be posted: the queue pair, and the identifier of the request.
#[inline(never)]
pub(crate) fn post_send(qpn: Qpn, id: u64) {
    probe!(
        post_send,
        "post_send",
        "8@{0} 8@{1}",
        u64::from(qpn.value()),
        id
    );
}

/// A receive request is about to be posted: the queue pair, and the identifier of the request.
#[inline(never)]
pub(crate) fn post_receive(qpn: Qpn, id: u64) {
    probe!(
        post_receive,
        "post_receive",
        "8@{0} 8@{1}",
        u64::from(qpn.value()),
        id
    );
}

/// The program has taken a completion: the queue pair, the identifier of the request, the operation and the
/// status as `ibv_wc` has them, and the bytes.
#[inline(never)]
pub(crate) fn completion(own: &Completion) {
    probe!(
        completion,
        "completion",
        "8@{0} 8@{1} 8@{2} 8@{3} 8@{4}",
        u64::from(own.qpn.value()),
        own.id,
        own.kind as u64,
        own.status as u64,
        u64::from(own.length),
    );
}
