//! What becomes of open devices when the program forks.
//!
//! The child has none of our threads, and shares sockets with its parent, who goes on using them. So the
//! child forgets the network: its copies of devices stay valid to be destroyed, but send and receive nothing.
//! A device that the child opens is its own. The locks of all devices are held across the fork, so that the
//! child finds none of them taken by a thread that it does not have.

use crate::device::Shared;
use crate::pump::Pump;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

static DEVICES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// A device's lock and, dropped after it, what keeps the device alive.
struct Held {
    pump: MutexGuard<'static, Pump>,
    _shared: Arc<Shared>,
}

thread_local! {
    /// Between the handlers, which the forking thread runs before and after the fork.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The descriptor that a child must not hold open, or -1.
static FORSAKEN: AtomicI32 = AtomicI32::new(-1);

/// Which process of a line of forks this is: what was made in another one is not ours to use.
pub fn generation() -> u64 {
    install_handlers();
    GENERATION.load(Ordering::Relaxed)
}

/// Has a child close its copy of a descriptor: the other end is to notice when this process ends. There is
/// one at a time; its owner forgets it in the child, and leaves it open in the parent.
pub(crate) fn forsake(fd: RawFd) {
    install_handlers();
    FORSAKEN.store(fd, Ordering::Relaxed);
}

fn install_handlers() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: functions that live as long as the program.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    });
}

/// Has the device looked after in forks from now on.
pub(crate) fn register(shared: &Arc<Shared>) {
    install_handlers();
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.retain(|device| device.strong_count() > 0);
    devices.push(Arc::downgrade(shared));
}

extern "C" fn before() {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let hold = |shared: Arc<Shared>| {
        // SAFETY: the lock lives in `shared`, which stands beside the guard and is dropped after it.
        let pump =
            unsafe { std::mem::transmute::<MutexGuard<'_, Pump>, MutexGuard<'static, Pump>>(shared.lock()) };
        Held { pump, _shared: shared }
    };
    let held = devices.iter().filter_map(Weak::upgrade).map(hold).collect();
    HELD.with(|place| *place.borrow_mut() = held);
}

extern "C" fn after_in_parent() {
    HELD.with(|held| held.borrow_mut().clear());
}

extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let forsaken = FORSAKEN.swap(-1, Ordering::Relaxed);
    if forsaken >= 0 {
        // SAFETY: whoever named it forgets it in the child.
        unsafe { libc::close(forsaken) };
    }
    HELD.with(|held| {
        let mut held = held.borrow_mut();
        held.iter_mut().for_each(|held| held.pump.sever());
        held.clear();
    });
}

#[cfg(test)]
mod tests {
    use crate::{Device, list};
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_destroys_its_copy_and_the_parent_goes_on() {
        let info = list().into_iter().find(|device| device.interface == "lo").unwrap();
        let device = Device::open(&info).unwrap();
        // SAFETY: the child touches the device, whose locks are held across the fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            device.with(|rnic, _| rnic.alloc_pd().is_ok());
            drop(device);
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        let (mut status, start) = (0, Instant::now());
        // SAFETY: our own child, and a place for its status.
        while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "the child hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert!(device.with(|rnic, _| rnic.alloc_pd().is_ok()));
    }
}
