//! System calls of x86-64. The fourth argument of a system call is in another register than that of a
//! function.

use super::Shape;

/// Functions, the numbers of their system calls, and how they pass arguments.
pub(crate) const CALLS: &[(&str, u32, Shape)] = &[
    ("accept4", 288, Shape::Plain),
    ("clock_nanosleep", 230, Shape::ReturnsError),
    ("close", 3, Shape::Plain),
    ("connect", 42, Shape::Plain),
    ("epoll_wait", 232, Shape::Plain),
    ("nanosleep", 35, Shape::Plain),
    ("open", 2, Shape::Plain),
    ("open64", 2, Shape::Plain),
    ("openat", 257, Shape::Plain),
    ("openat64", 257, Shape::Plain),
    ("pause", 34, Shape::Plain),
    ("poll", 7, Shape::Plain),
    ("ppoll", 271, Shape::CopiesTime),
    ("pread", 17, Shape::Plain),
    ("pread64", 17, Shape::Plain),
    ("preadv", 295, Shape::RestIsZero),
    ("pwrite", 18, Shape::Plain),
    ("pwrite64", 18, Shape::Plain),
    ("pwritev", 296, Shape::RestIsZero),
    ("read", 0, Shape::Plain),
    ("readv", 19, Shape::Plain),
    ("recv", 45, Shape::RestIsZero),
    ("recvfrom", 45, Shape::Plain),
    ("recvmsg", 47, Shape::Plain),
    ("send", 44, Shape::RestIsZero),
    ("sendmsg", 46, Shape::Plain),
    ("sendto", 44, Shape::Plain),
    ("waitpid", 61, Shape::RestIsZero),
    ("write", 1, Shape::Plain),
    ("writev", 20, Shape::Plain),
];

/// The instructions of a function.
pub(crate) fn body(name: &str, number: u32, shape: Shape) -> String {
    let before = match (shape, name) {
        // wait4(2): no resource usage.
        (Shape::RestIsZero, "waitpid") => "xor r10d, r10d",
        (Shape::RestIsZero, _) => "mov r10, rcx\nxor r8d, r8d\nxor r9d, r9d",
        // Eight bytes of signal mask.
        (Shape::CopiesTime, _) => {
            "mov r10, rcx
mov r8d, 8
sub rsp, 24
.cfi_adjust_cfa_offset 24
test rdx, rdx
je 3f
mov rax, [rdx]
mov [rsp], rax
mov rax, [rdx + 8]
mov [rsp + 8], rax
mov rdx, rsp
3:"
        }
        _ => "mov r10, rcx",
    };
    let after = match shape {
        Shape::CopiesTime => "add rsp, 24\n.cfi_adjust_cfa_offset -24\n",
        _ => "",
    };
    let result = match shape {
        Shape::ReturnsError => "neg eax\nret",
        _ => {
            "cmp rax, -4095
jae 2f
ret
2:
neg eax
push rax
.cfi_adjust_cfa_offset 8
call __errno_location@PLT
pop rcx
.cfi_adjust_cfa_offset -8
mov [rax], ecx
mov rax, -1
ret"
        }
    };
    format!("{before}\nmov eax, {number}\nsyscall\n{after}{result}")
}
