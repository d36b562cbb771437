//! The DSCPs of data and of notifications. They come from the hosts, from the fabric file or from the command
//! line, and never from a default.

use vendors::facts::{Adapter, HostFacts};

/// The DSCPs of RDMA traffic, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Marks {
    /// The DSCP of data.
    pub dscp: Option<u8>,
    /// The DSCP of congestion notifications.
    pub cnp: Option<u8>,
}

impl Marks {
    /// The mark of data, and of notifications none.
    pub(crate) const fn of_data(dscp: u8) -> Self {
        Self {
            dscp: Some(dscp),
            cnp: None,
        }
    }

    /// These marks, and what they do not have from others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            dscp: self.dscp.or(other.dscp),
            cnp: self.cnp.or(other.cnp),
        }
    }

    /// The marks of an adapter: what it shows, else what variables of programs say, else what the fabric file
    /// plans.
    pub(crate) fn of_adapter(host: &HostFacts, adapter: &Adapter) -> Self {
        let planned = host.planned.as_ref();
        let of_tos = adapter.tos.as_ref().map(|tos| tos.value >> 2);
        let of_programs = common(host.class_variables.iter().map(|own| own.value.1 >> 2));
        let is_set = |dscp: &u8| *dscp != 0;
        let shown = Self {
            dscp: of_tos.filter(is_set).or(of_programs.filter(is_set)),
            cnp: adapter.cnp_dscp.as_ref().map(|cnp| cnp.value),
        };
        shown.or(Self {
            dscp: planned.map(|planned| planned.dscp),
            cnp: planned.map(|planned| planned.cnp_dscp),
        })
    }

    /// The marks that all adapters of these hosts have in common.
    pub(crate) fn of_hosts(hosts: &[HostFacts]) -> Self {
        let own = |host: &HostFacts| -> Vec<Self> {
            let of = |adapter: &Adapter| Self::of_adapter(host, adapter);
            host.adapters.iter().map(of).collect()
        };
        let all: Vec<Self> = hosts.iter().flat_map(own).collect();
        Self {
            dscp: common(all.iter().filter_map(|own| own.dscp)),
            cnp: common(all.iter().filter_map(|own| own.cnp)),
        }
    }
}

/// The value, if all are the same.
pub(crate) fn common<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}
