//! The CapabilityMask of a port (IBTA table 145).

/// Bits of what a port can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// The port's node has a subnet manager.
    pub const IS_SM: u32 = 1 << 1;
    const NOTICE: u32 = 1 << 2;
    const TRAP: u32 = 1 << 3;
    const SL_MAPPING: u32 = 1 << 6;
    const SYSTEM_IMAGE_GUID: u32 = 1 << 11;
    /// The port has the fields of speeds from FDR on.
    pub const EXTENDED_SPEEDS: u32 = 1 << 14;
    const COMMUNICATION_MANAGEMENT: u32 = 1 << 16;
    const CAPABILITY_NOTICE: u32 = 1 << 22;
    const CLIENT_REREGISTRATION: u32 = 1 << 25;
    const LOCAL_CHANGES: u32 = 1 << 26;

    /// Capabilities of a channel adapter's port.
    pub const ADAPTER: Self = Self(
        Self::NOTICE
            | Self::TRAP
            | Self::SL_MAPPING
            | Self::SYSTEM_IMAGE_GUID
            | Self::EXTENDED_SPEEDS
            | Self::COMMUNICATION_MANAGEMENT
            | Self::CAPABILITY_NOTICE
            | Self::CLIENT_REREGISTRATION
            | Self::LOCAL_CHANGES,
    );

    /// Capabilities of a switch's port 0.
    pub const SWITCH: Self = Self(
        Self::NOTICE
            | Self::TRAP
            | Self::SL_MAPPING
            | Self::SYSTEM_IMAGE_GUID
            | Self::EXTENDED_SPEEDS
            | Self::CAPABILITY_NOTICE
            | Self::LOCAL_CHANGES,
    );

    /// Whether a bit is set.
    pub const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// Sets or clears a bit.
    #[must_use]
    pub const fn with(self, bit: u32, set: bool) -> Self {
        if set {
            Self(self.0 | bit)
        } else {
            Self(self.0 & !bit)
        }
    }
}
