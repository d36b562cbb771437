//! Memory regions and windows.

use super::Device;
use super::domains::Domains;
use crate::error::Error;
use crate::handle::{Lkey, Pd, Window};
use crate::random::Random;
use crate::region::{RegionChange, RegionInit, RegionKeys, Regions, WindowKind};
use wire::Rkey;

impl Device {
    /// Memory regions and windows.
    pub fn memory(&mut self) -> RegisteredMemory<'_> {
        let Self {
            resources,
            domains,
            random,
            ..
        } = self;
        RegisteredMemory {
            regions: &mut resources.regions,
            domains,
            random,
        }
    }
}

/// The memory regions and windows of a device ([`Device::memory`]).
#[derive(Debug)]
pub struct RegisteredMemory<'d> {
    regions: &'d mut Regions,
    domains: &'d Domains,
    random: &'d mut Random,
}

impl RegisteredMemory<'_> {
    /// Registers a memory region.
    pub fn register(&mut self, pd: Pd, init: RegionInit) -> Result<RegionKeys, Error> {
        self.domains.check_pd(pd)?;
        self.regions.register(pd, init, self.random)
    }

    /// Registers a region of all addresses without memory: stores are discarded, loads give zeros. Peers have
    /// no key for it.
    pub fn register_null(&mut self, pd: Pd) -> Result<Lkey, Error> {
        self.domains.check_pd(pd)?;
        self.regions.register_null(pd, self.random)
    }

    /// Changes a region; unless only rights change, its old keys become invalid. On an error the region is
    /// unchanged.
    pub fn reregister(&mut self, lkey: Lkey, change: RegionChange) -> Result<RegionKeys, Error> {
        if let Some(pd) = change.pd {
            self.domains.check_pd(pd)?;
        }
        self.regions.reregister(lkey, change, self.random)
    }

    /// Deregisters memory: when this returns, the device does not access it any more. Fails while windows are
    /// bound to it.
    pub fn deregister(&mut self, lkey: Lkey) -> Result<(), Error> {
        self.regions.deregister(lkey)
    }

    /// Allocates a memory window and its first key.
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowKind) -> Result<(Window, Rkey), Error> {
        self.domains.check_pd(pd)?;
        self.regions.alloc_window(pd, kind, self.random)
    }

    /// Removes a memory window, bound or not.
    pub fn dealloc_window(&mut self, window: Window) -> Result<(), Error> {
        self.regions.dealloc_window(window)
    }

    /// The key that a type 1 window gets with its next binding (`ibv_bind_mw`).
    pub fn next_window_key(&mut self, window: Window) -> Result<Rkey, Error> {
        self.regions.next_window_key(window)
    }
}
