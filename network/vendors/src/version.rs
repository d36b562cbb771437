//! Versions of systems.

use core::fmt;

/// A version of a system: two numbers, the second 0 where the system counts with one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => write!(f, "{}", self.0),
            minor => write!(f, "{}.{minor}", self.0),
        }
    }
}
