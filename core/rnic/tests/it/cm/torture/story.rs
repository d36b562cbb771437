//! A model of the events of a connection that are permitted after its programs' calls. It is independent of
//! the implementation of the connection manager.

use wire::cm::{CommId, RejectReason};

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// The end that sends the REQ.
    Active,
    /// The end that receives the REQ.
    Passive,
}

/// Events that an end has received, in their permitted order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Heard {
    Nothing,
    /// Request at the passive end, reply at the active one.
    Opening,
    Established,
    /// Rejected, unreachable, disconnected.
    Ending,
    /// The end of time-wait.
    TimeWaitOver,
}

/// One attempt to connect.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) passive: Option<CommId>,
    heard: [Heard; 2],
    pub(crate) accepted: bool,
    pub(crate) readied: bool,
    /// Whether each end was ended by its program: rejected, disconnected, or released.
    ended_by: [bool; 2],
    /// Whether the peer's host may have given up by itself.
    pub(crate) established: bool,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self {
            passive: None,
            heard: [Heard::Nothing; 2],
            accepted: false,
            readied: false,
            ended_by: [false; 2],
            established: false,
        }
    }

    /// Records that the program of an end has ended it.
    pub(crate) fn end(&mut self, side: Side) {
        self.ended_by[side as usize] = true;
    }

    fn hear(&mut self, side: Side, heard: Heard) {
        let before = self.heard[side as usize];
        assert!(
            before < heard,
            "{side:?} heard {before:?}, then {heard:?}: {self:?}"
        );
        self.heard[side as usize] = heard;
    }

    /// `forgotten`: the passive host may have forgotten that it was asked, because the peer's repetitions
    /// were lost for longer than answers are kept, or because its table was full.
    pub(crate) fn request(&mut self, passive: CommId, forgotten: bool) {
        if self.passive.is_some() {
            assert!(
                forgotten && self.ended_by[1],
                "one REQ, two requests: {self:?}"
            );
            self.heard[1] = Heard::Nothing;
        }
        self.passive = Some(passive);
        self.hear(Side::Passive, Heard::Opening);
    }

    pub(crate) fn reply(&mut self) {
        assert!(self.accepted, "nobody accepted: {self:?}");
        self.hear(Side::Active, Heard::Opening);
    }

    pub(crate) fn established(&mut self, by_data: bool) {
        assert!(
            self.readied || by_data,
            "the active end is not ready: {self:?}"
        );
        self.hear(Side::Passive, Heard::Established);
        self.established = true;
    }

    /// An end gets the event that the peer rejected.
    pub(crate) fn rejected(&mut self, side: Side, reason: RejectReason) {
        let other = match side {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        };
        if reason == RejectReason::CONSUMER {
            // Cause: the peer's program, or a listener that was closed while the request waited.
            assert!(self.ended_by[other as usize], "nobody rejected: {self:?}");
        }
        self.hear(side, Heard::Ending);
    }

    /// Checks the conditions that hold some time after the network has healed, when its fault rates were
    /// never so high that every repetition of a message could be lost.
    pub(crate) fn must_have_come_to_something(&self) {
        let [active, passive] = self.heard;
        match self.ended_by {
            [false, false] if self.readied => {
                assert_eq!(
                    (active, passive),
                    (Heard::Opening, Heard::Established),
                    "{self:?}"
                );
            }
            [false, false] if self.accepted => assert!(active >= Heard::Opening, "{self:?}"),
            [false, true] => assert!(
                active >= Heard::Ending,
                "the active end does not know: {self:?}"
            ),
            [true, false] if self.passive.is_some() => {
                assert!(
                    passive >= Heard::Ending,
                    "the passive end does not know: {self:?}"
                );
            }
            _ => {}
        }
    }

    pub(crate) fn unreachable(&mut self, side: Side) {
        self.hear(side, Heard::Ending);
    }

    /// An end gets the event that the peer disconnects.
    pub(crate) fn parted_by_peer(&mut self, side: Side) {
        self.hear(side, Heard::Ending);
    }

    /// An end gets the event that the peer has confirmed its DREQ.
    pub(crate) fn parted(&mut self, side: Side) {
        assert!(self.ended_by[side as usize], "it did not part: {self:?}");
        self.hear(side, Heard::Ending);
    }

    pub(crate) fn time_wait_over(&mut self, side: Side) {
        assert_eq!(self.heard[side as usize], Heard::Ending, "{self:?}");
        self.hear(side, Heard::TimeWaitOver);
    }
}
