//! Work requests for a stream's messages.

use super::protocol::Message;
use abi::{
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, ibv_send_wr, ibv_sge, ibv_wr_rdma, ibv_wr_remote,
};
use core::ffi::c_int;
use std::ptr::null_mut;

/// Bytes of an immediate; packets are padded to multiples of it too.
const WORD: usize = 4;

/// An RDMA WRITE to an address under a key, with immediate data if there is a message.
pub(super) fn request(
    elements: &mut [ibv_sge],
    to: ibv_wr_rdma,
    message: Option<Message>,
    wr_id: u64,
    send_flags: u32,
) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        next: null_mut(),
        sg_list: elements.as_mut_ptr(),
        num_sge: elements.len() as c_int,
        opcode: if message.is_some() {
            IBV_WR_RDMA_WRITE_WITH_IMM
        } else {
            IBV_WR_RDMA_WRITE
        },
        send_flags,
        imm_data: message.map_or(0, |message| message.value().to_be()),
        wr: ibv_wr_remote { rdma: to },
        xrc_remote_srqn: 0,
        // SAFETY: not looked at; zeros are a valid value.
        bind_mw: unsafe { core::mem::zeroed() },
    }
}

/// Bytes of a long message that are sent with the immediate data, in a WRITE of their own.
///
/// One WRITE would have a first and a last packet that are longer than the others (RETH, ImmDt), and each of
/// the two would take a system call of its own, because the segments of one send have the same length
/// (UDP_SEGMENT). A WRITE without immediate data is cut into equal packets, and a WRITE of four bytes less
/// with immediate data makes one more of that length. One length in five cannot be split in this way, and
/// takes another system call. Where it can be cut to the packets of the `last` message, it is, so that both
/// leave together: a message that ends with a grant is a little shorter than those before it.
pub(super) fn tail_bytes(length: usize, mtu: usize, last: usize) -> Option<usize> {
    if length <= mtu {
        return None;
    }
    let longest = last.saturating_sub(WORD);
    let as_last = (longest.saturating_sub(WORD - 1)..=longest)
        .find(|tail| (1..length).contains(tail) && packet_bytes(length - tail, mtu) == Some(last));
    Some(as_last.unwrap_or_else(|| equal_tail(length, mtu)))
}

/// The tail with which most messages have packets of one length, and as few as possible.
fn equal_tail(length: usize, mtu: usize) -> usize {
    let packets = (length + WORD).div_ceil(mtu);
    let packet = (length + WORD).div_ceil(packets).next_multiple_of(WORD);
    let least = (packet + 1).saturating_sub(2 * WORD);
    least.max(length.saturating_sub((packets - 1) * packet))
}

/// Payload, with its pad, of each packet of a WRITE without immediate data; `None` where they differ.
pub(super) fn packet_bytes(length: usize, mtu: usize) -> Option<usize> {
    let packets = length.div_ceil(mtu);
    let bytes = length.div_ceil(packets).next_multiple_of(WORD);
    (bytes == (length / packets).next_multiple_of(WORD)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payload bytes of a packet after its RETH.
    fn wire_bytes(payload: usize) -> usize {
        payload.next_multiple_of(WORD)
    }

    #[test]
    fn most_long_messages_have_packets_of_one_length() {
        for mtu in [256, 1024, 4096] {
            let (mut equal, mut all) = (0, 0);
            for length in mtu + 1..=17 * mtu {
                let tail = tail_bytes(length, mtu, 0).expect("it is long");
                let (body, last) = (length - tail, wire_bytes(tail) + WORD);
                assert!(last <= mtu && tail > 0 && body > 0, "{length} of {mtu}");
                let packets = body.div_ceil(mtu);
                let sizes =
                    (0..packets).map(|it| body / packets + usize::from(it < body % packets));
                equal += usize::from(sizes.map(wire_bytes).all(|bytes| bytes == last));
                all += 1;
            }
            assert!(equal * 100 >= all * 78, "{equal} of {all} at {mtu}");
        }
        assert_eq!(tail_bytes(4096, 4096, 0), None);
        assert_eq!(tail_bytes(65536, 4096, 0), Some(3849));
    }

    #[test]
    fn a_message_that_is_cut_has_the_packets_of_those_before_it() {
        let packet = packet_bytes(65536 - 3849, 4096);
        assert_eq!(packet, Some(3856));
        let length = 65520;
        assert_ne!(
            packet_bytes(length - equal_tail(length, 4096), 4096),
            packet,
            "by itself"
        );
        let tail = tail_bytes(length, 4096, 3856).expect("it is long");
        assert_eq!(packet_bytes(length - tail, 4096), packet);
        assert_eq!(wire_bytes(tail) + WORD, 3856);
        assert_eq!(
            tail_bytes(30000, 4096, 3856),
            Some(equal_tail(30000, 4096)),
            "no such cut"
        );
    }
}
