//! Statuses of completions (`enum ibv_wc_status`): which of them a request can have.

use crate::names::closest;
use crate::{Opcode, QpKind, RuleError};
use abi::names::wc_status_name;
use core::fmt;

/// Requests that can complete with a status.
#[derive(Clone, Copy, Debug)]
enum Requests {
    /// All send requests.
    Sends,
    /// All send requests and receives.
    All,
    /// Send requests with a packet, where the peer acknowledges: RC and XRC.
    Acknowledged,
    /// Of those, the ones that access the peer's memory or invalidate its key.
    Remote,
    /// Of the acknowledged ones, those that use up a receive of the peer.
    Consuming,
    /// Bindings of memory windows.
    Binds,
    /// None, for this reason.
    None(&'static str),
}

/// The device has no tag matching, and says so in its attributes.
const TAG_MATCHING: &str = "the device has no tag matching (ibv_query_device_ex: tm_caps is 0)";
/// IBTA's fourth transport service.
const DATAGRAMS: &str = "it belongs to reliable datagrams (RD), which no adapter implements";

/// By the value of the status in `infiniband/verbs.h`.
const STATUSES: &[Requests] = &[
    // SUCCESS
    Requests::None("a request that was executed has no fault"),
    // LOC_LEN_ERR
    Requests::All,
    // LOC_QP_OP_ERR
    Requests::Sends,
    // LOC_EEC_OP_ERR
    Requests::None(DATAGRAMS),
    // LOC_PROT_ERR
    Requests::All,
    // WR_FLUSH_ERR
    Requests::Sends,
    // MW_BIND_ERR
    Requests::Binds,
    // BAD_RESP_ERR
    Requests::Acknowledged,
    // LOC_ACCESS_ERR
    Requests::None(
        "it is that of a receive whose WRITE with immediate could not be placed; take the peer's right \
             to write away in its place (IBV_ACCESS_REMOTE_WRITE)",
    ),
    // REM_INV_REQ_ERR
    Requests::Acknowledged,
    // REM_ACCESS_ERR
    Requests::Remote,
    // REM_OP_ERR
    Requests::Acknowledged,
    // RETRY_EXC_ERR
    Requests::Acknowledged,
    // RNR_RETRY_EXC_ERR
    Requests::Consuming,
    // LOC_RDD_VIOL_ERR
    Requests::None(DATAGRAMS),
    // REM_INV_RD_REQ_ERR
    Requests::None(DATAGRAMS),
    // REM_ABORT_ERR
    Requests::Acknowledged,
    // INV_EECN_ERR
    Requests::None(DATAGRAMS),
    // INV_EEC_STATE_ERR
    Requests::None(DATAGRAMS),
    // FATAL_ERR
    Requests::Sends,
    // RESP_TIMEOUT_ERR
    Requests::Acknowledged,
    // GENERAL_ERR
    Requests::Sends,
    // TM_ERR
    Requests::None(TAG_MATCHING),
    // TM_RNDV_INCOMPLETE
    Requests::None(TAG_MATCHING),
];

/// Operations of send requests.
const SENDS: u32 = (1 << Opcode::Recv as u32) - 1;
/// Operations that the device executes without a packet.
const LOCAL: u32 = Opcode::LocalInv.bit() | Opcode::BindMw.bit();
/// Operations that use up a receive of the peer.
const CONSUMING: u32 = Opcode::Send.bit()
    | Opcode::SendWithImm.bit()
    | Opcode::SendWithInv.bit()
    | Opcode::RdmaWriteWithImm.bit();
/// Types of queue pairs with acknowledgements: a completion can have a status of the peer.
const RELIABLE: u32 = QpKind::Rc.bit() | QpKind::Xrc.bit();
/// All types of queue pairs.
const ANY: u32 = RELIABLE | QpKind::Uc.bit() | QpKind::Ud.bit();

/// A status other than success that a request can complete with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WcStatus(u32);

impl WcStatus {
    /// The value in `enum ibv_wc_status`.
    pub const fn value(self) -> u32 {
        self.0
    }

    fn requests(self) -> Requests {
        STATUSES[self.0 as usize]
    }

    fn name(self) -> &'static str {
        wc_status_name(self.0.into())
    }

    /// Operations that can complete with the status, as [`Opcode::bit`]s.
    pub fn opcodes(self) -> u32 {
        match self.requests() {
            Requests::All => SENDS | Opcode::Recv.bit(),
            Requests::Sends => SENDS,
            Requests::Acknowledged => SENDS & !LOCAL,
            Requests::Remote => SENDS & !LOCAL & !(Opcode::Send.bit() | Opcode::SendWithImm.bit()),
            Requests::Consuming => CONSUMING,
            Requests::Binds => Opcode::BindMw.bit(),
            Requests::None(_) => 0,
        }
    }

    /// Types of queue pairs on which requests can complete with the status, as [`QpKind::bit`]s.
    pub fn kinds(self) -> u32 {
        match self.requests() {
            Requests::Acknowledged | Requests::Remote | Requests::Consuming => RELIABLE,
            _ => ANY,
        }
    }

    /// Reads a name, with or without `IBV_WC_`, or a value.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let upper = text.to_uppercase();
        let plain = upper.strip_prefix("IBV_WC_").unwrap_or(&upper);
        let mut all = (0..STATUSES.len() as u32).map(Self);
        let is_meant = |one: &Self| one.name() == plain || plain.parse() == Ok(one.0);
        let Some(status) = all.clone().find(is_meant) else {
            let like = closest(plain, all.by_ref().map(Self::name));
            let remedy = like.map_or_else(
                || "write one of enum ibv_wc_status, such as RETRY_EXC_ERR".to_owned(),
                |name| format!("did you mean {name}?"),
            );
            return Err(RuleError::wrong("status of completions", text, remedy));
        };
        match status.requests() {
            Requests::None(reason) => Err(RuleError::Impossible(format!(
                "a completion with {}: {reason}",
                status.name()
            ))),
            _ => Ok(status),
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_accepted_or_refused_with_its_reason() {
        for (value, requests) in STATUSES.iter().enumerate() {
            let name = wc_status_name(value as u64);
            let parsed = [
                WcStatus::parse(name),
                WcStatus::parse(&format!("IBV_WC_{name}")),
            ];
            assert_eq!(parsed[0], parsed[1]);
            assert_eq!(parsed[0], WcStatus::parse(&value.to_string()));
            match requests {
                Requests::None(reason) => {
                    let error = parsed[0].clone().unwrap_err().to_string();
                    assert!(error.contains(reason), "{error}");
                }
                _ => assert_ne!(parsed[0].clone().unwrap().opcodes(), 0, "{name}"),
            }
        }
        assert_eq!(wc_status_name(STATUSES.len() as u64), "unknown status");
        let error = WcStatus::parse("RETRY_EXEC_ERR").unwrap_err().to_string();
        let expected = "`RETRY_EXEC_ERR` is no status of completions: did you mean RETRY_EXC_ERR?";
        assert_eq!(error, expected);
    }

    #[test]
    fn unacknowledged_queue_pairs_have_no_status_of_a_peer() {
        let retry = WcStatus::parse("RETRY_EXC_ERR").unwrap();
        assert_eq!(retry.kinds() & (QpKind::Ud.bit() | QpKind::Uc.bit()), 0);
        let rnr = WcStatus::parse("RNR_RETRY_EXC_ERR").unwrap();
        assert_eq!(rnr.opcodes() & Opcode::RdmaRead.bit(), 0);
    }
}
