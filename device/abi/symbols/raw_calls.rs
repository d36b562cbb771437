//! Has a library make its system calls without the C library's functions that are cancellation points
//! (pthreads(7)). Used by the build scripts of the drop-in libraries.
//!
//! The C library ends a cancelled thread in the next such function, by unwinding the stack. In a call of ours
//! there are frames of Rust on it, which must not be unwound. So a call such as `ibv_post_send`, which is no
//! cancellation point of a program, must not have one in it. With `--wrap` the linker binds each use in the
//! library, those of the standard library included, to a label with the system call. Calls in which a program
//! waits are cancellation points by [`link::cancellation`], with the C library's own functions.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// What a call needs besides its arguments.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// As many arguments as the system call.
    Plain,
    /// A system call with an address and its length, or another argument, which are 0.
    RestIsZero,
    /// The kernel writes the time that is left; the function takes it as constant.
    CopiesTime,
    /// Returns the error number, and leaves `errno` as it is.
    ReturnsError,
}

/// Functions, the numbers of their system calls on x86-64, and how many arguments they pass.
const CALLS: &[(&str, u32, Shape)] = &[
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

/// Writes `raw_calls.rs`, which the library includes, and passes the linker its options.
pub(crate) fn generate() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../abi/symbols/raw_calls.rs");
    let mut text = String::from("core::arch::global_asm!(\n");
    for (name, number, shape) in CALLS {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        for line in label(name, *number, *shape).lines() {
            writeln!(text, "    \"{}\",", line.replace('"', "\\\""))?;
        }
    }
    writeln!(text, ");")?;
    let path = Path::new(&std::env::var("OUT_DIR")?).join("raw_calls.rs");
    std::fs::write(path, text)?;
    Ok(())
}

/// The label to which the linker binds a function. The fourth argument of a system call is in another
/// register than that of a function.
fn label(name: &str, number: u32, shape: Shape) -> String {
    let before = match (shape, name) {
        (Shape::Plain | Shape::ReturnsError, _) => "mov r10, rcx",
        // wait4(2): no resource usage.
        (Shape::RestIsZero, "waitpid") => "xor r10d, r10d",
        // The high half of an offset, or a peer's address and its length.
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
    format!(
        ".pushsection .text.__wrap_{name},\"ax\",@progbits
.globl __wrap_{name}
.hidden __wrap_{name}
.type __wrap_{name},@function
__wrap_{name}:
.cfi_startproc
{before}
mov eax, {number}
syscall
{after}{result}
.cfi_endproc
.size __wrap_{name}, . - __wrap_{name}
.popsection"
    )
}
