//! A host that is connected to a target and sends arbitrary bytes, or commands that are framed well.
//!
//! The input is a byte that chooses digests, then steps: a byte that chooses the event, a length, and bytes.
#![no_main]

#[path = "../../../storage/nvme/tests/it/support.rs"]
#[allow(dead_code, reason = "the fuzzer takes a part of the host")]
mod support;

use support::{Host, Line, target};
use wire::nvme::tcp::{Digests, Header};
use wire::nvme::{Admin, Command, Io, Sgl};

/// Steps of one input at most: faults show early.
const STEPS_MAX: usize = 32;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, mut rest)) = bytes.split_first() else {
        return;
    };
    let digests = Digests {
        header: kind & 1 != 0,
        data: kind & 2 != 0,
    };
    let target = target();
    let mut host = Host::with(&target, 1, digests, 16, kind & 4);
    let mut fresh = Line::new(&target, 2);
    for _ in 0..STEPS_MAX {
        let Some((&[action, length], after)) = rest.split_first_chunk() else {
            break;
        };
        let (part, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let line = match action % 4 {
            0 => &mut fresh,
            1 => &mut host.admin,
            _ => &mut host.io,
        };
        match action & 0x80 {
            0 => line.bytes(part),
            _ => say(line, action, part),
        }
        line.pdus.clear();
    }
});

/// A command out of bytes: often one that there is, on the namespace that there is, with data that fit.
fn say(line: &mut Line, action: u8, bytes: &[u8]) {
    let mut whole = [0; 64];
    for (place, byte) in whole.iter_mut().zip(bytes) {
        *place = *byte;
    }
    let mut command = Command::parse(&whole);
    command.opcode = match action & 0x60 {
        0x00 => command.opcode,
        0x20 => Admin::ALL[usize::from(command.opcode) % Admin::ALL.len()] as u8,
        _ => Io::ALL[usize::from(command.opcode) % Io::ALL.len()] as u8,
    };
    command.flags &= 3;
    if action & 0x10 != 0 {
        (command.nsid, command.cdw11, command.cdw12) = (1, command.cdw11 & 7, command.cdw12 & 0xf);
    }
    let data = bytes.get(64..).unwrap_or_default();
    let length = data.len() as u32;
    let sgl = match length {
        0 => Sgl::Transport {
            length: command.cdw13 & 0x1ffff,
        },
        length => Sgl::InCapsule { offset: 0, length },
    };
    line.send(&Header::Command(command.with_sgl(sgl)), 0, data);
}
