//! Calls that are slow or blocked.

use super::has_rule;
use ::faults::{Action, Decision};
use std::io;
use std::time::{Duration, Instant};

/// How long a blocked call sleeps before it looks whether its rule is still there.
const LOOK: Duration = Duration::from_millis(20);

/// How a wait ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The call waits for something by itself: signals end it, and so does `pthread_cancel(3)`.
    Interruptibly,
    /// Signals do not end it, as with calls that only wait for the kernel.
    ToTheEnd,
}

/// Waits as a decision says, if it is one of waiting.
///
/// # Errors
/// `EINTR` when a signal came, and `ECANCELED` when the thread was cancelled.
pub fn wait(decision: Decision, waits: Waits) -> io::Result<()> {
    let most = match decision.action {
        Action::Slow(time) | Action::Block(Some(time)) => Some(time),
        Action::Block(None) => None,
        _ => return Ok(()),
    };
    let ends_with_rule = matches!(decision.action, Action::Block(_));
    let begin = Instant::now();
    loop {
        let left = match most {
            None => LOOK,
            Some(most) => match most.checked_sub(begin.elapsed()) {
                None | Some(Duration::ZERO) => return Ok(()),
                Some(left) => left,
            },
        };
        match ends_with_rule {
            true => sleep(left.min(LOOK), waits)?,
            false => sleep(left, waits)?,
        }
        if ends_with_rule && !has_rule(decision.rule) {
            return Ok(());
        }
    }
}

fn sleep(time: Duration, waits: Waits) -> io::Result<()> {
    match waits {
        Waits::Interruptibly => link::cancellation::sleep(time),
        Waits::ToTheEnd => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}
