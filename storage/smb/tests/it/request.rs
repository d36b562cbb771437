//! The negotiate request of a peer with ten credits and the smallest sizes that are usual.

use wire::smb::direct::NegotiateRequest;

pub(crate) fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: 0x0100,
        max_version: 0x0100,
        credits_requested: 10,
        preferred_send_size: 1024,
        max_receive_size: 1024,
        max_fragmented_size: 131_072,
    }
}
