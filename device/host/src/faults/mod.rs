//! The faults that this process meets on purpose: the rules of `ROCKERY_FAULTS`, at work.
//!
//! Without the variable nothing of this is on the data path: contexts, completion queues and queue pairs get
//! the function tables without faults when they are created. Calls that are not on the data path read one
//! byte ([`is_on`]).

mod journal;
mod timer;
mod wait;

use crate::settings;
use crate::sys::fork;
use ::faults::{Action, Decision, Interest, Occasion, Plan, Rules};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use timer::after;
pub use wait::{Waits, wait};

static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
const NOT_STARTED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static LIVE: OnceLock<Live> = OnceLock::new();

/// The rules at work.
struct Live {
    plan: Mutex<Plan>,
    begin: Instant,
    process: String,
    /// [`Interest`], readable without the lock.
    sends: AtomicU32,
    receives: AtomicBool,
    polls: AtomicBool,
    notifications: AtomicBool,
    peer: AtomicBool,
}

/// Whether this process meets faults. The first call reads the variable.
#[inline(always)]
pub fn is_on() -> bool {
    match STATE.load(Ordering::Relaxed) {
        OFF => false,
        state => is_started(state),
    }
}

#[cold]
fn is_started(state: u8) -> bool {
    static START: Once = Once::new();
    if state == NOT_STARTED {
        START.call_once(start);
    }
    STATE.load(Ordering::Relaxed) == ON
}

fn start() {
    let state = match settings::faults() {
        Some(rules) => {
            let _ = LIVE.set(Live::new(rules));
            ON
        }
        None => OFF,
    };
    STATE.store(state, Ordering::Relaxed);
}

/// The name of this process, as the kernel has it.
fn process_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

impl Live {
    fn new(rules: Rules) -> Self {
        let process = process_name();
        let plan = Plan::new(rules, &process);
        let live = Self {
            begin: Instant::now(),
            process,
            sends: AtomicU32::new(0),
            receives: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            notifications: AtomicBool::new(false),
            peer: AtomicBool::new(false),
            plan: Mutex::new(plan),
        };
        live.announce(live.plan().interest());
        live
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, interest: Interest) {
        self.sends.store(interest.sends, Ordering::Relaxed);
        self.receives.store(interest.receives, Ordering::Relaxed);
        self.polls.store(interest.polls, Ordering::Relaxed);
        self.notifications
            .store(interest.notifications, Ordering::Relaxed);
        self.peer.store(interest.peer, Ordering::Relaxed);
    }
}

fn live() -> Option<&'static Live> {
    LIVE.get()
}

/// What rules could apply to now; nothing where there are none.
#[inline]
pub fn interest() -> Interest {
    live().map_or(Interest::default(), |live| Interest {
        sends: live.sends.load(Ordering::Relaxed),
        receives: live.receives.load(Ordering::Relaxed),
        polls: live.polls.load(Ordering::Relaxed),
        notifications: live.notifications.load(Ordering::Relaxed),
        peer: live.peer.load(Ordering::Relaxed),
    })
}

/// The fault of an occasion, if a rule has one for it, of those that `wanted` accepts. It is in the journal
/// then.
pub fn decide(occasion: &Occasion<'_>, wanted: impl Fn(Action) -> bool) -> Option<Decision> {
    let live = live()?;
    let at = live.begin.elapsed();
    // The child of a fork must not inherit the lock taken.
    let _inside = fork::enter();
    let mut plan = live.plan();
    let decision = plan.decide(occasion, at, wanted)?;
    // Under the lock: the journal has the order of the decisions.
    journal::write(&::faults::Entry {
        at,
        pid: std::process::id(),
        process: &live.process,
        decision,
        occasion,
    });
    Some(decision)
}

/// Whether there still is a rule of this number.
fn has_rule(number: u32) -> bool {
    let _inside = fork::enter();
    live().is_some_and(|live| live.plan().has(number))
}

/// The time since the faults of this process began.
pub fn elapsed() -> Duration {
    live().map_or(Duration::ZERO, |live| live.begin.elapsed())
}
