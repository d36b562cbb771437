//! Outputs of switches: the first byte chooses the command, the rest is its output. Each reader is reached
//! that way, and the fuzzer need not find its command.
#![no_main]

use doctor::read_switch;

/// One in each line.
const COMMANDS: &str = include_str!("../../../network/doctor/tests/shown-commands.txt");

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Some(command) = COMMANDS
        .lines()
        .nth(usize::from(*which) % COMMANDS.lines().count())
    else {
        return;
    };
    let text = format!("==> {command} <==\n{}", String::from_utf8_lossy(rest));
    if let Err(error) = read_switch("input", &text) {
        assert!(
            error.to_string().starts_with("cannot read line "),
            "{error}"
        );
        assert!(
            error.line >= 1 && error.line <= text.lines().count().max(1),
            "{error}"
        );
    }
});
