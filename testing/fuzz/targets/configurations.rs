//! Configurations of switches and hosts, outputs of switches, snapshots, captures of LLDP, and probes for a
//! matrix: the first byte chooses the reader.
#![no_main]

use vendors::Dialect;
use doctor::{Marks, check, neighbours, read_switch};
use vendors::read_host;
use doctor::probe::{Matrix, read_row};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let error = match Dialect::ALL.get(usize::from(which % 15)) {
        Some(dialect) => match dialect.read_groups("input", &text) {
            Ok(read) => {
                // Parsed settings can be written and read again. Names of ports may be ones that no system
                // has, so that they need not read back.
                for intent in read.groups {
                    let written = dialect.write(&intent, dialect.versions().1);
                    let _ = dialect.read("written", &written.text);
                }
                None
            }
            Err(error) => Some(error),
        },
        None => match which % 15 {
            11 => read_host("input", &text)
                .map(|host| _ = unsimulated(host))
                .err(),
            12 => read_switch("input", &text).err(),
            13 => read_row("input", &text)
                .map(|row| _ = Matrix::new(vec![row]).page())
                .err(),
            _ => neighbours("input", rest).err(),
        },
    };
    if let Some(error) = error {
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

/// Rules of a host whose adapters are left out, since each finding is a simulation.
fn unsimulated(mut host: vendors::facts::HostFacts) -> usize {
    host.adapters.clear();
    check(&[host], &[], Marks::default()).len()
}
