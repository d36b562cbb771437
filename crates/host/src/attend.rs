//! What the progress thread sees to beside packets: changes of the interface, and questions about the device.
//!
//! Both are conveniences: a sandbox that forbids either does not keep a device from opening.

use crate::device::Shared;
use crate::follow::follow;
use crate::interface::DeviceInfo;
use crate::report::Reporter;
use crate::sys::epoll::Epoll;
use link::watch::Watch;
use std::os::fd::RawFd;

/// Belongs to the progress thread.
#[derive(Debug)]
pub(crate) struct Attendant {
    device: String,
    ifindex: u32,
    watch: Option<Watch>,
    reporter: Option<Reporter>,
}

impl Attendant {
    /// Has the thread wake for both.
    pub(crate) fn new(epoll: &Epoll, info: &DeviceInfo) -> Self {
        let watch = Watch::new().ok().filter(|watch| epoll.add(watch.raw()).is_ok());
        let reporter = Reporter::new().ok().filter(|reporter| epoll.add(reporter.raw()).is_ok());
        Self { device: info.name.clone(), ifindex: info.ifindex, watch, reporter }
    }

    /// Sees to a descriptor that is ready, if it is one of these.
    pub(crate) fn attend(&self, shared: &Shared, ready: RawFd) {
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.raw() == ready)
            && watch.has_changes()
        {
            follow(shared, self.ifindex);
        }
        if let Some(reporter) = self.reporter.as_ref().filter(|reporter| reporter.raw() == ready) {
            reporter.answer(shared, &self.device);
        }
    }
}
