//! Requests to the manager's subnet administration that wait for an answer.

use crate::mad::{Mad, class};
use crate::sa::Gid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use fabric::{Span, Time};

/// The upper half of transactions, by which answers are told from those for programs: those of
/// [`crate::agents`] count up from 1.
const AGENT: u32 = 0xffff_ff01;
/// How long the first answer may take; twice as long each further time, because a manager that sweeps drops
/// requests in silence.
const TIMEOUT: Span = Span(250_000_000_000);
/// How often a request is sent.
const TRIES: u32 = 4;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Whether a group exists.
    Find(Gid),
    /// Joins a group.
    Join(Gid),
    /// Leaves a group.
    Leave,
    /// The path to a port.
    Path(Gid),
}

#[derive(Clone, Debug)]
struct Asked {
    purpose: Purpose,
    mad: Mad,
    ends_at: Time,
    tries: u32,
}

/// All requests, by transaction.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: BTreeMap<u64, Asked>,
    last: u32,
}

/// Whether a datagram answers a request of an interface, and is not for programs.
pub fn is_answer(mad: &Mad) -> bool {
    mad.is_response()
        && mad.class() == class::SUBNET_ADMINISTRATION
        && mad.transaction() >> 32 == u64::from(AGENT)
}

impl Requests {
    /// Notes a request; returns the datagram to send.
    pub(super) fn add(&mut self, now: Time, purpose: Purpose, mut mad: Mad) -> Mad {
        self.last = self.last.wrapping_add(1);
        let transaction = u64::from(AGENT) << 32 | u64::from(self.last);
        mad.set_transaction(transaction);
        let asked = Asked {
            purpose,
            mad: mad.clone(),
            ends_at: now + TIMEOUT,
            tries: 1,
        };
        self.all.insert(transaction, asked);
        mad
    }

    /// Takes what a datagram answers.
    pub(super) fn answered(&mut self, mad: &Mad) -> Option<Purpose> {
        let asked = self.all.get(&mad.transaction())?;
        if !is_answer(mad) || asked.mad.attribute() != mad.attribute() {
            return None;
        }
        self.all
            .remove(&mad.transaction())
            .map(|asked| asked.purpose)
    }

    /// What is due: datagrams to send again, and requests that have had no answer.
    pub(super) fn run(&mut self, now: Time) -> (Vec<Mad>, Vec<Purpose>) {
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        self.all.retain(|_, asked| {
            if asked.ends_at > now {
                return true;
            }
            if asked.tries == TRIES {
                ended.push(asked.purpose);
                return false;
            }
            asked.ends_at = now + TIMEOUT.times(1 << asked.tries);
            asked.tries += 1;
            again.push(asked.mad.clone());
            true
        });
        (again, ended)
    }

    pub(super) fn next_event(&self) -> Time {
        let ends = self.all.values().map(|asked| asked.ends_at);
        ends.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}
