//! The properties of a controller: registers that a fabric reads and writes by command (Base 3.1.3).

/// Controller capabilities, 8 bytes.
pub const CAPABILITIES: u32 = 0x00;
/// Version, 4 bytes.
pub const VERSION: u32 = 0x08;
/// Controller configuration, 4 bytes.
pub const CONFIGURATION: u32 = 0x14;
/// Controller status, 4 bytes.
pub const STATUS: u32 = 0x1c;
/// Subsystem reset, 4 bytes.
pub const SUBSYSTEM_RESET: u32 = 0x20;
/// Controller ready timeouts, 4 bytes.
pub const READY_TIMEOUTS: u32 = 0x68;

/// "NVMe" in [`SUBSYSTEM_RESET`] resets the subsystem.
pub const SUBSYSTEM_RESET_VALUE: u32 = 0x4e56_4d65;

/// Base specification 2.0, as a value of [`VERSION`].
pub const VERSION_2_0: u32 = 0x0002_0000;

/// The controller capabilities (CAP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Entries of the longest queue, less one.
    pub entries_max: u16,
    /// How long becoming ready may take, in units of 500 ms.
    pub ready_timeout: u8,
    /// The smallest memory page has 2^(12 + n) bytes; the longest transfer is counted in such pages.
    pub page_min: u8,
}

impl Capabilities {
    /// As the property holds it: queues are contiguous (bit 16), the NVM command set is there by itself and
    /// among others (bits 37 and 43), the largest page is the smallest one (52..56), and a ready controller
    /// has its media ready (CRMS.CRWMS, bit 59, which version 2.0 requires).
    pub const fn bits(self) -> u64 {
        let page = (self.page_min & 0xf) as u64;
        let fixed = 1 << 16 | 1 << 37 | 1 << 43 | 1 << 59;
        self.entries_max as u64
            | (self.ready_timeout as u64) << 24
            | page << 48
            | page << 52
            | fixed
    }

    /// Parses the property's value.
    pub const fn parse(bits: u64) -> Self {
        let page_min = (bits >> 48) as u8 & 0xf;
        Self {
            entries_max: bits as u16,
            ready_timeout: (bits >> 24) as u8,
            page_min,
        }
    }
}

/// Bit of [`CAPABILITIES`]: the controller becomes ready with its media, within CRTO.CRWMT (CRMS.CRWMS).
pub const READY_WITH_MEDIA: u64 = 1 << 59;

/// The value of CC.CSS for a controller with these capabilities (CAP.CSS): the NVM command set by itself, all
/// command sets, or none.
pub const fn command_set(capabilities: u64) -> u32 {
    const NVM: u64 = 1 << 37;
    const ALL: u64 = 1 << 43;
    const NONE: u64 = 1 << 44;
    if capabilities & NVM == 0 && capabilities & ALL != 0 {
        configuration::COMMAND_SET_ALL
    } else if capabilities & (NVM | ALL) == 0 && capabilities & NONE != 0 {
        configuration::COMMAND_SET
    } else {
        0
    }
}

/// Bits of [`CONFIGURATION`].
pub mod configuration {
    /// Enable (CC.EN): the host has started the controller.
    pub const ENABLE: u32 = 1;
    /// Shutdown notification: bits 14 and 15.
    pub const SHUTDOWN: u32 = 3 << 14;
    /// A normal shutdown.
    pub const SHUTDOWN_NORMAL: u32 = 1 << 14;
    /// The NVM command set, round robin, queue entries of 64 and 16 bytes.
    pub const ENTRIES: u32 = 6 << 16 | 4 << 20;
    /// Queue entry sizes: bits 16 to 23.
    pub const ENTRIES_MASK: u32 = 0xff << 16;
    /// Memory page size, as 2^(12 + n): bits 7 to 10.
    pub const PAGE_SIZE: u32 = 0xf << 7;
    /// Command sets: bits 4 to 6.
    pub const COMMAND_SET: u32 = 7 << 4;
    /// All command sets that there are. None of the bits is the NVM command set.
    pub const COMMAND_SET_ALL: u32 = 6 << 4;
    /// Arbitration: bits 11 to 13, 0 for round robin.
    pub const ARBITRATION: u32 = 7 << 11;
}

/// Bits of [`STATUS`].
pub mod status {
    /// Ready (CSTS.RDY): the controller takes commands.
    pub const READY: u32 = 1;
    /// Fatal status (CSTS.CFS): the controller has failed.
    pub const FATAL: u32 = 1 << 1;
    /// Shutdown status (CSTS.SHST): bits 2 and 3.
    pub const SHUTDOWN: u32 = 3 << 2;
    /// Shutdown is complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}
