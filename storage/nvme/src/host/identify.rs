//! The Identify command.

use buffer::Buffer;
use wire::nvme::identify::IDENTIFY_SIZE;
use wire::nvme::{Admin, Command};

use super::HostError;
use super::commands::Payload;
use super::queue::Queue;

/// Requests the data structure with this CNS value.
pub(super) fn identify(admin: &mut Queue, kind: u8, nsid: u32) -> Result<Buffer, HostError> {
    let command = Command {
        opcode: Admin::Identify as u8,
        nsid,
        cdw10: kind.into(),
        ..Command::default()
    };
    let payload = Payload::In(admin.buffer(IDENTIFY_SIZE)?, IDENTIFY_SIZE);
    admin
        .call("Identify", command, payload)?
        .buffer
        .ok_or(HostError::Protocol("Identify ended without data"))
}
