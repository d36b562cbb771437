//! Parameters that a sending socket keeps between sends, so that most sends need no control messages.

use std::io;

/// Sends with one value in a row after which the socket keeps it.
const SENDS_BEFORE: u8 = 16;

/// A parameter: the value that the kernel applies to sends which name none, and that of the last sends.
#[derive(Debug)]
pub(crate) struct Kept {
    own: u16,
    last: u16,
    /// Number of sends in a row that had the last value, which is not the socket's own.
    sends: u8,
}

impl Kept {
    pub(crate) const fn new(own: u16) -> Self {
        Self {
            own,
            last: own,
            sends: 0,
        }
    }

    /// The socket's own value.
    pub(crate) fn own(&self) -> u16 {
        self.own
    }

    /// Whether a send has to name this value. `keep` makes the value of many sends the socket's own.
    #[inline]
    pub(crate) fn has_to_name(
        &mut self,
        value: u16,
        keep: impl FnOnce(u16) -> io::Result<()>,
    ) -> bool {
        value != self.own && !self.is_kept(value, keep)
    }

    fn is_kept(&mut self, value: u16, keep: impl FnOnce(u16) -> io::Result<()>) -> bool {
        self.sends = if value == self.last {
            self.sends.saturating_add(1)
        } else {
            0
        };
        self.last = value;
        let is_kept = self.sends == SENDS_BEFORE && keep(value).is_ok();
        if is_kept {
            self.own = value;
        }
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_named_until_many_sends_had_it() {
        let mut kept = Kept::new(64);
        assert!(!kept.has_to_name(64, |_| unreachable!()));
        let named = (0..100)
            .filter(|_| kept.has_to_name(255, |_| Ok(())))
            .count();
        assert_eq!((named, kept.own()), (usize::from(SENDS_BEFORE), 255));
        assert!(
            kept.has_to_name(64, |_| Ok(())),
            "no longer the socket's own"
        );
    }

    #[test]
    fn values_that_alternate_are_named() {
        let mut kept = Kept::new(0);
        assert!((0..100).all(|send| kept.has_to_name(100 + send % 2, |_| Ok(()))));
    }

    #[test]
    fn a_value_that_cannot_be_kept_is_named() {
        let mut kept = Kept::new(0);
        let tries = std::cell::Cell::new(0);
        let keep = |_| {
            tries.set(tries.get() + 1);
            Err(io::ErrorKind::Unsupported.into())
        };
        assert!((0..1000).all(|_| kept.has_to_name(80, keep)));
        assert_eq!((kept.own(), tries.get()), (0, 1));
    }
}
