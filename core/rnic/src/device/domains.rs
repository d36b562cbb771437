//! Protection domains and XRC domains.

use super::Device;
use crate::domain::DomainName;
use crate::error::Error;
use crate::handle::{Pd, Xrcd};
use crate::time::Instant;
use slab::Slab;

/// The domains of a device.
#[derive(Debug, Default)]
pub(super) struct Domains {
    pds: Slab<()>,
    xrcds: Slab<XrcDomain>,
}

#[derive(Clone, Copy, Debug)]
struct XrcDomain {
    users: u32,
    name: Option<DomainName>,
}

impl Domains {
    pub(super) fn check_pd(&self, pd: Pd) -> Result<(), Error> {
        if self.pds.contains(pd.0 as usize) {
            Ok(())
        } else {
            Err(Error::NoSuchObject)
        }
    }

    pub(super) fn has_xrcd(&self, xrcd: Xrcd) -> bool {
        self.xrcds.contains(xrcd.0 as usize)
    }

    /// The count of queue pairs and SRQs that belong to an XRC domain.
    pub(super) fn users(&mut self, xrcd: Xrcd) -> Result<&mut u32, Error> {
        self.xrcds
            .get_mut(xrcd.0 as usize)
            .map(|domain| &mut domain.users)
            .ok_or(Error::NoSuchObject)
    }

    pub(super) fn name(&self, xrcd: Xrcd) -> Option<DomainName> {
        self.xrcds.get(xrcd.0 as usize)?.name
    }

    /// The XRC domain with this name.
    pub(super) fn named(&self, name: DomainName) -> Option<Xrcd> {
        let mut xrcds = self.xrcds.iter();
        xrcds
            .find(|(_, domain)| domain.name == Some(name))
            .map(|(index, _)| Xrcd(index as u32))
    }
}

/// Verbs on protection domains and XRC domains.
impl Device {
    /// Allocates a protection domain.
    pub fn alloc_pd(&mut self) -> Result<Pd, Error> {
        if self.domains.pds.len() >= self.resources.config.max_pd as usize {
            return Err(Error::Exhausted("protection domains"));
        }
        Ok(Pd(self.domains.pds.insert(()) as u32))
    }

    /// Removes a protection domain without objects.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        self.domains.check_pd(pd)?;
        let resources = &self.resources;
        if resources.regions.uses(pd) || self.queue_pairs.uses(pd) || resources.srqs.uses(pd) {
            return Err(Error::Busy);
        }
        self.domains.pds.remove(pd.0 as usize);
        Ok(())
    }

    /// Allocates an XRC domain. One with a name may be shared with other devices of the host; names are
    /// unique in a device.
    pub fn alloc_xrcd(&mut self, name: Option<DomainName>) -> Result<Xrcd, Error> {
        if self.domains.xrcds.len() >= self.resources.config.max_pd as usize {
            return Err(Error::Exhausted("XRC domains"));
        }
        if name.is_some_and(|name| self.domains.named(name).is_some()) {
            return Err(Error::Busy);
        }
        Ok(Xrcd(
            self.domains.xrcds.insert(XrcDomain { users: 0, name }) as u32,
        ))
    }

    /// The name of an XRC domain, if it has one.
    pub fn domain_name(&self, xrcd: Xrcd) -> Option<DomainName> {
        self.domains.name(xrcd)
    }

    /// Removes an XRC domain without objects.
    pub fn dealloc_xrcd(&mut self, xrcd: Xrcd, now: Instant) -> Result<(), Error> {
        if *self.domains.users(xrcd)? > 0 {
            return Err(Error::Busy);
        }
        self.queue_pairs
            .dismiss(&mut self.resources, |qp| qp.init().xrcd == Some(xrcd), now);
        self.domains.xrcds.remove(xrcd.0 as usize);
        Ok(())
    }
}
