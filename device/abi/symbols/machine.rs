//! Has a library call the C library past preloaded ones that replace its clocks and waits. Used by the build
//! scripts of the drop-in libraries.
//!
//! `librockery-clocks.so` slows the program in a lab, and the device divides by the slowdown itself. With
//! `--wrap` the linker binds each call in the library, those of the standard library included, to a label,
//! which jumps to the address that `ffi::machine` has found when the library was loaded.

use crate::architecture::Architecture;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// Clocks and timers that are called in our libraries, the standard library's included. Waits are made as
/// system calls (`raw_calls.rs`), which no library replaces.
const CALLS: &[&str] = &["clock_gettime", "setsockopt", "syscall", "timerfd_settime"];

/// Writes `machine.rs`, which the library includes, and passes the linker its options.
pub(crate) fn calls(architecture: Architecture) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../abi/symbols/machine.rs");
    for name in CALLS {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    std::fs::write(
        Path::new(&std::env::var("OUT_DIR")?).join("machine.rs"),
        labels(architecture)?,
    )?;
    Ok(())
}

/// A table of addresses, which are those that the dynamic linker finds until the library is loaded, and a
/// label for each that jumps there.
fn labels(architecture: Architecture) -> Result<String, std::fmt::Error> {
    let mut text = String::from("core::arch::global_asm!(\n");
    let line = |text: &mut String, code: &str| writeln!(text, "    \"{code}\",");
    line(
        &mut text,
        ".pushsection .data.rockery_machine_calls,\\\"aw\\\",@progbits",
    )?;
    line(&mut text, ".balign 8")?;
    line(&mut text, ".globl rockery_machine_calls")?;
    line(&mut text, ".hidden rockery_machine_calls")?;
    line(&mut text, "rockery_machine_calls:")?;
    for name in CALLS {
        line(&mut text, &format!(".quad __real_{name}"))?;
    }
    line(&mut text, ".popsection")?;
    for (number, name) in CALLS.iter().enumerate() {
        line(
            &mut text,
            &format!(".pushsection .text.__wrap_{name},\\\"ax\\\",@progbits"),
        )?;
        line(&mut text, &format!(".globl __wrap_{name}"))?;
        line(&mut text, &format!(".hidden __wrap_{name}"))?;
        line(&mut text, &format!(".type __wrap_{name},@function"))?;
        line(&mut text, &format!("__wrap_{name}:"))?;
        for code in jump(
            architecture,
            &format!("rockery_machine_calls + {}", 8 * number),
        ) {
            line(&mut text, &code)?;
        }
        line(&mut text, ".popsection")?;
    }
    writeln!(text, ");")?;
    let names: Vec<String> = CALLS.iter().map(|name| format!("c\"{name}\"")).collect();
    text += &BINDING
        .replace("COUNT", &CALLS.len().to_string())
        .replace("NAMES", &names.join(", "));
    Ok(text)
}

/// A jump to the address in a table, which no argument's register is used for.
fn jump(architecture: Architecture, place: &str) -> Vec<String> {
    match architecture {
        Architecture::X86_64 => vec![format!("jmp qword ptr [rip + {place}]")],
        Architecture::Aarch64 => vec![
            format!("adrp x16, {place}"),
            format!("ldr x16, [x16, :lo12:{place}]"),
            "br x16".to_owned(),
        ],
    }
}

/// The source of the initializer that binds the calls.
const BINDING: &str = r#"
/// Before the library is used, its calls are bound to the C library's functions.
#[used]
#[unsafe(link_section = ".init_array")]
static BIND_MACHINE_CALLS: extern "C" fn() = {
    unsafe extern "C" {
        static mut rockery_machine_calls: *mut core::ffi::c_void;
    }
    extern "C" fn bind() {
        // SAFETY: the table is ours, begins there, has an address for each name, and no thread uses it yet.
        let table = unsafe { core::slice::from_raw_parts_mut(&raw mut rockery_machine_calls, COUNT) };
        ffi::machine::bind(&[NAMES], table);
    }
    bind
};
"#;
