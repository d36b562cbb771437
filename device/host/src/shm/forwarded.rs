//! Encoding of [`rnic::ForwardedRequest`], which precedes the packet of a forwarded XRC request, in the
//! machine's byte order.

use rnic::{Access, DomainName, ForwardedRequest, Mtu};
use wire::Qpn;

pub(super) const FORWARDED_BYTES: usize = 36;

pub(super) fn to_bytes(request: &ForwardedRequest) -> [u8; FORWARDED_BYTES] {
    let mut bytes = [0; FORWARDED_BYTES];
    bytes[..4].copy_from_slice(&request.front_end.value().to_ne_bytes());
    bytes[4..8].copy_from_slice(&request.connection.to_ne_bytes());
    bytes[8..16].copy_from_slice(&request.domain.file.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&request.domain.file.1.to_ne_bytes());
    bytes[24..28].copy_from_slice(&request.domain.interface.to_ne_bytes());
    // Remote access rights are in the lowest eight bits.
    bytes[28] = request.access.bits() as u8;
    bytes[29] = request.path_mtu as u8;
    bytes[30] = request.min_rnr_timer;
    bytes[31] = request.max_dest_rd_atomic;
    bytes[32] = u8::from(request.is_close_notice);
    bytes
}

/// `None` for a path MTU code that IBTA does not define.
pub(super) fn parse(bytes: &[u8; FORWARDED_BYTES]) -> Option<ForwardedRequest> {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    Some(ForwardedRequest {
        front_end: Qpn::new(word(0)),
        connection: word(4),
        domain: DomainName {
            file: (long(8), long(16)),
            interface: word(24),
        },
        access: Access::from_bits_truncate(bytes[28].into()) & Access::REMOTE,
        path_mtu: Mtu::from_code(bytes[29].into())?,
        min_rnr_timer: bytes[30],
        max_dest_rd_atomic: bytes[31],
        is_close_notice: bytes[32] != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_requests_are_parsed_as_they_were_encoded() {
        let request = ForwardedRequest {
            front_end: Qpn::new(0x4001),
            connection: 0xff_fffe,
            domain: DomainName {
                file: (0x1234_5678_9abc, u64::MAX),
                interface: 3,
            },
            access: Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: Mtu::B4096,
            min_rnr_timer: 31,
            max_dest_rd_atomic: 128,
            is_close_notice: true,
        };
        assert_eq!(parse(&to_bytes(&request)), Some(request));
        assert_eq!(parse(&[0; FORWARDED_BYTES]), None);
    }
}
