//! One direction of a link, a lane, and what the packets on it carry.

use super::uet::Header;
use fabric::topology::LinkConfig;
use fabric::{LinkNews, PauseFrame, Rate, Span};

/// What a port tells the one at the other end of its link, besides packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum LinkFrame {
    Pause(PauseFrame),
    /// On links with credits.
    News(LinkNews),
}

/// The headers of a packet, by its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportHeaders {
    /// InfiniBand's, as RoCEv2 has them.
    Roce(wire::Packet),
    /// Those of Ultra Ethernet's packet delivery sublayer.
    Uet(Header),
}

impl TransportHeaders {
    /// Those of InfiniBand's transport, if they are.
    #[inline]
    pub const fn roce(&self) -> Option<&wire::Packet> {
        match self {
            Self::Roce(headers) => Some(headers),
            Self::Uet(_) => None,
        }
    }

    /// The packet's sequence number, if it has one: of an acknowledgement, up to where packets have arrived.
    pub fn psn(&self) -> Option<u64> {
        match self {
            Self::Roce(headers) => Some(u64::from(headers.psn.value())),
            Self::Uet(Header::Data { psn, .. } | Header::Nack { psn, .. }) => Some(*psn),
            Self::Uet(Header::Ack(sack)) => Some(sack.cumulative),
            Self::Uet(Header::Credit { .. }) => None,
        }
    }
}

/// The content of a packet of the fabric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) headers: TransportHeaders,
    /// Bytes of payload.
    pub(super) payload: u32,
    /// The flow that it belongs to.
    pub(super) flow: u32,
    /// The host that sent it.
    pub(super) from: u32,
    /// UDP source port.
    pub(super) source_port: u16,
}

/// One direction of a link, as it is for the whole run. Its number is that of the port that sends into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDirection {
    pub(super) delay: Span,
    /// Earlier than the last bit: a switch that cuts through acts on the first ones.
    pub(super) head_start_ps_per_byte: u32,
    /// From a pause frame's arrival until it is obeyed.
    pub(super) response: Span,
    /// The receiver: index among the switches or hosts of its part, and its port, which is also the one that
    /// its pause frames stop.
    pub(super) node: u32,
    pub(super) port: u16,
    pub(super) part: u8,
    pub(super) to_host: bool,
    /// The sender: its index among the switches or hosts of its part.
    pub(super) from_node: u32,
    pub(super) from_port: u16,
    pub(super) from_host: bool,
    pub(super) from_part: u8,
    pub(super) crosses: bool,
    /// The link's configuration, with its chances of damage.
    pub(super) config: LinkConfig,
    /// Packets have random delays, and overtake each other.
    pub(super) overtakes: bool,
    /// It has neither captures, damage, outages nor random delays: most are plain.
    pub(super) is_plain: bool,
    /// Link in the topology, and direction.
    pub(super) link: u32,
    pub(super) direction: u8,
    pub(super) watched: bool,
    /// InfiniBand: the longest time between two flow control packets; one that is lost is repeated then.
    pub(super) repeats_after: Option<Span>,
}

impl LinkDirection {
    /// A port without a link.
    pub(super) const UNUSED: Self = Self {
        delay: Span::ZERO,
        head_start_ps_per_byte: 0,
        response: Span::ZERO,
        node: u32::MAX,
        port: 0,
        part: 0,
        to_host: false,
        from_node: u32::MAX,
        from_port: 0,
        from_host: false,
        from_part: 0,
        crosses: false,
        config: LinkConfig::new(Rate::from_gbps(1), Span::ZERO),
        overtakes: false,
        is_plain: true,
        link: u32::MAX,
        direction: 0,
        watched: false,
        repeats_after: None,
    };

    /// Whether there is a link.
    pub(super) const fn is_used(&self) -> bool {
        self.link != u32::MAX
    }
}
