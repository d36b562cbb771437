//! Random input: see [`crate::contract`].

use crate::contract;
use proptest::prelude::*;

/// A datagram that agents look into: of a class that they have, with an attribute that may exist.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let class = prop::sample::select(vec![0x01_u8, 0x81, 0x03, 0x04, 0x32]);
    let method = prop::sample::select(vec![1_u8, 2, 5, 7, 0x12, 0x81, 0x92]);
    let attribute = prop_oneof![0_u16..0x40, any::<u16>()];
    let modifier = prop_oneof![0_u32..4, any::<u32>()];
    let data = prop::collection::vec(any::<u8>(), 256);
    (class, method, attribute, modifier, data, 0_u8..4).prop_map(
        |(class, method, attribute, modifier, mut data, hops)| {
            data[..4].copy_from_slice(&[1, class, 1 + u8::from(class == 3), method]);
            data[6..8].copy_from_slice(&[0, hops]);
            data[16..18].copy_from_slice(&attribute.to_be_bytes());
            data[20..24].copy_from_slice(&modifier.to_be_bytes());
            data[24..32].fill(0);
            data[128..132].copy_from_slice(&[0, 1, 1, 1]);
            data
        },
    )
}

fn step() -> impl Strategy<Value = Vec<u8>> {
    let sent = (0_u8..2, datagram()).prop_map(|(kind, datagram)| [&[kind][..], &datagram].concat());
    let written = datagram().prop_map(|datagram| [&[2][..], &[0; 56], &datagram].concat());
    let other = (3_u8..6, prop::collection::vec(any::<u8>(), 41))
        .prop_map(|(kind, bytes)| [&[kind][..], &bytes].concat());
    prop_oneof![6 => sent, 2 => written, 1 => other]
}

proptest! {
    #[test]
    fn any_requests_leave_a_valid_subnet(all in prop::collection::vec(step(), 1..12)) {
        contract::steps(&all.concat());
    }

    #[test]
    fn any_bytes_leave_a_valid_subnet(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        contract::steps(&bytes);
    }
}
