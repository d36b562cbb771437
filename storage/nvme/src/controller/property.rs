//! Properties: enabling, disabling and shutting down a controller (Base 3.1.3, 3.5).

use std::sync::atomic::Ordering;

use wire::nvme::Status;
use wire::nvme::fabrics::Property;
use wire::nvme::property::{self, Capabilities, VERSION_2_0, configuration, status};

use super::session::Controller;
use crate::limits::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};

/// CAP.TO in units of 500 ms. The controller is ready at once, but hosts wait at least this long if something
/// delays it.
const READY_TIMEOUT: u8 = 15;

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    entries_max: QUEUE_ENTRIES_MAX - 1,
    ready_timeout: READY_TIMEOUT,
    page_min: 0,
};

impl Controller {
    pub(super) fn property(&self, property: Property) -> Result<u64, Status> {
        let (wide, value) = match property.offset {
            property::CAPABILITIES => (true, CAPABILITIES.bits()),
            property::VERSION => (false, u64::from(VERSION_2_0)),
            property::CONFIGURATION => (false, u64::from(self.configuration)),
            property::STATUS => (false, u64::from(self.status)),
            property::SUBSYSTEM_RESET => (false, 0),
            property::READY_TIMEOUTS => (false, u64::from(READY_TIMEOUT)),
            _ => return Err(Status::INVALID_FIELD.permanent()),
        };
        if wide == property.wide {
            Ok(value)
        } else {
            Err(Status::INVALID_FIELD.permanent())
        }
    }

    pub(super) fn set_property(&mut self, property: Property) -> Result<(), Status> {
        if property.wide || property.offset != property::CONFIGURATION {
            return Err(Status::INVALID_FIELD.permanent());
        }
        self.configure(property.value as u32);
        Ok(())
    }

    fn configure(&mut self, new: u32) {
        let old = self.configuration;
        self.configuration = new;
        let was_enabled = old & configuration::ENABLE != 0;
        let enable = new & configuration::ENABLE != 0;
        if enable && !was_enabled {
            let pages = new & configuration::PAGE_SIZE;
            let arbitration = new & configuration::ARBITRATION;
            let entries = new & configuration::ENTRIES_MASK;
            let set = new & configuration::COMMAND_SET;
            let is_known = [0, configuration::COMMAND_SET_ALL].contains(&set)
                && [0, configuration::ENTRIES].contains(&entries);
            if pages != 0 || arbitration != 0 || !is_known {
                self.status = status::FATAL;
                return;
            }
            self.set_ready(true);
        }
        if !enable && was_enabled {
            self.reset();
        }
        if new & configuration::SHUTDOWN != 0 && old & configuration::SHUTDOWN == 0 {
            self.reset();
            self.status |= status::SHUTDOWN_COMPLETE;
        }
        if new & configuration::SHUTDOWN == 0 && old & configuration::SHUTDOWN != 0 {
            self.status &= !status::SHUTDOWN_COMPLETE;
        }
    }

    /// Resets the controller: it ends its I/O queues and removes event requests. Features get their defaults.
    fn reset(&mut self) {
        self.set_ready(false);
        self.events.reset();
        self.features.clear();
        self.changed.clear();
        self.host_behaviour = [0; 512];
        self.keep_alive_ms = self.keep_alive_default_ms;
        self.queues_granted = IO_QUEUES_MAX;
        self.session.writes_through.store(false, Ordering::Relaxed);
        self.session.epoch.fetch_add(1, Ordering::SeqCst);
        self.queues.retain(|id, queue| {
            queue.wake();
            *id == 0
        });
    }
}
