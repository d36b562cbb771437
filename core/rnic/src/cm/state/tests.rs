//! The state table, written out: every state with every input, including the forbidden ones.

use super::CmState as S;
use super::Input as I;
use super::{CmState, Input, Step, step};
use std::vec::Vec;

/// All inputs, in the order of the table's columns.
const INPUTS: [Input; 21] = [
    I::Accept,
    I::Ready,
    I::Reject,
    I::Delay,
    I::Disconnect,
    I::Data,
    I::Resolve,
    I::Release,
    I::Req,
    I::MraOfReq,
    I::MraOfRep,
    I::Rej,
    I::RejStale,
    I::Rep,
    I::Rtu,
    I::Dreq,
    I::Drep,
    I::SidrReq,
    I::SidrRep,
    I::GiveUp,
    I::WaitOver,
];

/// Abbreviation of a state: two letters.
const fn short(state: CmState) -> &'static str {
    match state {
        S::Idle => "id",
        S::ReqSent => "qs",
        S::ReqMraReceived => "qm",
        S::ReqReceived => "qr",
        S::ReqMraSent => "qd",
        S::RepSent => "ps",
        S::RepMraReceived => "pm",
        S::RepReceived => "pr",
        S::RepMraSent => "pd",
        S::Established => "es",
        S::DreqSent => "ds",
        S::DreqReceived => "dr",
        S::Refused => "rf",
        S::TimeWait => "tw",
        S::SidrReqSent => "ss",
        S::SidrReqReceived => "sr",
        S::SidrAnswered => "sa",
    }
}

/// A row per state, a column per input: the next state, `++` answers again, `..` ignores, `--` is forbidden.
///
/// The first eight columns are inputs of the owner, the next eleven of the peer, the last two of timers.
const TABLE: &str = "
       owner                   peer                             clock
   | ac rd rj dl dc da rs rl | rq mq mp rj st rp ru dq dp sq sp | gu wo
id | -- -- -- -- -- -- -- id | .. -- -- .. .. -- -- ++ .. -- -- | -- --
qs | -- -- id -- -- -- -- id | -- qm -- id tw pr -- -- -- -- -- | id --
qm | -- -- id -- -- -- -- id | -- .. -- id tw pr -- -- -- -- -- | id --
qr | ps -- rf qd -- -- -- rf | qd -- -- tw tw -- -- -- -- -- -- | -- --
qd | ps -- rf -- -- -- -- rf | ++ -- -- tw tw -- -- -- -- -- -- | -- --
ps | -- -- tw -- -- es -- tw | ++ -- pm tw tw -- es dr -- -- -- | tw --
pm | -- -- tw -- -- es -- tw | .. -- .. tw tw -- es dr -- -- -- | tw --
pr | -- es rf pd -- -- -- rf | -- .. -- tw tw pd -- -- -- -- -- | -- --
pd | -- es rf -- -- -- -- rf | -- .. -- tw tw ++ -- -- -- -- -- | -- --
es | -- -- -- -- ds .. -- ds | ++ .. .. tw tw ++ .. dr -- -- -- | -- --
ds | -- -- -- -- -- -- -- .. | .. -- -- tw tw .. .. tw tw -- -- | tw --
dr | -- -- -- -- tw -- -- tw | .. -- -- -- -- -- .. .. -- -- -- | -- --
rf | -- -- -- -- -- -- -- .. | ++ -- -- .. .. ++ -- -- -- -- -- | -- id
tw | -- -- -- -- -- -- -- .. | ++ -- -- .. .. -- .. ++ .. -- -- | -- id
ss | -- -- -- -- -- -- -- id | -- -- -- -- -- -- -- -- -- -- id | id --
sr | -- -- -- -- -- -- sa sa | -- -- -- -- -- -- -- -- -- .. -- | -- --
sa | -- -- -- -- -- -- -- .. | -- -- -- -- -- -- -- -- -- ++ -- | -- id
";

#[test]
fn every_state_reacts_to_every_input_as_the_table_says() {
    let rows: Vec<&str> = TABLE.lines().skip(3).collect();
    assert_eq!(rows.len(), CmState::ALL.len());
    for (state, row) in CmState::ALL.into_iter().zip(rows) {
        let cells: Vec<&str> = row.split_whitespace().filter(|cell| *cell != "|").collect();
        assert_eq!((cells[0], cells.len()), (short(state), 1 + INPUTS.len()));
        for (input, cell) in INPUTS.into_iter().zip(&cells[1..]) {
            let found = match step(state, input) {
                Step::To(next) => short(next),
                Step::Again => "++",
                Step::Ignore => "..",
                Step::Forbidden => "--",
            };
            assert_eq!(found, *cell, "{state:?} with {input:?}");
        }
    }
}

#[test]
fn every_state_ends_without_answers_and_without_calls() {
    for start in CmState::ALL {
        let mut state = start;
        if let Step::To(next) = step(state, I::Release) {
            state = next;
        }
        for _ in 0..CmState::ALL.len() {
            let input = if state.lingers() {
                I::WaitOver
            } else {
                I::GiveUp
            };
            if let Step::To(next) = step(state, input) {
                state = next;
            }
        }
        assert_eq!(state, S::Idle, "from {start:?}");
    }
}

#[test]
fn whoever_waits_has_a_timer_or_an_owner() {
    for state in CmState::ALL {
        let by_timer = state.repeats() && matches!(step(state, I::GiveUp), Step::To(_))
            || state.lingers() && step(state, I::WaitOver) == Step::To(S::Idle);
        let owner = [I::Accept, I::Ready, I::Reject, I::Disconnect, I::Resolve];
        let by_owner = owner
            .into_iter()
            .any(|input| matches!(step(state, input), Step::To(_)));
        assert!(by_timer || by_owner || state == S::Idle, "{state:?}");
        assert!(!(state.repeats() && state.lingers()), "{state:?}");
    }
}
