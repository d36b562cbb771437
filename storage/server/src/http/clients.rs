//! The connections of an HTTP server, within their limit.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Admission;
use crate::{UnauthenticatedBudget, UnauthenticatedShare};

/// The connections of a server within their limit.
#[derive(Debug)]
pub(super) enum Clients {
    /// At most so many connections.
    Counted {
        count: Arc<AtomicUsize>,
        most: usize,
    },
    /// Within a memory, of which each takes some.
    Charged {
        budget: Arc<UnauthenticatedBudget>,
        each: usize,
    },
}

/// An admitted connection; it takes its place until this is dropped.
#[derive(Debug)]
pub(super) enum Admitted {
    Counted(Arc<AtomicUsize>),
    Charged(UnauthenticatedShare),
}

impl Clients {
    pub(super) fn new(admission: Admission) -> Self {
        match admission {
            Admission::AtMost(most) => Self::Counted {
                count: Arc::default(),
                most,
            },
            Admission::Memory { bytes, each } => Self::Charged {
                budget: UnauthenticatedBudget::new(bytes),
                each,
            },
        }
    }

    /// Admits a connection, if there is a place for it. Waits up to `patience` for displaced ones to end.
    pub(super) fn admit(&self, address: IpAddr, patience: Duration) -> Option<Admitted> {
        match self {
            Self::Counted { count, most } => {
                let before = count.fetch_add(1, Ordering::Relaxed);
                let admitted = Admitted::Counted(Arc::clone(count));
                (before < *most).then_some(admitted)
            }
            Self::Charged { budget, each } => budget
                .admit_within(address, *each, patience)
                .map(Admitted::Charged),
        }
    }
}

impl Admitted {
    /// Calls `notice` when another connection needs the memory of this one.
    pub(super) fn on_displaced(&self, notice: impl Fn() + Send + Sync + 'static) {
        match self {
            Self::Counted(_) => {}
            Self::Charged(share) => share.on_displaced(notice),
        }
    }

    /// Takes so many bytes more; returns whether there are as many.
    pub(super) fn holds(&self, bytes: usize) -> bool {
        match self {
            Self::Counted(_) => true,
            Self::Charged(share) => share.grow(bytes),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Self::Counted(count) = self {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
