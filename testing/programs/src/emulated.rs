//! Test programs of this workspace for 64-bit ARM, in emulation: as programs alone (QEMU's user mode), and in
//! an emulated machine of two processors, which run at once. The emulator keeps this machine's order of
//! memory accesses.

use std::path::Path;
use std::process::Command;
use std::thread;

use crate::{Arm, ArmWithRockery, Error, Job, Machine, Packages, Segment};

/// The emulator, as Debian and others name it.
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];
/// Processes that outlive others, at a time.
const SURVIVORS: u64 = 2;
/// A kill takes seconds where other programs use this machine.
const SECONDS_PER_KILL: u64 = 30;

/// Runs a program alone; what it printed. `options` are the emulator's.
///
/// # Errors
/// When there is no emulator, or the program fails.
///
/// # Panics
/// When test programs for 64-bit ARM cannot be built.
pub fn run(options: &[&str], program: &Path, arguments: &[&str]) -> Result<String, Error> {
    let (_, libraries) = Packages::tests_for_arm();
    let start = |emulator: &str| {
        let mut command = Command::new(emulator);
        command.args(options).arg("-L").arg(&libraries);
        command.arg(program).args(arguments).output()
    };
    let output = start(EMULATORS[0])
        .or_else(|_| start(EMULATORS[1]))
        .map_err(|source| Error::Start {
            program: EMULATORS[0].to_owned(),
            source,
        })?;
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(Error::Failed {
        command: format!("{} {}", program.display(), arguments.join(" ")),
        output: text,
    })
}

/// Two devices over a bad network, over shared memory that ends, and over both, for this many seeds of each:
/// on all processors of this machine.
///
/// # Errors
/// With the seed that fails.
///
/// # Panics
/// As [`run`].
pub fn torture(seeds: u64) -> Result<(), Error> {
    let program = test_program("rockery-torture");
    let parts = thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let part = |first: u64, count: u64| -> Result<(), Error> {
        for kind in [&[][..], &["--shared-memory"], &["--compare"]] {
            let (count, first) = (count.to_string(), first.to_string());
            let arguments = [kind, &["--seeds", &count, "--from", &first]].concat();
            let said = run(&[], &program, &arguments)?;
            if !said.starts_with(&format!("{count} seeds: ")) {
                return Err(Error::Failed {
                    command: arguments.join(" "),
                    output: said,
                });
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let part = &part;
        let started: Vec<_> = (0..parts)
            .map(|at| (seeds * at / parts, seeds * (at + 1) / parts))
            .map(|(first, end)| scope.spawn(move || part(first, end - first)))
            .collect();
        started
            .into_iter()
            .try_for_each(|it| it.join().expect("a thread that does not panic"))
    })
}

/// Processes that are killed beside others, which check every completion, their descriptors and mappings
/// (`device/host/tests/it/kills.rs`), in one machine of two processors. At least this many are.
///
/// # Errors
/// When one does not outlive them.
///
/// # Panics
/// As [`run`].
pub fn kills(kills: u64) -> Result<(), Error> {
    let program = test_program("host-test-processes");
    let arm = Arm::new("debian-13-arm64")?.in_real_time();
    arm.add(&program)?;
    let segment = Segment::new(1500)?;
    // Without the kernel's device, which has the port.
    let guest = ArmWithRockery::new(segment.arm_guest(11, &arm)?)?;
    let is_expected = "test $(uname -m) = aarch64 && test $(nproc) = 2";
    let checked = guest.guest().shell(is_expected)?;
    if !checked.succeeded() {
        return Err(Error::Failed {
            command: is_expected.to_owned(),
            output: checked.output,
        });
    }
    // Each takes a quarter of the number.
    let number = format!("ROCKERY_TEST_KILLS={}", (kills * 4).div_ceil(SURVIVORS));
    let start = |seed: u64| -> Result<Box<dyn Job + '_>, Error> {
        let seed = seed.to_string();
        let program = "/rockery/host-test-processes";
        guest
            .guest()
            .start(&["env", &number, program, "survivor", &seed])
    };
    let survivors: Vec<_> = (1..=SURVIVORS).map(start).collect::<Result<_, _>>()?;
    for mut survivor in survivors {
        let ended = survivor.wait(60 + kills * SECONDS_PER_KILL)?;
        if !ended.succeeded() || !ended.output.contains("survived") {
            return Err(Error::Failed {
                command: "survivor".to_owned(),
                output: ended.output,
            });
        }
    }
    Ok(())
}

fn test_program(name: &str) -> std::path::PathBuf {
    let (programs, _) = Packages::tests_for_arm();
    let found = programs.into_iter().find(|path| path.ends_with(name));
    found.unwrap_or_else(|| panic!("{name} is not among the test programs for 64-bit ARM"))
}
