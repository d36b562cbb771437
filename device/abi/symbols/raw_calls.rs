//! Has a library make its system calls without the C library's functions that are cancellation points
//! (pthreads(7)). Used by the build scripts of the drop-in libraries.
//!
//! The C library ends a cancelled thread in the next such function, by unwinding the stack. In a call of ours
//! there are frames of Rust on it, which must not be unwound. So a call such as `ibv_post_send`, which is no
//! cancellation point of a program, must not have one in it. With `--wrap` the linker binds each use in the
//! library, those of the standard library included, to a label with the system call. Calls in which a program
//! waits are cancellation points by [`link::cancellation`], with the C library's own functions.

use crate::architecture::Architecture;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// How the arguments of a system call come from those of the function.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// The arguments are the same.
    Plain,
    /// There are others behind them, which are 0: the high half of an offset, a peer's address and its
    /// length, a signal mask, resource usage.
    RestIsZero,
    /// The kernel writes the time that is left; the function takes it as constant.
    CopiesTime,
    /// The function returns the error number, and leaves `errno` as it is.
    ReturnsError,
    /// The system call takes a folder first: the current one.
    InCurrentFolder,
    /// `ppoll(2)` without anything to wait for.
    WaitsForSignal,
    /// `ppoll(2)` with the milliseconds as a time.
    WaitsMilliseconds,
}

/// Writes `raw_calls.rs`, which the library includes, and passes the linker its options.
pub(crate) fn generate(architecture: Architecture) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../abi/symbols/raw_calls.rs");
    println!("cargo:rerun-if-changed=../abi/symbols/raw_calls");
    let calls = match architecture {
        Architecture::X86_64 => x86_64::CALLS,
        Architecture::Aarch64 => aarch64::CALLS,
    };
    let body = match architecture {
        Architecture::X86_64 => x86_64::body,
        Architecture::Aarch64 => aarch64::body,
    };
    let mut text = String::from("core::arch::global_asm!(\n");
    for (name, number, shape) in calls {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        for line in label(name, &body(name, *number, *shape)).lines() {
            writeln!(text, "    \"{}\",", line.replace('"', "\\\""))?;
        }
    }
    writeln!(text, ");")?;
    let path = Path::new(&std::env::var("OUT_DIR")?).join("raw_calls.rs");
    std::fs::write(path, text)?;
    Ok(())
}

/// The label to which the linker binds a function.
fn label(name: &str, body: &str) -> String {
    format!(
        ".pushsection .text.__wrap_{name},\"ax\",@progbits
.globl __wrap_{name}
.hidden __wrap_{name}
.type __wrap_{name},@function
__wrap_{name}:
.cfi_startproc
{body}
.cfi_endproc
.size __wrap_{name}, . - __wrap_{name}
.popsection"
    )
}

#[path = "raw_calls/aarch64.rs"]
mod aarch64;
#[path = "raw_calls/x86_64.rs"]
mod x86_64;
