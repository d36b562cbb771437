//! The states of a connection and what moves it from one to the next (IBTA 12.9, figures 139 and 140; 12.11
//! for service ID resolution).

/// Where a connection is, as seen from one of its ends. "We" is this end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CmState {
    /// Over: waits for its owner to release it.
    Idle,
    /// We asked, and wait for a REP. A timer repeats the REQ.
    ReqSent,
    /// The peer has our REQ and takes its time. A timer repeats the REQ.
    ReqMraReceived,
    /// The peer asked, and our owner has not answered yet.
    ReqReceived,
    /// As before, and the peer was told that it takes a while.
    ReqMraSent,
    /// Our owner accepted, and we wait for an RTU or data. A timer repeats the REP.
    RepSent,
    /// The peer has our REP and takes its time. A timer repeats the REP.
    RepMraReceived,
    /// The peer accepted, and our owner has not said that it is ready.
    RepReceived,
    /// As before, and the peer was told that it takes a while.
    RepMraSent,
    /// Both ends are ready.
    Established,
    /// We want to part, and wait for a DREP. A timer repeats the DREQ.
    DreqSent,
    /// The peer wants to part, and our owner has not said that it knows.
    DreqReceived,
    /// We rejected. What the peer repeats is answered again, until a timer ends it.
    Refused,
    /// Parted: packets of the connection may still be on their way, until a timer ends it.
    TimeWait,
    /// We asked which queue pair serves. A timer repeats the SIDR_REQ.
    SidrReqSent,
    /// The peer asked which queue pair serves, and our owner has not answered yet.
    SidrReqReceived,
    /// We told. What the peer repeats is answered again, until a timer ends it.
    SidrAnswered,
}

impl CmState {
    /// All of them, in order.
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

    /// Whether only a timer ends it.
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

/// What can happen to a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Input {
    /// Our owner accepts.
    Accept,
    /// Our owner is ready.
    Ready,
    /// Our owner rejects.
    Reject,
    /// Our owner needs time.
    Delay,
    /// Our owner parts, or knows that the peer does.
    Disconnect,
    /// Our owner saw data arrive.
    Data,
    /// Our owner answers a service ID resolution.
    Resolve,
    /// Our owner is gone.
    Release,
    /// The REQ once more.
    Req,
    /// An MRA for our REQ.
    MraOfReq,
    /// An MRA for our REP.
    MraOfRep,
    /// A REJ for another reason.
    Rej,
    /// A REJ that says our queue pair is in another connection.
    RejStale,
    /// A REP, perhaps once more.
    Rep,
    /// An RTU, perhaps once more.
    Rtu,
    /// A DREQ, perhaps once more.
    Dreq,
    /// A DREP to our DREQ.
    Drep,
    /// The SIDR_REQ once more.
    SidrReq,
    /// A SIDR_REP to our SIDR_REQ.
    SidrRep,
    /// A message was repeated often enough.
    GiveUp,
    /// The time for lingering is over.
    WaitOver,
}

/// What a state does with an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The connection moves on to this state.
    To(CmState),
    /// Stays, and answers as before: the peer missed it.
    Again,
    /// Stays; the input was seen before, or comes too late.
    Ignore,
    /// Does not belong here: an error to our owner, a reason to drop for the peer.
    Forbidden,
}

/// The table of states and inputs (IBTA 12.9).
pub(super) const fn step(state: CmState, input: Input) -> Step {
    use CmState as S;
    use Input as I;
    use Step::{Again, Forbidden, Ignore, To};
    match (state, input) {
        // Whoever lost its owner ends in good order.
        (S::Idle, I::Release) => To(S::Idle),
        (S::ReqSent | S::ReqMraReceived | S::SidrReqSent, I::Release) => To(S::Idle),
        (S::ReqReceived | S::ReqMraSent | S::RepReceived | S::RepMraSent, I::Release) => To(S::Refused),
        (S::RepSent | S::RepMraReceived | S::DreqReceived, I::Release) => To(S::TimeWait),
        (S::Established, I::Release) => To(S::DreqSent),
        (S::SidrReqReceived, I::Release) => To(S::SidrAnswered),
        (S::DreqSent | S::Refused | S::TimeWait | S::SidrAnswered, I::Release) => Ignore,

        // Active side.
        (S::ReqSent | S::ReqMraReceived, I::Rep) => To(S::RepReceived),
        (S::ReqSent, I::MraOfReq) => To(S::ReqMraReceived),
        (S::ReqMraReceived | S::RepReceived | S::RepMraSent | S::Established, I::MraOfReq) => Ignore,
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
        // Time-wait, so that a REQ which was delayed is not taken for a new one.
        (S::ReqReceived | S::ReqMraSent, I::Rej | I::RejStale) => To(S::TimeWait),
        // Established by data alone: the REP may still be missing.
        (S::ReqMraSent | S::RepSent | S::Established | S::Refused | S::TimeWait, I::Req) => Again,
        (S::RepMraReceived | S::DreqSent | S::DreqReceived | S::Idle, I::Req) => Ignore,
        (S::RepSent | S::RepMraReceived, I::Rtu | I::Data) => To(S::Established),
        (S::RepSent, I::MraOfRep) => To(S::RepMraReceived),
        (S::RepMraReceived | S::Established, I::MraOfRep) => Ignore,
        (S::RepSent | S::RepMraReceived, I::Rej | I::RejStale | I::Reject | I::GiveUp) => To(S::TimeWait),
        (S::Established | S::DreqSent | S::DreqReceived | S::TimeWait, I::Rtu) => Ignore,
        (S::Established, I::Data) => Ignore,

        // Parting.
        (S::Established, I::Disconnect) => To(S::DreqSent),
        (S::RepSent | S::RepMraReceived | S::Established, I::Dreq) => To(S::DreqReceived),
        (S::Established, I::Rej | I::RejStale) => To(S::TimeWait),
        (S::DreqSent, I::Drep | I::Dreq | I::Rej | I::RejStale | I::GiveUp) => To(S::TimeWait),
        (S::DreqReceived, I::Disconnect) => To(S::TimeWait),
        (S::DreqReceived, I::Dreq) => Ignore,
        (S::TimeWait | S::Idle, I::Dreq) => Again,
        (S::TimeWait | S::Idle, I::Drep | I::Rej | I::RejStale) => Ignore,

        // What lingers.
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

#[cfg(test)]
mod tests;
