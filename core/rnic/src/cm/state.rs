//! The states of a connection and what moves it from one to the next (IBTA 12.9, figures 139 and 140; 12.11
//! for service ID resolution).

/// State of a connection, as seen from one of its ends. "We" is this end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CmState {
    /// Over: the owner has to release it.
    Idle,
    /// We sent a REQ, and wait for a REP. A timer repeats the REQ.
    ReqSent,
    /// The peer has answered the REQ with an MRA. A timer repeats the REQ.
    ReqMraReceived,
    /// The peer sent a REQ, and our owner has not answered yet.
    ReqReceived,
    /// As [`Self::ReqReceived`], and we sent an MRA.
    ReqMraSent,
    /// Our owner accepted, and we wait for an RTU or data. A timer repeats the REP.
    RepSent,
    /// The peer has answered the REP with an MRA. A timer repeats the REP.
    RepMraReceived,
    /// The peer accepted, and our owner is not ready yet.
    RepReceived,
    /// As [`Self::RepReceived`], and we sent an MRA.
    RepMraSent,
    /// Both ends are ready.
    Established,
    /// We sent a DREQ, and wait for a DREP. A timer repeats the DREQ.
    DreqSent,
    /// The peer sent a DREQ, and our owner has not confirmed it yet.
    DreqReceived,
    /// We sent a REJ, which is repeated when the peer repeats its message, until a timer ends the state.
    Refused,
    /// Disconnected: packets of the connection may still be in the network, until a timer ends the state.
    TimeWait,
    /// We sent a SIDR_REQ, and wait for a SIDR_REP. A timer repeats the SIDR_REQ.
    SidrReqSent,
    /// The peer sent a SIDR_REQ, and our owner has not answered yet.
    SidrReqReceived,
    /// We sent a SIDR_REP, which is repeated when the peer repeats its request, until a timer ends the state.
    SidrAnswered,
}

impl CmState {
    /// All states, in order.
    pub const ALL: [Self; 17] = [
        Self::Idle,
        Self::ReqSent,
        Self::ReqMraReceived,
        Self::ReqReceived,
        Self::ReqMraSent,
        Self::RepSent,
        Self::RepMraReceived,
        Self::RepReceived,
        Self::RepMraSent,
        Self::Established,
        Self::DreqSent,
        Self::DreqReceived,
        Self::Refused,
        Self::TimeWait,
        Self::SidrReqSent,
        Self::SidrReqReceived,
        Self::SidrAnswered,
    ];

    /// Whether a message waits for an answer and is repeated by a timer.
    pub const fn repeats(self) -> bool {
        matches!(
            self,
            Self::ReqSent
                | Self::ReqMraReceived
                | Self::RepSent
                | Self::RepMraReceived
                | Self::DreqSent
                | Self::SidrReqSent
        )
    }

    /// Whether only a timer ends the state.
    pub const fn lingers(self) -> bool {
        matches!(self, Self::Refused | Self::TimeWait | Self::SidrAnswered)
    }

    /// Whether both ends have named the queue pair that the other uses.
    pub(super) const fn holds_queue_pair(self) -> bool {
        matches!(
            self,
            Self::ReqReceived
                | Self::ReqMraSent
                | Self::RepSent
                | Self::RepMraReceived
                | Self::RepReceived
                | Self::RepMraSent
                | Self::Established
                | Self::DreqSent
                | Self::DreqReceived
        )
    }
}

/// Inputs of the state machine: calls of the owner, messages of the peer, and timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Input {
    /// Our owner accepts.
    Accept,
    /// Our owner is ready.
    Ready,
    /// Our owner rejects.
    Reject,
    /// Our owner needs more time to answer.
    Delay,
    /// Our owner disconnects, or confirms that the peer did.
    Disconnect,
    /// Our owner saw data arrive.
    Data,
    /// Our owner answers a service ID resolution.
    Resolve,
    /// Our owner releases the connection.
    Release,
    /// The REQ again.
    Req,
    /// An MRA for our REQ.
    MraOfReq,
    /// An MRA for our REP.
    MraOfRep,
    /// A REJ for another reason.
    Rej,
    /// A REJ with the reason "stale connection": our queue pair is in another connection.
    RejStale,
    /// A REP, perhaps repeated.
    Rep,
    /// An RTU, perhaps repeated.
    Rtu,
    /// A DREQ, perhaps repeated.
    Dreq,
    /// A DREP to our DREQ.
    Drep,
    /// The SIDR_REQ again.
    SidrReq,
    /// A SIDR_REP to our SIDR_REQ.
    SidrRep,
    /// The retry limit of a message is reached.
    GiveUp,
    /// The timer of a lingering state has expired.
    WaitOver,
}

/// Result of an input in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The connection moves to this state.
    To(CmState),
    /// The state stays, and the last answer is sent again: the peer missed it.
    Again,
    /// The state stays; the input was seen before, or comes too late.
    Ignore,
    /// The input is not allowed: an error for our owner; a message of the peer is dropped.
    Forbidden,
}

