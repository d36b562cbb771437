//! The addresses and ports of packets, which their ICRC covers.

use std::net::Ipv6Addr;
use wire::{Flow, Identification, ROCE_PORT, explain_identification, split_icrc};

/// The flow of packets from `source_port` to port 4791.
pub(crate) fn flow_between(source: Ipv6Addr, destination: Ipv6Addr, source_port: u16) -> Flow {
    match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
        (Some(source), Some(destination)) => {
            Flow::ipv4(source, destination, source_port, ROCE_PORT)
        }
        _ => Flow::ipv6(source, destination, source_port, ROCE_PORT),
    }
}

/// The IPv4 identification that explains a datagram's ICRC; `None` when none does. The socket does not give
/// the IPv4 header, so it is guessed: the position in a segmented send, as rockery sends it; otherwise any
/// that explains the difference.
pub(crate) fn identification(
    flow: &Flow,
    datagram: &[u8],
    assumed: Identification,
) -> Option<Identification> {
    let (transport, received) = split_icrc(datagram)?;
    let mut icrc = flow.seed(u16::try_from(transport.len()).ok()?, assumed);
    icrc.transport(transport);
    explain_identification(icrc.finish(), received, assumed, transport.len())
}
