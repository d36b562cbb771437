//! The faults that this process meets on purpose: the rules of `ROCKERY_FAULTS`, at work.
//!
//! Without the variable nothing of this is on the data path: `watch` says why.

pub mod control;
mod filters;
mod journal;
mod limits;
mod messages;
mod packets;
mod pages;
mod raise;
mod timer;
mod wait;

use crate::settings;
use crate::sys::fork;
use ::faults::{Action, Decision, EventKind, Interest, Occasion, Plan, Point, Rules, Timed};
use rnic::Mtu;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use filters::may_apply;
pub use limits::registered_bytes;
pub(crate) use limits::{active_mtu, lower};
pub(crate) use messages::{reject, send_message};
pub(crate) use packets::PacketFaults;
pub use pages::{are_lost, forget_pages, lose_page};
pub(crate) use raise::Raise;
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
    packets: AtomicBool,
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
            control::serve();
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
            packets: AtomicBool::new(false),
            plan: Mutex::new(plan),
        };
        live.announce(&live.plan());
        live
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the rules could apply to, to calls that do not take the lock.
    fn announce(&self, plan: &Plan) {
        filters::set(&plan.send_filters());
        let interest = plan.interest();
        self.sends.store(interest.sends, Ordering::Relaxed);
        self.receives.store(interest.receives, Ordering::Relaxed);
        self.polls.store(interest.polls, Ordering::Relaxed);
        self.notifications
            .store(interest.notifications, Ordering::Relaxed);
        self.peer.store(interest.peer, Ordering::Relaxed);
        self.packets.store(interest.packets, Ordering::Relaxed);
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
        packets: live.packets.load(Ordering::Relaxed),
    })
}

/// The fault of an occasion, if a rule has one for it, of those that `wanted` accepts. It is in the journal
/// then.
pub fn decide(occasion: &Occasion<'_>, wanted: impl Fn(Action) -> bool) -> Option<Decision> {
    // The child of a fork must not inherit the lock taken, also where no device is open yet.
    let _inside = fork::enter();
    decide_inside(occasion, wanted)
}

/// As [`decide`], with a device's lock held.
fn decide_inside(occasion: &Occasion<'_>, wanted: impl Fn(Action) -> bool) -> Option<Decision> {
    with_plan(occasion, |plan, at| plan.decide(occasion, at, wanted))
}

/// Asks the rules about an occasion, and writes their decision to the journal.
///
/// The lock is taken with those of devices held, or by calls that are inside ([`fork::enter`]): across forks
/// it is held with the devices' ([`hold`]).
fn with_plan(
    occasion: &Occasion<'_>,
    ask: impl FnOnce(&mut Plan, Duration) -> Option<Decision>,
) -> Option<Decision> {
    let live = live()?;
    let at = live.begin.elapsed();
    let mut plan = live.plan();
    let decision = ask(&mut plan, at)?;
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

/// All locks of faults.
pub(crate) struct Held {
    _plan: Option<MutexGuard<'static, Plan>>,
    _tasks: timer::Held,
    _devices: raise::Held,
    _pages: pages::Held,
}

/// Takes all locks of faults, for a fork, behind those of the devices.
pub(crate) fn hold() -> Held {
    Held {
        _plan: live().map(Live::plan),
        _tasks: timer::hold(),
        _devices: raise::hold(),
        _pages: pages::hold(),
    }
}

/// Raises an event on a device, or on all where its name is not known, as a rule says.
pub fn raise(device: Option<&str>, event: EventKind, queue_pair: Option<u32>) {
    raise::raise(device, event, queue_pair);
}

/// A device was opened: rules that apply at a time apply to it.
pub(crate) fn opened(name: &str, interface: u32, raise: Raise) {
    let Some(live) = live() else { return };
    raise::register(name, interface, raise);
    // The child of a fork has no thread yet that serves requests.
    control::serve();
    let timed = {
        let _inside = fork::enter();
        live.plan().timed(name)
    };
    timed
        .into_iter()
        .for_each(|timed| schedule(name.to_owned(), timed));
}

/// A device was closed.
pub(crate) fn closed(raise: &Raise) {
    raise::forget(raise);
}

/// Lets a rule of a time that was added apply to the devices that are open.
fn apply_in_time(number: u32) {
    let Some(live) = live() else { return };
    for name in raise::names() {
        let timed = {
            let _inside = fork::enter();
            live.plan().timed(&name)
        };
        let added = timed.into_iter().find(|timed| timed.rule == number);
        added
            .into_iter()
            .for_each(|timed| schedule(name.clone(), timed));
    }
}

/// MTU and state that the port of an interface has, of those that its interface has.
pub(crate) fn port(interface: u32, mtu: Mtu, is_up: bool) -> (Mtu, bool) {
    if !is_on() {
        return (mtu, is_up);
    }
    let name = raise::name_of(interface);
    let mtu = name.map_or(mtu, |name| active_mtu(&name, mtu));
    (mtu, is_up && !raise::is_down(interface))
}

/// Lets a rule apply when its time has come.
fn schedule(device: String, timed: Timed) {
    let wait = timed.time.saturating_sub(elapsed());
    after(wait, move || {
        let occasion = Occasion {
            device: Some(&device),
            qpn: timed.queue_pair,
            ..Occasion::at(Point::Time)
        };
        let decision = with_plan(&occasion, |plan, _| plan.decide_timed(timed.rule));
        if let Some(Action::Raise(event)) = decision.map(|decision| decision.action) {
            raise::raise(Some(&device), event, timed.queue_pair);
        }
    });
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
