//! Shutting down a controller: when it is complete, the target executes no command of before (Base 3.6.2).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use wire::nvme::Fabrics;
use wire::nvme::fabrics::Property;
use wire::nvme::property::{self, configuration, status};

use super::HostError;
use super::commands::Payload;
use super::keep_alive::AdminQueue;
use super::queue::Queue;

/// The time for a shutdown. A target that has not completed it then has a disk that does not answer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two reads of CSTS.
const PAUSE: Duration = Duration::from_millis(10);

/// Shuts down a controller, from any thread.
#[derive(Clone, Debug)]
pub struct Shutdown(AdminQueue);

impl Shutdown {
    pub(super) fn of(admin: &AdminQueue) -> Self {
        Self(admin.clone())
    }

    /// Shuts down the controller (CC.SHN), and waits until the target reports that it is complete
    /// (CSTS.SHST). Its I/O queues end by this: their commands should have been completed before.
    ///
    /// # Errors
    /// When the connection is broken, or the target does not complete the shutdown within 5 s.
    pub fn run(&self) -> Result<(), HostError> {
        match self.complete() {
            Err(HostError::Io(error)) if error.kind() == ErrorKind::TimedOut => {
                Err(HostError::NotShutDown(SHUTDOWN_TIMEOUT))
            }
            completed => completed,
        }
    }

    fn complete(&self) -> Result<(), HostError> {
        let late = || HostError::NotShutDown(SHUTDOWN_TIMEOUT);
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        // Another command of the admin queue may wait for the target.
        let mut admin = self.0.lock_until(deadline).ok_or_else(late)?;
        let left = || {
            Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
        };
        let configured = get(
            &mut admin,
            property::CONFIGURATION,
            left().ok_or_else(late)?,
        )?;
        let value = configured & !u64::from(configuration::SHUTDOWN);
        let value = value | u64::from(configuration::SHUTDOWN_NORMAL);
        let notice = Property {
            wide: false,
            offset: property::CONFIGURATION,
            value,
        };
        let notice = notice.to_command(Fabrics::PropertySet, 0);
        admin.call_within(
            "Property Set",
            notice,
            Payload::None,
            left().ok_or_else(late)?,
        )?;
        loop {
            let found = get(&mut admin, property::STATUS, left().ok_or_else(late)?)? as u32;
            if found & status::SHUTDOWN == status::SHUTDOWN_COMPLETE {
                return Ok(());
            }
            if found & status::FATAL != 0 {
                return Err(HostError::Fatal(found));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn get(admin: &mut Queue, offset: u32, timeout: Duration) -> Result<u64, HostError> {
    let command = Property {
        wide: false,
        offset,
        value: 0,
    }
    .to_command(Fabrics::PropertyGet, 0);
    Ok(admin
        .call_within("Property Get", command, Payload::None, timeout)?
        .completion
        .result)
}
