//! A parser with a fault in it, behind comparisons that no random search passes in time. A fuzzer that does
//! not find it would miss other faults as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((opcode, rest)) = wire::Bth::split(bytes)
        && opcode.opcode() == 0x64
        && opcode.dest() == wire::Qpn::GSI
        && rest.starts_with(&[0x80, 0x01, 0x00, 0x00])
    {
        panic!("the canary sings");
    }
});
