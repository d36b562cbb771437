//! Queue pair attributes, as `ibv_modify_qp` sets and `ibv_query_qp` shows them.

use crate::access::Access;
use crate::address::AddressVector;
use crate::handle::{Cq, Pd, Srq, Xrcd};
use wire::{Psn, Qpn};

/// Transport type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection (RC).
    Rc,
    /// Unreliable connection (UC).
    Uc,
    /// Unreliable datagram (UD).
    Ud,
    /// The requester half of an extended reliable connection.
    XrcSend,
    /// The responder half: receives go to the SRQ that each message names.
    XrcReceive,
}

impl QpType {
    /// The name in specifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcSend => "XRC INI",
            Self::XrcReceive => "XRC TGT",
        }
    }
}

/// State (IBTA 10.3.1); the values are those of `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u32)]
pub enum State {
    /// No requests are accepted.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// Send queue drained: no new send request is started.
    SendQueueDrained = 4,
    /// Send queue error: sends are flushed, receives continue (UC and UD).
    SendQueueError = 5,
    /// All requests are flushed.
    Error = 6,
}

impl State {
    /// The name in specifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrained => "SQD",
            Self::SendQueueError => "SQE",
            Self::Error => "ERR",
        }
    }
}

/// Path MTU; the values are those of `ibv_mtu`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum Mtu {
    /// 256 bytes per packet.
    B256 = 1,
    /// 512 bytes per packet.
    B512 = 2,
    /// 1,024 bytes: the largest that fits an Ethernet MTU of 1,500.
    B1024 = 3,
    /// 2,048 bytes per packet.
    B2048 = 4,
    /// 4,096 bytes: fits an Ethernet MTU of 9,000.
    B4096 = 5,
}

impl Mtu {
    /// Payload bytes per packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The path MTU with this value of `ibv_mtu`.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The largest path MTU that fits an interface of this MTU: IPv6, UDP, BTH, the longest extended header
    /// and the ICRC take at most 92 bytes, the same reserve as in Linux's software device.
    pub fn fitting(interface_mtu: u32) -> Self {
        [Self::B4096, Self::B2048, Self::B1024, Self::B512]
            .into_iter()
            .find(|mtu| mtu.bytes() + 92 <= interface_mtu)
            .unwrap_or(Self::B256)
    }
}

/// Sizes of the send and receive queues.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Capacity {
    /// Send work requests.
    pub send_wr: u32,
    /// Receive work requests.
    pub receive_wr: u32,
    /// Elements per send work request.
    pub send_sge: u32,
    /// Elements per receive work request.
    pub receive_sge: u32,
    /// Bytes of inline data per send work request.
    pub inline: u32,
}

/// Parameters of the creation of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Transport type of the queue pair.
    pub kind: QpType,
    /// Protection domain; `XrcReceive` has none.
    pub pd: Option<Pd>,
    /// XRC domain; `XrcReceive` only.
    pub xrcd: Option<Xrcd>,
    /// Completion queue of sends; all but `XrcReceive`.
    pub send_cq: Option<Cq>,
    /// Completion queue of receives; RC, UC and UD.
    pub receive_cq: Option<Cq>,
    /// Shared receive queue, used in place of an own receive queue.
    pub srq: Option<Srq>,
    /// Sizes; granted as requested.
    pub capacity: Capacity,
    /// Whether every send is signaled, regardless of its flags.
    pub signal_all: bool,
}

bitflags::bitflags! {
    /// Attributes that a call sets; the bits are those of `ibv_qp_attr_mask`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct AttrMask: u32 {
        #[allow(missing_docs)] const STATE = 1;
        #[allow(missing_docs)] const CUR_STATE = 1 << 1;
        #[allow(missing_docs)] const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        #[allow(missing_docs)] const ACCESS_FLAGS = 1 << 3;
        #[allow(missing_docs)] const PKEY_INDEX = 1 << 4;
        #[allow(missing_docs)] const PORT = 1 << 5;
        #[allow(missing_docs)] const QKEY = 1 << 6;
        #[allow(missing_docs)] const AV = 1 << 7;
        #[allow(missing_docs)] const PATH_MTU = 1 << 8;
        #[allow(missing_docs)] const TIMEOUT = 1 << 9;
        #[allow(missing_docs)] const RETRY_CNT = 1 << 10;
        #[allow(missing_docs)] const RNR_RETRY = 1 << 11;
        #[allow(missing_docs)] const RQ_PSN = 1 << 12;
        #[allow(missing_docs)] const MAX_QP_RD_ATOMIC = 1 << 13;
        #[allow(missing_docs)] const ALT_PATH = 1 << 14;
        #[allow(missing_docs)] const MIN_RNR_TIMER = 1 << 15;
        #[allow(missing_docs)] const SQ_PSN = 1 << 16;
        #[allow(missing_docs)] const MAX_DEST_RD_ATOMIC = 1 << 17;
        #[allow(missing_docs)] const PATH_MIG_STATE = 1 << 18;
        #[allow(missing_docs)] const CAP = 1 << 19;
        #[allow(missing_docs)] const DEST_QPN = 1 << 20;
        #[allow(missing_docs)] const RATE_LIMIT = 1 << 25;
    }
}

/// Path migration state; a software device has one path, so the state is stored and reported without effect.
/// Values of `ibv_mig_state`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u32)]
pub enum Migration {
    /// Migrated: the normal state.
    #[default]
    Migrated = 0,
    /// Waiting for an alternate path.
    Rearm = 1,
    /// Armed for path migration.
    Armed = 2,
}

/// Attributes of a queue pair. In a modification, only the fields in the mask are used.
#[derive(Clone, Copy, Debug)]
pub struct QpAttr {
    /// State that the queue pair changes to.
    pub state: State,
    /// State that the caller assumes (for RTR and SQE to RTS).
    pub current_state: State,
    /// Path MTU of the connection.
    pub path_mtu: Mtu,
    /// Path migration state; stored and reported without effect.
    pub migration: Migration,
    /// Queue key (UD).
    pub qkey: u32,
    /// First PSN expected from the peer.
    pub receive_psn: Psn,
    /// First PSN to send.
    pub send_psn: Psn,
    /// Number of the connected queue pair.
    pub destination: Qpn,
    /// Access rights of the peer.
    pub access: Access,
    /// Address vector of the path to the peer (RC, UC, XRC).
    pub vector: AddressVector,
    /// P_Key table index; only 0 exists.
    pub pkey_index: u16,
    /// Whether [`crate::Event::SendQueueDrained`] is requested.
    pub drain_notify: bool,
    /// Whether requests are outstanding in SQD. Only a query returns it.
    pub draining: bool,
    /// READs and atomics outstanding as initiator.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code, 0 to 31 (IBTA table 46).
    pub min_rnr_timer: u8,
    /// Port; only 1 exists.
    pub port: u8,
    /// Local ACK timeout code: 4.096 us × 2^code; 0 is never.
    pub timeout: u8,
    /// Retries on timeouts and sequence errors, 0 to 7.
    pub retry_count: u8,
    /// Retries on RNR NAKs, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// Pacing in kilobits per second, 0 is none.
    pub rate_limit_kbps: u32,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            state: State::Reset,
            current_state: State::Reset,
            path_mtu: Mtu::B256,
            migration: Migration::Migrated,
            qkey: 0,
            receive_psn: Psn::new(0),
            send_psn: Psn::new(0),
            destination: Qpn::new(0),
            access: Access::empty(),
            vector: AddressVector::default(),
            pkey_index: 0,
            drain_notify: false,
            draining: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port: 1,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            rate_limit_kbps: 0,
        }
    }
}
