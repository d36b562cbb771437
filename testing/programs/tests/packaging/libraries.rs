//! The versions of the C library that rockery's libraries and its binary need, and the functions of releases
//! of rdma-core that are newer than this machine's headers.

use std::path::Path;
use std::process::Command;

use programs::probe::Probe;
use programs::{Machine, Namespace, Rockery};

const SECONDS: u64 = 60;

/// The oldest C library that the code is written for: RHEL 8's.
const OLDEST_GLIBC: (u32, u32) = (2, 28);

/// Functions that programs built with an older glibc have in their own code: it comes with a part for static
/// linking (`libc_nonshared.a`), which newer ones have in the shared library.
const IN_THE_STATIC_PART: [&str; 8] = [
    "stat",
    "stat64",
    "fstat",
    "fstat64",
    "lstat",
    "lstat64",
    "fstatat",
    "fstatat64",
];

/// A line of `objdump -T`: whether the symbol is undefined, whether it is weak, its version of glibc, its
/// name.
struct Symbol {
    is_undefined: bool,
    is_weak: bool,
    version: (u32, u32),
    name: String,
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut fields = line.split_whitespace().rev();
    let (name, version) = (fields.next()?, fields.next()?);
    let version = version.trim_matches(['(', ')']).strip_prefix("GLIBC_")?;
    let mut numbers = version.split('.').map(str::parse);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    // The address takes 16 columns; of the seven flags behind it, the second column marks a weak symbol.
    let is_weak = line.get(17..24)?.contains('w');
    Some(Symbol {
        is_undefined: line.contains("*UND*"),
        is_weak,
        version,
        name: name.to_owned(),
    })
}

fn symbols(file: &Path) -> Vec<Symbol> {
    let output = Command::new("objdump").arg("-T").arg(file).output();
    let output = output.expect("this test needs the package binutils");
    assert!(
        output.status.success(),
        "{}: {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(symbol)
        .collect()
}

/// A function that this machine's glibc has under an older version too only got a new version; one that it
/// has not came later, and a program that needs it does not start on older systems.
#[test]
fn every_function_of_the_c_library_is_in_glibc_2_28() {
    let built = Rockery::built();
    let files = built.files();
    let needs_libm = files
        .iter()
        .filter(|file| !file.to_string_lossy().contains("/usr/lib"));
    let system = ["libc.so.6", "libm.so.6"].map(|name| symbols(&loaded(built.path(), name)));
    let is_old = |name: &str| {
        let mut known = system
            .iter()
            .flatten()
            .filter(|symbol| !symbol.is_undefined && symbol.name == name);
        IN_THE_STATIC_PART.contains(&name) || known.any(|symbol| symbol.version <= OLDEST_GLIBC)
    };
    let mut too_new = Vec::new();
    for file in needs_libm {
        let imported = symbols(file)
            .into_iter()
            .filter(|symbol| symbol.is_undefined && !symbol.is_weak);
        let later =
            imported.filter(|symbol| symbol.version > OLDEST_GLIBC && !is_old(&symbol.name));
        too_new.extend(later.map(
            |Symbol {
                 name,
                 version: (major, minor),
                 ..
             }| {
                format!("{}: {name} came with glibc {major}.{minor}", file.display())
            },
        ));
    }
    assert!(
        too_new.is_empty(),
        "call it as a system call, with a way around it:\n{}",
        too_new.join("\n")
    );
}

/// Where the dynamic loader finds a library of a program.
fn loaded(program: &Path, library: &str) -> std::path::PathBuf {
    let said = Command::new("ldd")
        .arg(program)
        .output()
        .expect("ldd comes with the C library")
        .stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with(library));
    let path = line.and_then(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    path.unwrap_or_else(|| {
        panic!(
            "{library} is not among those of {}:\n{said}",
            program.display()
        )
    })
    .into()
}

/// `new_functions.c` looks for each function by its version, as a program built with rdma-core 65 would.
#[test]
fn functions_of_newer_releases_follow_their_manual_pages() {
    let probe = Probe::compile_with(
        "cc",
        "new_functions",
        &["-libverbs", "-lrdmacm", "-ldl", "-pthread"],
    )
    .unwrap();
    let alone = Namespace::with_rockery();
    let path = probe.path().to_string_lossy();
    let said = alone
        .run(&[&path], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    assert!(said.contains("all as it should be"), "{said}");
}
