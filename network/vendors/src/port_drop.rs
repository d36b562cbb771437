//! What a rule of a firewall drops of RoCEv2.

/// Interfaces that a condition names. A `*` at the end of a name stands for any end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interfaces {
    /// Every interface: the rule has no such condition.
    All,
    /// One of these.
    Only(Vec<String>),
    /// None of these.
    AllBut(Vec<String>),
}

impl Interfaces {
    /// Whether the condition is true of an interface.
    pub fn has(&self, interface: &str) -> bool {
        let is_one = |names: &[String]| {
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(begin) => interface.starts_with(begin),
                None => name == interface,
            })
        };
        match self {
            Self::All => true,
            Self::Only(names) => is_one(names),
            Self::AllBut(names) => !is_one(names),
        }
    }
}

/// A rule of a firewall that drops RoCEv2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDrop {
    /// The interfaces that the rule is for.
    pub on: Interfaces,
    /// Interfaces whose RoCEv2 rules before it accept.
    pub accepted: Vec<Interfaces>,
    /// Whether it drops only packets that meet further conditions: a source, a rate.
    pub is_partial: bool,
}

impl PortDrop {
    /// Whether the rule drops RoCEv2 of an interface.
    pub fn concerns(&self, interface: &str) -> bool {
        self.on.has(interface) && !self.accepted.iter().any(|on| on.has(interface))
    }
}
