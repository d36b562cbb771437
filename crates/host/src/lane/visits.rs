//! What stands before the packet of a request that is handed on ([`rnic::Visit`]), in the machine's byte
//! order.

use rnic::{Access, DomainName, Mtu, Visit};
use wire::Qpn;

pub(super) const VISIT_BYTES: usize = 36;

pub(super) fn to_bytes(visit: &Visit) -> [u8; VISIT_BYTES] {
    let mut bytes = [0; VISIT_BYTES];
    bytes[..4].copy_from_slice(&visit.holder.value().to_ne_bytes());
    bytes[4..8].copy_from_slice(&visit.connection.to_ne_bytes());
    bytes[8..16].copy_from_slice(&visit.domain.file.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&visit.domain.file.1.to_ne_bytes());
    bytes[24..28].copy_from_slice(&visit.domain.interface.to_ne_bytes());
    // Rights of peers are the first few.
    bytes[28] = visit.access.bits() as u8;
    bytes[29] = visit.path_mtu as u8;
    bytes[30] = visit.min_rnr_timer;
    bytes[31] = visit.max_dest_rd_atomic;
    bytes[32] = u8::from(visit.ends);
    bytes
}

/// `None` for what nobody says.
pub(super) fn parse(bytes: &[u8; VISIT_BYTES]) -> Option<Visit> {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    Some(Visit {
        holder: Qpn::new(word(0)),
        connection: word(4),
        domain: DomainName { file: (long(8), long(16)), interface: word(24) },
        access: Access::from_bits_truncate(bytes[28].into()) & Access::REMOTE,
        path_mtu: Mtu::from_code(bytes[29].into())?,
        min_rnr_timer: bytes[30],
        max_dest_rd_atomic: bytes[31],
        ends: bytes[32] != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let visit = Visit {
            holder: Qpn::new(0x4001),
            connection: 0xff_fffe,
            domain: DomainName { file: (0x1234_5678_9abc, u64::MAX), interface: 3 },
            access: Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: Mtu::B4096,
            min_rnr_timer: 31,
            max_dest_rd_atomic: 128,
            ends: true,
        };
        assert_eq!(parse(&to_bytes(&visit)), Some(visit));
        assert_eq!(parse(&[0; VISIT_BYTES]), None);
    }
}
