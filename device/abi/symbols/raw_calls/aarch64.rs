//! System calls of 64-bit ARM, which has the kernel's generic table: `open(2)`, `poll(2)`, `pause(2)` and
//! `epoll_wait(2)` are made by the calls that have followed them. Arguments are in the same registers as
//! those of a function.

use super::Shape;

/// Functions, the numbers of their system calls, and how they pass arguments.
pub(crate) const CALLS: &[(&str, u32, Shape)] = &[
    ("accept4", 242, Shape::Plain),
    ("clock_nanosleep", 115, Shape::ReturnsError),
    ("close", 57, Shape::Plain),
    ("connect", 203, Shape::Plain),
    // epoll_pwait(2)
    ("epoll_wait", 22, Shape::RestIsZero),
    ("nanosleep", 101, Shape::Plain),
    ("open", 56, Shape::InCurrentFolder),
    ("open64", 56, Shape::InCurrentFolder),
    ("openat", 56, Shape::Plain),
    ("openat64", 56, Shape::Plain),
    ("pause", 73, Shape::WaitsForSignal),
    ("poll", 73, Shape::WaitsMilliseconds),
    ("ppoll", 73, Shape::CopiesTime),
    ("pread", 67, Shape::Plain),
    ("pread64", 67, Shape::Plain),
    ("preadv", 69, Shape::RestIsZero),
    ("pwrite", 68, Shape::Plain),
    ("pwrite64", 68, Shape::Plain),
    ("pwritev", 70, Shape::RestIsZero),
    ("read", 63, Shape::Plain),
    ("readv", 65, Shape::Plain),
    ("recv", 207, Shape::RestIsZero),
    ("recvfrom", 207, Shape::Plain),
    ("recvmsg", 212, Shape::Plain),
    ("send", 206, Shape::RestIsZero),
    ("sendmsg", 211, Shape::Plain),
    ("sendto", 206, Shape::Plain),
    // wait4(2)
    ("waitpid", 260, Shape::RestIsZero),
    ("write", 64, Shape::Plain),
    ("writev", 66, Shape::Plain),
];

/// Room for a time on the stack.
const ROOM: &str = "sub sp, sp, #16\n.cfi_adjust_cfa_offset 16\n";

/// The instructions of a function.
pub(crate) fn body(name: &str, number: u32, shape: Shape) -> String {
    let before = match (shape, name) {
        (Shape::RestIsZero, "waitpid") => "mov x3, #0\n".to_owned(),
        (Shape::RestIsZero, _) => "mov x4, #0\nmov x5, #0\n".to_owned(),
        // AT_FDCWD
        (Shape::InCurrentFolder, _) => {
            "mov x3, x2\nmov x2, x1\nmov x1, x0\nmov x0, #-100\n".to_owned()
        }
        (Shape::WaitsForSignal, _) => {
            "mov x0, #0\nmov x1, #0\nmov x2, #0\nmov x3, #0\nmov x4, #8\n".to_owned()
        }
        // Eight bytes of signal mask.
        (Shape::CopiesTime, _) => format!(
            "mov x4, #8
{ROOM}cbz x2, 3f
ldp x9, x10, [x2]
stp x9, x10, [sp]
mov x2, sp
3:
"
        ),
        // A time that is negative is none.
        (Shape::WaitsMilliseconds, _) => format!(
            "mov x3, #0
mov x4, #8
{ROOM}mov w9, w2
mov x2, #0
tbnz w9, #31, 3f
mov w10, #1000
udiv w11, w9, w10
msub w9, w11, w10, w9
mov w10, #16960
movk w10, #15, lsl #16
umull x9, w9, w10
stp x11, x9, [sp]
mov x2, sp
3:
"
        ),
        (Shape::Plain | Shape::ReturnsError, _) => String::new(),
    };
    let after = match shape {
        Shape::CopiesTime | Shape::WaitsMilliseconds => {
            "add sp, sp, #16\n.cfi_adjust_cfa_offset -16\n"
        }
        _ => "",
    };
    let result = match shape {
        Shape::ReturnsError => "neg w0, w0\nret",
        _ => {
            "cmn x0, #4095
b.cs 2f
ret
2:
neg w0, w0
stp x29, x30, [sp, #-32]!
.cfi_adjust_cfa_offset 32
.cfi_offset x29, -32
.cfi_offset x30, -24
str w0, [sp, #16]
bl __errno_location
ldr w1, [sp, #16]
str w1, [x0]
mov x0, #-1
ldp x29, x30, [sp], #32
.cfi_restore x29
.cfi_restore x30
.cfi_adjust_cfa_offset -32
ret"
        }
    };
    format!("{before}mov x8, #{number}\nsvc #0\n{after}{result}")
}
