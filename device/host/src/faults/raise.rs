//! Asynchronous events that rules raise, and the open devices that they are raised on.

use ::faults::EventKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open device.
struct Open {
    name: String,
    interface: u32,
    raise: Raise,
}

/// Raises an event on a device, about a queue pair or about all.
pub(crate) type Raise = Arc<dyn Fn(EventKind, Option<u32>) + Send + Sync>;

static DEVICES: Mutex<Vec<Open>> = Mutex::new(Vec::new());
/// Interfaces with a port that a rule has taken down: packets do not leave by them.
static DOWN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of this module, locked.
pub(super) struct Held {
    _devices: MutexGuard<'static, Vec<Open>>,
    _down: MutexGuard<'static, Vec<u32>>,
}

/// Locks the state, for a fork: the child must not inherit it locked by another thread.
pub(super) fn hold() -> Held {
    Held {
        _devices: lock(&DEVICES),
        _down: lock(&DOWN),
    }
}

/// Notes an open device.
pub(super) fn register(name: &str, interface: u32, raise: Raise) {
    lock(&DEVICES).push(Open {
        name: name.to_owned(),
        interface,
        raise,
    });
}

/// Forgets a device that is closed.
pub(super) fn forget(raise: &Raise) {
    lock(&DEVICES).retain(|open| !Arc::ptr_eq(&open.raise, raise));
}

/// Whether a rule has taken the port of an interface down.
pub(super) fn is_down(interface: u32) -> bool {
    lock(&DOWN).contains(&interface)
}

/// Names of the open devices.
pub(super) fn names() -> Vec<String> {
    let devices = lock(&DEVICES);
    devices.iter().map(|device| device.name.clone()).collect()
}

/// The name of the open device of an interface.
pub(super) fn name_of(interface: u32) -> Option<String> {
    let devices = lock(&DEVICES);
    let found = devices.iter().find(|device| device.interface == interface);
    found.map(|device| device.name.clone())
}

/// Raises an event on the device of this name, or on all, about one queue pair, or all of them.
pub(super) fn raise(device: Option<&str>, event: EventKind, queue_pair: Option<u32>) {
    let found: Vec<(u32, Raise)> = {
        let devices = lock(&DEVICES);
        let is_meant = |open: &&Open| device.is_none_or(|name| name == open.name);
        let meant = devices.iter().filter(is_meant);
        meant
            .map(|open| (open.interface, Arc::clone(&open.raise)))
            .collect()
    };
    for (interface, raise) in found {
        note_port(interface, event);
        raise(event, queue_pair);
    }
}

fn note_port(interface: u32, event: EventKind) {
    let mut down = lock(&DOWN);
    if matches!(event, EventKind::PortErr | EventKind::PortActive) {
        down.retain(|known| *known != interface);
    }
    if event == EventKind::PortErr {
        down.push(interface);
    }
}
