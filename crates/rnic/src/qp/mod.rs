//! Queue pairs.

pub(crate) mod attr;
