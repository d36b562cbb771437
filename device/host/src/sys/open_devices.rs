//! Open devices across `fork`.
//!
//! The child shares sockets with its parent, which still uses them. So the child closes its sockets: its
//! copies of devices can be destroyed, but send and receive nothing. A device that the child opens is its
//! own. The locks of all devices are held across the fork, so that none of them is held in the child by a
//! thread that it does not have.
//!
//! Open devices at `exit`: an adapter acknowledges a message before its program sees the completion, so a
//! program may end at once. Acknowledgements that are held back for the next poll are sent then.

use super::fork::{self, HeldLocks};
use crate::faults;
use crate::progress::clock;
use crate::progress::pump::Pump;
use crate::progress::shared::Shared;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

static DEVICES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// How often a lock is tried at the end of the process: another thread holds it for a moment, or this one
/// holds it for ever, where `exit` is called by the handler of a signal.
const TRIES_AT_EXIT: u32 = 1000;

/// A device's lock and, dropped after it, the reference that keeps the device alive.
struct HeldDevice {
    pump: MutexGuard<'static, Pump>,
    _shared: Arc<Shared>,
}

/// State that is held across a fork: the list too, because a thread that opens a device may be about to take
/// its lock, and the child would never see that thread unlock it.
struct HeldDevices {
    _faults: faults::Held,
    devices: Vec<HeldDevice>,
    _list: MutexGuard<'static, Vec<Weak<Shared>>>,
}

impl HeldLocks for HeldDevices {
    fn sever(&mut self) {
        self.devices.iter_mut().for_each(|held| held.pump.sever());
    }
}

/// Holds the device's lock across forks from now on.
pub(crate) fn register(shared: &Arc<Shared>) {
    fork::hold_across(hold);
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function is in a library that is never unloaded.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.retain(|device| device.strong_count() > 0);
    devices.push(Arc::downgrade(shared));
}

/// The open devices of this process, and copies of its parent's.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.iter().filter_map(Weak::upgrade).collect()
}

/// Sends what open devices have held back.
extern "C" fn at_exit() {
    let Some(devices) = tried(|| DEVICES.try_lock().ok()) else {
        return;
    };
    let open: Vec<_> = devices.iter().filter_map(Weak::upgrade).collect();
    drop(devices);
    for device in open {
        if let Some(mut pump) = tried(|| device.try_lock())
            && !pump.leases.is_severed()
        {
            pump.transmit(clock::now());
        }
        // The last reference may not be dropped here: that ends what the device's thread uses.
        std::mem::forget(device);
    }
}

/// A lock that is free within [`TRIES_AT_EXIT`].
fn tried<T>(lock: impl Fn() -> Option<T>) -> Option<T> {
    (0..TRIES_AT_EXIT).find_map(|_| {
        let locked = lock();
        if locked.is_none() {
            std::thread::yield_now();
        }
        locked
    })
}

fn hold() -> Box<dyn HeldLocks> {
    let list = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let hold = |shared: Arc<Shared>| {
        // SAFETY: the lock lives in `shared`, which stands beside the guard and is dropped after it.
        let pump = unsafe {
            std::mem::transmute::<MutexGuard<'_, Pump>, MutexGuard<'static, Pump>>(shared.lock())
        };
        HeldDevice {
            pump,
            _shared: shared,
        }
    };
    let devices = list.iter().filter_map(Weak::upgrade).map(hold).collect();
    Box::new(HeldDevices {
        _faults: faults::hold(),
        devices,
        _list: list,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fork::tests::ends_well;
    use super::{DEVICES, PoisonError, fork, hold};
    use crate::{Device, list};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_child_finds_no_lock_taken_by_a_thread_that_opens_a_device() {
        let (info, stop) = (list().pop().unwrap(), AtomicBool::new(false));
        fork::hold_across(hold);
        std::thread::scope(|scope| {
            // Closes and opens as a thread that opens devices does, but more often.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(Device::open(&info).unwrap());
                }
            });
            let well = (0..30).all(|_| {
                // SAFETY: the child takes the lock that the handlers hold, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    drop(DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(7) };
                }
                ends_well(child)
            });
            stop.store(true, Ordering::Relaxed);
            assert!(well, "a child hangs");
        });
    }

    #[test]
    fn a_child_destroys_its_copy_and_the_parent_goes_on() {
        let info = list()
            .into_iter()
            .find(|device| device.interface == "lo")
            .unwrap();
        let device = Device::open(&info).unwrap();
        // SAFETY: the child touches the device, whose locks are held across the fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            device.with(|rnic, _| rnic.alloc_pd().is_ok());
            drop(device);
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        assert!(ends_well(child), "the child hangs");
        assert!(device.with(|rnic, _| rnic.alloc_pd().is_ok()));
    }
}
