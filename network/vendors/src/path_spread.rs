//! How a switch spreads the packets of a flow over paths of equal cost.

use core::fmt;

/// How packets of one flow are spread over paths of equal cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum PathSpread {
    /// A flow stays on the path that the hash of its addresses and ports selects.
    #[default]
    Flows,
    /// A flow may change to another path after a break of so many microseconds; the device chooses the length
    /// of the break where `None`.
    Flowlets(Option<u32>),
    /// Each packet takes a path of its own, so that packets overtake each other.
    Packets,
}

impl fmt::Display for PathSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flows => f.write_str("by flow"),
            Self::Flowlets(None) => f.write_str("by flowlet"),
            Self::Flowlets(Some(us)) => write!(f, "by flowlet, after a break of {us} us"),
            Self::Packets => f.write_str("by packet"),
        }
    }
}
