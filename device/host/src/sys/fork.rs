//! Handlers that run before and after `fork`.
//!
//! The child has none of the library's threads, so no lock may be held by one of them. The locks of open
//! devices are held across the fork ([`hold_across`], for [`super::open_devices`]). For other locks of verbs
//! there is [`enter`]: a fork waits until no other thread is inside.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// Locks that are held across a fork, and released when this is dropped.
pub(crate) trait HeldLocks {
    /// Closes the parent's descriptors, in the child.
    fn sever(&mut self);
}

/// A function that takes locks before a fork.
type Hold = fn() -> Box<dyn HeldLocks>;

static HOLD: OnceLock<Hold> = OnceLock::new();

/// State that is held across a fork; the locks are released before the gate is opened.
struct AllHeld {
    locks: Option<Box<dyn HeldLocks>>,
    gate: MutexGuard<'static, Gate>,
}

impl Drop for AllHeld {
    fn drop(&mut self) {
        self.gate.forking = false;
        GATE_NEWS.notify_all();
    }
}

thread_local! {
    /// The held state between the handlers, which the forking thread runs before and after the fork.
    static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) };
}

/// The threads that are inside, see [`enter`].
#[derive(Debug)]
struct Gate {
    threads: usize,
    /// A fork waits: no further thread may enter.
    forking: bool,
}

static GATE: Mutex<Gate> = Mutex::new(Gate {
    threads: 0,
    forking: false,
});
/// Notified when the number of threads inside has changed, or a fork is done.
static GATE_NEWS: Condvar = Condvar::new();

thread_local! {
    /// Nesting depth of this thread inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While it exists, no other thread forks. Must not be requested with a device's lock held.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

/// Enters, before a lock is taken that the child of a fork may need: control verbs do so, but nothing on the
/// data path.
pub fn enter() -> Inside {
    if DEPTH.get() == 0 {
        install_handlers();
        let mut gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
        while gate.forking {
            gate = GATE_NEWS.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        gate.threads += 1;
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(PhantomData)
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            GATE.lock().unwrap_or_else(PoisonError::into_inner).threads -= 1;
            GATE_NEWS.notify_all();
        }
    }
}

/// Waits until this is the only thread inside, if it is, and keeps others out.
fn close_gate() -> MutexGuard<'static, Gate> {
    let own = usize::from(DEPTH.get() > 0);
    let mut gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    while gate.forking {
        gate = GATE_NEWS.wait(gate).unwrap_or_else(PoisonError::into_inner);
    }
    gate.forking = true;
    while gate.threads > own {
        gate = GATE_NEWS.wait(gate).unwrap_or_else(PoisonError::into_inner);
    }
    gate
}

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The descriptor that a child must close, or -1.
static FORSAKEN: AtomicI32 = AtomicI32::new(-1);

/// Generation of this process among its forks: objects that another one created must not be used.
pub fn generation() -> u64 {
    install_handlers();
    GENERATION.load(Ordering::Relaxed)
}

/// Makes a child close its copy of a descriptor, so that the other end notices when this process ends. There
/// is one at a time; its owner forgets it in the child, and leaves it open in the parent.
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

/// Registers `hold`, which takes its locks before each fork from now on.
pub(crate) fn hold_across(hold: Hold) {
    HOLD.get_or_init(|| hold);
    install_handlers();
}

extern "C" fn before() {
    let gate = close_gate();
    let locks = HOLD.get().map(|hold| hold());
    HELD.with(|place| *place.borrow_mut() = Some(AllHeld { locks, gate }));
}

extern "C" fn after_in_parent() {
    HELD.with(|held| *held.borrow_mut() = None);
}

extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let forsaken = FORSAKEN.swap(-1, Ordering::Relaxed);
    if forsaken >= 0 {
        // SAFETY: the owner of the descriptor forgets it in the child.
        unsafe { libc::close(forsaken) };
    }
    HELD.with(|held| {
        if let Some(mut held) = held.borrow_mut().take()
            && let Some(locks) = &mut held.locks
        {
            locks.sever();
        }
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Mutex, PoisonError};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// Waits for a child; whether it exited with 7. One that hangs is killed.
    pub(crate) fn ends_well(child: i32) -> bool {
        let (mut status, start) = (0, Instant::now());
        // SAFETY: our own child, and a place for its status.
        while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            if start.elapsed() > Duration::from_secs(20) {
                // SAFETY: our own child.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
    }

    #[test]
    fn a_child_finds_no_lock_taken_by_a_thread_that_is_inside() {
        static LOCK: Mutex<()> = Mutex::new(());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _inside = super::enter();
                    drop((
                        super::enter(),
                        LOCK.lock().unwrap_or_else(PoisonError::into_inner),
                    ));
                }
            });
            let well = (0..30).all(|round| {
                // The forking thread itself may be inside.
                let _inside = (round % 2 == 0).then(super::enter);
                // SAFETY: the child takes a lock that no thread has now, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    drop((
                        super::enter(),
                        LOCK.lock().unwrap_or_else(PoisonError::into_inner),
                    ));
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(7) };
                }
                ends_well(child)
            });
            stop.store(true, Ordering::Relaxed);
            assert!(well, "a child hangs");
        });
    }
}
