//! The state table: the permitted state changes of a queue pair, and their attributes (IBTA 11.2.5.2, table
//! 91).

use super::attr::{AttrMask, QpType, State};
use crate::error::Error;

/// Attributes of a state change: the required and the optional ones.
type Attributes = (AttrMask, AttrMask);

const NONE: AttrMask = AttrMask::empty();
const PKEY: AttrMask = AttrMask::PKEY_INDEX;
const PKEY_PORT: AttrMask = PKEY.union(AttrMask::PORT);
const QKEY: AttrMask = AttrMask::QKEY;
const ACCESS: AttrMask = AttrMask::ACCESS_FLAGS;
const ALT: AttrMask = AttrMask::ALT_PATH;
const RNR_TIMER: AttrMask = AttrMask::MIN_RNR_TIMER;
const DEST_RD: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC;
const CUR: AttrMask = AttrMask::CUR_STATE;
const CONNECT: AttrMask = AttrMask::AV
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN);
const RETRY: AttrMask = AttrMask::TIMEOUT
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);
const SQ_PSN: AttrMask = AttrMask::SQ_PSN;
const RUNNING: AttrMask = CUR.union(ALT).union(ACCESS).union(AttrMask::PATH_MIG_STATE);
const DRAINED: AttrMask = AttrMask::AV
    .union(ALT)
    .union(ACCESS)
    .union(PKEY)
    .union(AttrMask::PATH_MIG_STATE);

/// Checks a change of state with the attributes given. `Err` is reported as `EINVAL` by `ibv_modify_qp`.
pub(crate) fn check_transition(
    kind: QpType,
    from: State,
    to: State,
    mask: AttrMask,
) -> Result<(), Error> {
    let (required, optional) =
        attributes(kind, from, to).ok_or(Error::Invalid("the state table has no such change"))?;
    if !mask.contains(required) {
        return Err(Error::Invalid(
            "an attribute that this change requires is missing",
        ));
    }
    if !(required | optional | AttrMask::STATE).contains(mask) {
        return Err(Error::Invalid(
            "an attribute that this change does not take is given",
        ));
    }
    Ok(())
}

fn attributes(kind: QpType, from: State, to: State) -> Option<Attributes> {
    use State::{
        Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError,
    };
    Some(match (from, to) {
        (_, Reset | Error) => (NONE, NONE),
        (Reset, Init) => (initial(kind), NONE),
        (Init, Init) => (NONE, initial(kind)),
        (Init, ReadyToReceive) => to_receive(kind),
        (ReadyToReceive, ReadyToSend) => to_send(kind),
        (ReadyToSend | SendQueueDrained, ReadyToSend) => (NONE, running(kind)),
        (ReadyToSend, SendQueueDrained) => (NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (SendQueueDrained, SendQueueDrained) => (NONE, drained(kind)),
        (SendQueueError, ReadyToSend) => match kind {
            QpType::Ud => (NONE, CUR | QKEY),
            QpType::Uc => (NONE, CUR | ACCESS),
            _ => return None,
        },
        _ => return None,
    })
}

fn initial(kind: QpType) -> AttrMask {
    if kind == QpType::Ud {
        PKEY_PORT | QKEY
    } else {
        PKEY_PORT | ACCESS
    }
}

fn to_receive(kind: QpType) -> Attributes {
    match kind {
        QpType::Ud => (NONE, PKEY | QKEY),
        QpType::Uc | QpType::XrcSend => (CONNECT, ALT | ACCESS | PKEY),
        QpType::Rc | QpType::XrcReceive => (CONNECT | DEST_RD | RNR_TIMER, ALT | ACCESS | PKEY),
    }
}

fn to_send(kind: QpType) -> Attributes {
    match kind {
        QpType::Ud => (SQ_PSN, CUR | QKEY),
        QpType::Uc => (SQ_PSN, RUNNING),
        QpType::Rc => (SQ_PSN | RETRY, RUNNING | RNR_TIMER),
        QpType::XrcSend => (SQ_PSN | RETRY, RUNNING),
        QpType::XrcReceive => (SQ_PSN | AttrMask::TIMEOUT, RUNNING | RNR_TIMER),
    }
}

fn running(kind: QpType) -> AttrMask {
    match kind {
        QpType::Ud => CUR | QKEY,
        QpType::Uc | QpType::XrcSend => RUNNING,
        QpType::Rc | QpType::XrcReceive => RUNNING | RNR_TIMER,
    }
}

fn drained(kind: QpType) -> AttrMask {
    match kind {
        QpType::Ud => PKEY | QKEY,
        QpType::Uc => DRAINED,
        QpType::Rc => DRAINED | AttrMask::PORT | RETRY | DEST_RD | RNR_TIMER,
        QpType::XrcSend => DRAINED | AttrMask::PORT | RETRY,
        QpType::XrcReceive => DRAINED | AttrMask::PORT | AttrMask::TIMEOUT | DEST_RD | RNR_TIMER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::*;

    const STATES: [State; 7] = [
        Reset,
        Init,
        ReadyToReceive,
        ReadyToSend,
        SendQueueDrained,
        SendQueueError,
        Error,
    ];
    const KINDS: [QpType; 5] = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::XrcSend,
        QpType::XrcReceive,
    ];

    #[test]
    fn every_state_can_be_reset_and_failed_and_only_listed_changes_exist() {
        let allowed = [
            (Reset, Init),
            (Init, Init),
            (Init, ReadyToReceive),
            (ReadyToReceive, ReadyToSend),
            (ReadyToSend, ReadyToSend),
            (ReadyToSend, SendQueueDrained),
            (SendQueueDrained, SendQueueDrained),
            (SendQueueDrained, ReadyToSend),
        ];
        for kind in KINDS {
            for from in STATES {
                for to in STATES {
                    let unreliable = matches!(kind, QpType::Uc | QpType::Ud);
                    let expected = matches!(to, Reset | Error)
                        || allowed.contains(&(from, to))
                        || (unreliable && (from, to) == (SendQueueError, ReadyToSend));
                    assert_eq!(
                        attributes(kind, from, to).is_some(),
                        expected,
                        "{kind:?} {from:?} {to:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_required_attribute_is_missed_and_each_foreign_one_refused() {
        for kind in KINDS {
            for from in STATES {
                for to in STATES {
                    let Some((required, optional)) = attributes(kind, from, to) else {
                        continue;
                    };
                    assert!(check_transition(kind, from, to, required | AttrMask::STATE).is_ok());
                    for bit in AttrMask::all().iter().filter(|&bit| bit != AttrMask::STATE) {
                        let mask = if required.contains(bit) {
                            required - bit
                        } else {
                            required | bit
                        };
                        let fine = optional.contains(bit) && !required.contains(bit);
                        assert_eq!(
                            check_transition(kind, from, to, mask).is_ok(),
                            fine,
                            "{kind:?} {from:?} {to:?} {bit:?}"
                        );
                    }
                }
            }
        }
    }
}