/// The table of states and inputs (IBTA 12.9).
pub(super) const fn step(state: CmState, input: Input) -> Step {
    use CmState as S;
    use Input as I;
    use Step::{Again, Forbidden, Ignore, To};
    match (state, input) {
        (_, I::Release) => released(state),

        // Active side.
        (S::ReqSent | S::ReqMraReceived, I::Rep) => To(S::RepReceived),
        (S::ReqSent, I::MraOfReq) => To(S::ReqMraReceived),
        (S::ReqMraReceived | S::RepReceived | S::RepMraSent | S::Established, I::MraOfReq) => {
            Ignore
        }
        (S::ReqSent | S::ReqMraReceived, I::Rej | I::GiveUp | I::Reject) => To(S::Idle),
        (S::ReqSent | S::ReqMraReceived, I::RejStale) => To(S::TimeWait),
        (S::RepReceived | S::RepMraSent, I::Ready) => To(S::Established),
        (S::RepReceived | S::RepMraSent, I::Reject) => To(S::Refused),
        (S::RepReceived, I::Delay | I::Rep) => To(S::RepMraSent),
        (S::RepReceived | S::RepMraSent, I::Rej | I::RejStale) => To(S::TimeWait),
        (S::RepMraSent | S::Established, I::Rep) => Again,
        (S::DreqSent, I::Rep) => Ignore,

        // Passive side.
        (S::ReqReceived | S::ReqMraSent, I::Accept) => To(S::RepSent),
        (S::ReqReceived | S::ReqMraSent, I::Reject) => To(S::Refused),
        (S::ReqReceived, I::Delay | I::Req) => To(S::ReqMraSent),
        // Time-wait, so that a delayed REQ is not taken for a new one.
        (S::ReqReceived | S::ReqMraSent, I::Rej | I::RejStale) => To(S::TimeWait),
        // Established by data alone: the REP may still be missing.
        (S::ReqMraSent | S::RepSent | S::Established | S::Refused | S::TimeWait, I::Req) => Again,
        (S::RepMraReceived | S::DreqSent | S::DreqReceived | S::Idle, I::Req) => Ignore,
        (S::RepSent | S::RepMraReceived, I::Rtu | I::Data) => To(S::Established),
        (S::RepSent, I::MraOfRep) => To(S::RepMraReceived),
        (S::RepMraReceived | S::Established, I::MraOfRep) => Ignore,
        (S::RepSent | S::RepMraReceived, I::Rej | I::RejStale | I::Reject | I::GiveUp) => {
            To(S::TimeWait)
        }
        (S::Established | S::DreqSent | S::DreqReceived | S::TimeWait, I::Rtu) => Ignore,
        (S::Established, I::Data) => Ignore,

        // Disconnecting.
        (S::Established, I::Disconnect) => To(S::DreqSent),
        (S::RepSent | S::RepMraReceived | S::Established, I::Dreq) => To(S::DreqReceived),
        (S::Established, I::Rej | I::RejStale) => To(S::TimeWait),
        (S::DreqSent, I::Drep | I::Dreq | I::Rej | I::RejStale | I::GiveUp) => To(S::TimeWait),
        (S::DreqReceived, I::Disconnect) => To(S::TimeWait),
        (S::DreqReceived, I::Dreq) => Ignore,
        (S::TimeWait | S::Idle, I::Dreq) => Again,
        (S::TimeWait | S::Idle, I::Drep | I::Rej | I::RejStale) => Ignore,

        // Lingering states.
        (S::Refused, I::Rep) => Again,
        (S::Refused, I::Rej | I::RejStale) => Ignore,
        (S::Refused | S::TimeWait | S::SidrAnswered, I::WaitOver) => To(S::Idle),

        // Service ID resolution.
        (S::SidrReqSent, I::SidrRep | I::GiveUp) => To(S::Idle),
        (S::SidrReqReceived, I::Resolve) => To(S::SidrAnswered),
        (S::SidrReqReceived, I::SidrReq) => Ignore,
        (S::SidrAnswered, I::SidrReq) => Again,

        _ => Forbidden,
    }
}

/// The state after the owner of a connection has released it: a connection without an owner ends in order.
const fn released(state: CmState) -> Step {
    use CmState as S;
    match state {
        S::Idle | S::ReqSent | S::ReqMraReceived | S::SidrReqSent => Step::To(S::Idle),
        S::ReqReceived | S::ReqMraSent | S::RepReceived | S::RepMraSent => Step::To(S::Refused),
        S::RepSent | S::RepMraReceived | S::DreqReceived => Step::To(S::TimeWait),
        S::Established => Step::To(S::DreqSent),
        S::SidrReqReceived => Step::To(S::SidrAnswered),
        S::DreqSent | S::Refused | S::TimeWait | S::SidrAnswered => Step::Ignore,
    }
}

#[cfg(test)]
mod tests;
