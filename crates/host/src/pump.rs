//! What a device's lock protects: the state machine, and what joins it with the network.

use crate::channel::{AsyncEvents, CompletionChannel};
use rnic::{Cq, Event, Instant};
use std::collections::HashMap;
use std::sync::Arc;

/// The state of a device.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) rnic: rnic::Device,
    channels: HashMap<Cq, (Arc<CompletionChannel>, u64)>,
}

impl Pump {
    pub(crate) fn new(rnic: rnic::Device) -> Self {
        Self { rnic, channels: HashMap::new() }
    }

    pub(crate) fn attach(&mut self, cq: Cq, channel: Arc<CompletionChannel>, cookie: u64) {
        self.channels.insert(cq, (channel, cookie));
    }

    pub(crate) fn detach(&mut self, cq: Cq) {
        if let Some((channel, cookie)) = self.channels.remove(&cq) {
            channel.forget(cookie);
        }
    }

    /// Passes the device's events on.
    pub(crate) fn pump_events(&mut self, events: &AsyncEvents) {
        while let Some(event) = self.rnic.poll_event() {
            match event {
                Event::Completion(cq) => {
                    if let Some((channel, cookie)) = self.channels.get(&cq) {
                        channel.push(*cookie);
                    }
                }
                event => events.push(event),
            }
        }
    }

    pub(crate) fn progress(&mut self, _now: Instant) {}
}
