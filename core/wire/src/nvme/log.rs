//! Log pages (Base 5.16).

use crate::layout::layouts;

/// Page 0x00: which log pages there are.
pub const SUPPORTED: u8 = 0x00;
/// Page 0x01: errors.
pub const ERRORS: u8 = 0x01;
/// Page 0x02: SMART and health.
pub const HEALTH: u8 = 0x02;
/// Page 0x03: firmware slots.
pub const FIRMWARE: u8 = 0x03;
/// Page 0x04: namespaces that changed.
pub const CHANGED_NAMESPACES: u8 = 0x04;
/// Page 0x05: which commands there are.
pub const COMMANDS: u8 = 0x05;
/// Page 0x0c: asymmetric access.
pub const ANA: u8 = 0x0c;
/// Page 0x12: which features there are.
pub const FEATURES: u8 = 0x12;
/// Page 0x70: the discovery log.
pub const DISCOVERY: u8 = 0x70;
/// Page 0x80: reservation notifications.
pub const RESERVATIONS: u8 = 0x80;

/// Namespaces that [`CHANGED_NAMESPACES`] can name; when there are more its first entry is 0xffffffff.
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

layouts! {
    /// An entry of the error log.
    Error[64] {
        /// Error count: a number that each error increases.
        count: u64 = 0;
        /// Identifier of the submission queue (SQID).
        queue_id: u16 = 8;
        /// Identifier of the command (CID).
        cid: u16 = 10;
        /// Status field and phase of the failed command.
        status_and_phase: u16 = 12;
        /// Byte and bit of the parameter that was wrong.
        location: u16 = 14;
        /// The first block.
        lba: u64 = 16;
        /// Identifier of the namespace (NSID).
        nsid: u32 = 24;
        /// Transport type (TRTYPE) of the queue.
        transport: u8 = 29;
    }
    /// SMART and health.
    Health[512] {
        /// Critical warning: a bit for each kind of warning.
        critical_warning: u8 = 0;
        /// Composite temperature, in kelvins.
        temperature: u16 = 1;
        /// Percent of spare capacity.
        spare: u8 = 3;
        /// Percent below which it is a warning.
        spare_threshold: u8 = 4;
        /// Percent of life that is used.
        used: u8 = 5;
        /// Thousands of 512 byte units read.
        units_read: u128 = 32;
        /// Thousands of 512 byte units written.
        units_written: u128 = 48;
        /// Number of host read commands.
        reads: u128 = 64;
        /// Number of host write commands.
        writes: u128 = 80;
        /// Time busy with I/O commands, in minutes.
        busy_minutes: u128 = 96;
        /// Number of power cycles.
        power_cycles: u128 = 112;
        /// Power-on time, in hours.
        power_on_hours: u128 = 128;
        /// Number of unsafe shutdowns.
        unsafe_shutdowns: u128 = 144;
        /// Errors of media.
        media_errors: u128 = 160;
        /// Entries of the error log since ever.
        error_entries: u128 = 176;
    }
    /// Firmware Slot Information (log page 03h).
    Firmware[512] {
        /// The slot that is active.
        active: u8 = 0;
        /// The revision in slot 1.
        slot1: [u8; 8] = 8;
    }
    /// The head of the page of asymmetric access.
    AnaHead[16] {
        /// How often it changed.
        changes: u64 = 0;
        /// How many groups follow.
        groups: u16 = 8;
    }
    /// A group, followed by the numbers of its namespaces.
    AnaGroup[32] {
        /// Identifier of the ANA group.
        group: u32 = 0;
        /// How many namespaces.
        namespaces: u32 = 4;
        /// How often it changed.
        changes: u64 = 8;
        /// State of the group, an [`AnaState`].
        state: u8 = 16;
    }
    /// Reservation Notification (log page 80h).
    Reservation[64] {
        /// Log page count: a number that each notification increases.
        count: u64 = 0;
        /// 0 empty, 1 registration preempted, 2 reservation released, 3 reservation preempted.
        kind: u8 = 8;
        /// How many more there are.
        more: u8 = 9;
        /// Identifier of the namespace (NSID).
        nsid: u32 = 12;
    }
}

/// How a namespace is reached through a controller (Base 8.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AnaState {
    /// As well as can be.
    Optimized = 1,
    /// Worse than elsewhere.
    NonOptimized = 2,
    /// The path does not serve the group at present.
    Inaccessible = 3,
    /// The path will never serve the group again.
    PersistentLoss = 4,
    /// About to change.
    Change = 15,
}

impl AnaState {
    /// The state that is written so.
    pub const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Optimized,
            2 => Self::NonOptimized,
            3 => Self::Inaccessible,
            4 => Self::PersistentLoss,
            15 => Self::Change,
            _ => return None,
        })
    }
}

/// Get Log Page's fields (Base 5.16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Log page identifier (LID).
    pub page: u8,
    /// The field that the log page defines (LSP).
    pub specific: u8,
    /// Whether reading leaves the event that led here pending.
    pub retain: bool,
    /// Bytes; 0 where the 32 bits of dwords overflow.
    pub length: u64,
    /// From which byte.
    pub offset: u64,
}

impl Request {
    /// The fields of a command.
    pub const fn parse(command: &super::Command) -> Self {
        let dwords = (command.cdw10 >> 16 | (command.cdw11 & 0xffff) << 16) as u64 + 1;
        Self {
            page: command.cdw10 as u8,
            specific: (command.cdw10 >> 8 & 0x7f) as u8,
            retain: command.cdw10 & 1 << 15 != 0,
            length: dwords * 4,
            offset: command.qword12(),
        }
    }

    /// The Get Log Page command for it. Of the length, whole dwords are taken.
    pub fn to_command(self, cid: u16, nsid: u32) -> super::Command {
        let dwords = (self.length / 4).saturating_sub(1) as u32;
        super::Command {
            opcode: super::Admin::GetLogPage as u8,
            cid,
            nsid,
            cdw10: u32::from(self.page)
                | u32::from(self.specific & 0x7f) << 8
                | u32::from(self.retain) << 15
                | dwords << 16,
            cdw11: dwords >> 16,
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            ..super::Command::default()
        }
    }
}
