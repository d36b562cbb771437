//! The way in which a request reaches the peer: all that decides it, in one function.
//!
//! | way | requests | where |
//! |---|---|---|
//! | [`Way::AtOnce`] | WRITE, READ, atomic | `at_once`: executed in the call that posts it |
//! | [`Way::Run`] | WRITEs, or READs | `direct`: several, executed together in a turn |
//! | [`Way::Direct`] | WRITE, READ, atomic | `direct`: executed in a turn |
//! | [`Way::Ring`] | all | `emit`: a record of a shared-memory channel |
//! | [`Way::Packets`] | all | `emit`: packets on the network |
//!
//! A request that cannot be executed takes the next way of the table. (A WRITE with immediate data is no
//! WRITE here: the peer's program gets a completion of it.)

use crate::qp::transport::Transport;
use crate::sink::{Advice, Execution};

/// The way of a request, or its wait for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Executed on the peer's memory in the call that posts it.
    AtOnce,
    /// Executed on the peer's memory together with those behind it.
    Run,
    /// Executed on the peer's memory by itself.
    Direct,
    /// Through the ring of a shared-memory channel.
    Ring,
    /// In RoCEv2 packets.
    Packets,
    /// It waits until the peer has answered a request for the first time, and is executed then.
    AfterFirstAnswer,
    /// It waits until the requests before it, which are in the channel, are answered, and is executed then.
    AfterAnswers,
    /// It waits until the driver resumes the queue pair, and is executed then.
    NextRound,
}

/// When the way of a request is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// The program posts it.
    Post,
    /// The request is the next one to be sent.
    Turn,
    /// A part of it was sent, or all of it, and it is sent again.
    Repetition,
}

/// The facts by which the way of a request is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) transport: Transport,
    pub(super) moment: Moment,
    /// Whether the request is an RC READ or WRITE, which the requester can execute by itself.
    pub(super) is_executable: bool,
    /// Whether nothing is outstanding, it is the oldest one, and the peer is ready for it.
    pub(super) is_idle: bool,
    /// Whether the peer has answered a request of this queue pair. Never the first request of a connection is
    /// executed: one that the peer dropped because it was not ready could not be distinguished from one that
    /// was executed.
    pub(super) is_heard: bool,
    /// Whether requests before it are not answered yet.
    pub(super) follows: bool,
    /// Whether others are posted behind it.
    pub(super) leads: bool,
    /// Whether it is so long that the driver has statistics about it.
    pub(super) is_measured: bool,
}

/// Decides the way of a request. `advice` asks the driver's statistics.
#[inline(always)]
pub(super) fn choose_way(request: &Situation, advice: impl FnOnce() -> Advice) -> Way {
    if request.transport == Transport::Packets {
        return Way::Packets;
    }
    if !request.is_executable {
        return Way::Ring;
    }
    if !request.is_heard {
        let may_wait = request.moment == Moment::Turn && request.follows;
        return if may_wait && advice().execution == Execution::Direct {
            Way::AfterFirstAnswer
        } else {
            Way::Ring
        };
    }
    match request.moment {
        Moment::Post if request.is_idle => Way::AtOnce,
        Moment::Repetition if request.is_idle => Way::Direct,
        Moment::Post | Moment::Repetition => Way::Ring,
        Moment::Turn => {
            let has_statistics = request.is_measured || (request.is_idle && request.leads);
            let advice = if has_statistics {
                advice()
            } else {
                Advice::BY_CHANNEL
            };
            match advice.execution {
                Execution::Later if request.is_measured => Way::NextRound,
                Execution::Direct if request.is_measured && request.follows => Way::AfterAnswers,
                _ if !request.is_idle => Way::Ring,
                _ if request.leads && advice.in_runs => Way::Run,
                _ => Way::Direct,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only WRITE of a queue pair with a channel; the peer has answered requests before.
    const WRITE: Situation = Situation {
        transport: Transport::SharedMemory,
        moment: Moment::Turn,
        is_executable: true,
        is_idle: true,
        is_heard: true,
        follows: false,
        leads: false,
        is_measured: false,
    };
    const BUSY: Situation = Situation {
        is_idle: false,
        follows: true,
        ..WRITE
    };
    const FIRST: Situation = Situation {
        is_heard: false,
        is_idle: false,
        ..WRITE
    };

    fn at(moment: Moment, request: Situation) -> Situation {
        Situation { moment, ..request }
    }

    fn advice(execution: Execution, in_runs: bool) -> Advice {
        Advice { execution, in_runs }
    }

    #[test]
    fn statistics_are_not_asked_where_they_decide_nothing() {
        let unasked = |request: Situation| choose_way(&request, || panic!("asked: {request:?}"));
        let is_executable = false;
        for moment in [Moment::Post, Moment::Turn, Moment::Repetition] {
            let transport = Transport::Packets;
            let on_network = Situation { transport, ..WRITE };
            assert_eq!(unasked(at(moment, on_network)), Way::Packets);
            let send = Situation {
                is_executable,
                ..WRITE
            };
            assert_eq!(unasked(at(moment, send)), Way::Ring);
            assert_eq!(unasked(at(moment, FIRST)), Way::Ring);
            assert_eq!(unasked(at(moment, BUSY)), Way::Ring);
        }
        assert_eq!(unasked(at(Moment::Post, WRITE)), Way::AtOnce);
        assert_eq!(unasked(WRITE), Way::Direct);
        assert_eq!(unasked(at(Moment::Repetition, WRITE)), Way::Direct);
        let behind_first = Situation {
            follows: true,
            ..FIRST
        };
        for moment in [Moment::Post, Moment::Repetition] {
            assert_eq!(unasked(at(moment, behind_first)), Way::Ring);
        }
    }

    #[test]
    fn statistics_choose_the_way_in_a_turn() {
        use Execution::{ByChannel, Direct, Later};
        let with = |request: Situation, execution, in_runs| {
            choose_way(&request, || advice(execution, in_runs))
        };
        let long = |request: Situation| Situation {
            is_measured: true,
            ..request
        };
        let leading = |request: Situation| Situation {
            leads: true,
            ..request
        };
        let behind_first = Situation {
            follows: true,
            ..FIRST
        };
        for (request, execution, in_runs, expected) in [
            (behind_first, Direct, true, Way::AfterFirstAnswer),
            (behind_first, ByChannel, true, Way::Ring),
            (long(BUSY), ByChannel, true, Way::Ring),
            (long(BUSY), Direct, true, Way::AfterAnswers),
            (long(BUSY), Later, true, Way::NextRound),
            (long(WRITE), ByChannel, true, Way::Direct),
            (long(WRITE), Direct, true, Way::Direct),
            (long(WRITE), Later, true, Way::NextRound),
            (leading(WRITE), ByChannel, false, Way::Direct),
            (leading(WRITE), ByChannel, true, Way::Run),
            (leading(WRITE), Later, true, Way::Run),
            (leading(long(WRITE)), Direct, true, Way::Run),
            (leading(long(WRITE)), Later, true, Way::NextRound),
        ] {
            let way = with(request, execution, in_runs);
            assert_eq!(way, expected, "{request:?} {execution:?} {in_runs}");
        }
    }
}
