//! Enabling a controller: its properties, and waiting until it is ready (Base 3.5.3, 3.5.4).

use std::time::{Duration, Instant};

use wire::nvme::Fabrics;
use wire::nvme::fabrics::Property;
use wire::nvme::property::{self, Capabilities, configuration, status};

use super::HostError;
use super::commands::Payload;
use super::queue::Queue;

/// The unit of CAP.TO and CRTO.
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);
/// The first pause between two reads of CSTS; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Enables the controller of this admin queue, and waits until it is ready.
pub(super) fn enable(admin: &mut Queue) -> Result<Capabilities, HostError> {
    let bits = get(admin, true, property::CAPABILITIES)?;
    let capabilities = Capabilities::parse(bits);
    let ready_timeout = ready_timeout(admin, bits, &capabilities)?;
    let page = u32::from(capabilities.page_min) << configuration::PAGE_SIZE.trailing_zeros();
    let value = configuration::ENABLE | configuration::ENTRIES | page | property::command_set(bits);
    let enable = Property {
        wide: false,
        offset: property::CONFIGURATION,
        value: value.into(),
    };
    admin.call(
        "Property Set",
        enable.to_command(Fabrics::PropertySet, 0),
        Payload::None,
    )?;
    wait_until_ready(admin, ready_timeout)?;
    Ok(capabilities)
}

/// How long becoming ready may take: CAP.TO, or CRTO.CRWMT if the controller has it and it is longer, as
/// Linux does.
fn ready_timeout(
    admin: &mut Queue,
    bits: u64,
    capabilities: &Capabilities,
) -> Result<Duration, HostError> {
    let mut units = u32::from(capabilities.ready_timeout).max(1);
    if bits & property::READY_WITH_MEDIA != 0 {
        units = units.max(get(admin, false, property::READY_TIMEOUTS)? as u32 & 0xffff);
    }
    Ok(TIMEOUT_UNIT * units)
}

fn wait_until_ready(admin: &mut Queue, ready_timeout: Duration) -> Result<(), HostError> {
    let deadline = Instant::now() + ready_timeout;
    let mut pause = PAUSE;
    loop {
        let found = get(admin, false, property::STATUS)? as u32;
        if found & status::FATAL != 0 {
            return Err(HostError::Fatal(found));
        }
        if found & status::READY != 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(HostError::NotReady(ready_timeout));
        }
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    }
}

fn get(admin: &mut Queue, wide: bool, offset: u32) -> Result<u64, HostError> {
    let command = Property {
        wide,
        offset,
        value: 0,
    }
    .to_command(Fabrics::PropertyGet, 0);
    Ok(admin
        .call("Property Get", command, Payload::None)?
        .completion
        .result)
}
