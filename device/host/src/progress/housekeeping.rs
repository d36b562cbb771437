//! Work of the progress thread other than packets: changes of the network interface, and requests for
//! reports. A device also opens where a sandbox forbids the sockets for either.

use super::interface_watch::update_port;
use super::shared::Shared;
use crate::interface::{DeviceInfo, own_name};
use crate::log::HOST;
use crate::report::Reporter;
use crate::sys::Epoll;
use link::watch::Watch;
use std::os::fd::RawFd;

/// The sockets for that work; they belong to the progress thread.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    device: String,
    ifindex: u32,
    watch: Option<Watch>,
    reporter: Option<Reporter>,
}

impl Housekeeping {
    /// Opens the sockets, and adds them to the thread's event loop.
    pub(crate) fn new(epoll: &Epoll, info: &DeviceInfo) -> Self {
        let watch = Watch::new().and_then(|watch| epoll.add(watch.raw()).map(|()| watch));
        let refused =
            |error| tracing::warn!(target: HOST, "changes of addresses are not noticed: {error}");
        let watch = watch.map_err(refused).ok();
        let reporter = Reporter::new()
            .ok()
            .filter(|reporter| epoll.add(reporter.raw()).is_ok());
        Self {
            device: own_name(&info.interface),
            ifindex: info.ifindex,
            watch,
            reporter,
        }
    }

    /// Handles a descriptor that is ready, if it is one of these sockets.
    pub(crate) fn handle_descriptor(&self, shared: &Shared, ready: RawFd) {
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.raw() == ready)
            && watch.has_changes()
        {
            update_port(shared, self.ifindex);
        }
        if let Some(reporter) = self
            .reporter
            .as_ref()
            .filter(|reporter| reporter.raw() == ready)
        {
            reporter.answer(shared, &self.device);
        }
    }
}
