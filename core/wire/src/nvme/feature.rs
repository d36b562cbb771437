//! Features, which Get and Set Features read and write (Base 5.27).

/// Arbitration among submission queues.
pub const ARBITRATION: u8 = 0x01;
/// Power management, by power state.
pub const POWER: u8 = 0x02;
/// Temperature threshold, in kelvins.
pub const TEMPERATURE: u8 = 0x04;
/// Error recovery: time limits and deallocated blocks.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile write cache.
pub const WRITE_CACHE: u8 = 0x06;
/// Number of queues.
pub const QUEUES: u8 = 0x07;
/// Interrupt coalescing, of PCIe controllers.
pub const INTERRUPT_COALESCING: u8 = 0x08;
/// Write atomicity of normal operation.
pub const WRITE_ATOMICITY: u8 = 0x0a;
/// Asynchronous event configuration.
pub const EVENTS: u8 = 0x0b;
/// Timestamp, in milliseconds since 1970.
pub const TIMESTAMP: u8 = 0x0e;
/// Keep alive timer.
pub const KEEP_ALIVE: u8 = 0x0f;
/// Host behaviour support.
pub const HOST_BEHAVIOUR: u8 = 0x16;
/// I/O Command Set Profile: the index of a combination of I/O command sets.
pub const COMMAND_SETS: u8 = 0x19;
/// Host identifier, of 8 or 16 bytes.
pub const HOST_ID: u8 = 0x81;
/// Reservation notification mask.
pub const RESERVATION_MASK: u8 = 0x82;
/// Reservation persistence through power loss.
pub const RESERVATION_PERSISTENCE: u8 = 0x83;
/// Namespace write protection.
pub const WRITE_PROTECTION: u8 = 0x84;

/// The value that Get Features requests: bits 8 to 10 of dword 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// The current value.
    Current,
    /// The default value, which holds after a reset.
    Default,
    /// The saved value.
    Saved,
    /// The capabilities of the feature.
    Capabilities,
}

impl Select {
    /// Parses dword 10.
    pub const fn parse(cdw10: u32) -> Option<Self> {
        Some(match cdw10 >> 8 & 7 {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Capabilities,
            _ => return None,
        })
    }
}

/// Bits of [`EVENTS`], of Identify's OAES too: which notices a controller sends.
pub mod events {
    /// SMART and health warnings: the bits of the critical warning of the log page.
    pub const HEALTH: u32 = 0x1f;
    /// The health warning about a temperature threshold.
    pub const TEMPERATURE: u32 = 1 << 1;
    /// Namespaces came, went or changed.
    pub const NAMESPACES: u32 = 1 << 8;
    /// Asymmetric access changed.
    pub const ANA: u32 = 1 << 11;
    /// The discovery log changed.
    pub const DISCOVERY: u32 = 1 << 31;
}

/// Dword 0 of an asynchronous event's completion (Base 5.2).
pub const fn event(kind: u8, information: u8, log_page: u8) -> u64 {
    kind as u64 | (information as u64) << 8 | (log_page as u64) << 16
}

/// Asynchronous event of type "SMART / health status".
pub const HEALTH_STATUS: u8 = 1;
/// Information of events of type "SMART / health status".
pub mod health_status {
    /// A temperature threshold was reached.
    pub const TEMPERATURE: u8 = 0x01;
}
/// Asynchronous event of type "notice".
pub const NOTICE: u8 = 2;
/// Type "I/O command set specific": reservations.
pub const IO_COMMAND_SET: u8 = 6;
/// Information of events of type "notice".
pub mod notice {
    /// The list of namespaces has changed.
    pub const NAMESPACES: u8 = 0x00;
    /// Asymmetric access changed.
    pub const ANA: u8 = 0x03;
    /// The discovery log changed.
    pub const DISCOVERY: u8 = 0xf0;
}
