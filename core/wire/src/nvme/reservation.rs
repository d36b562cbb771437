//! Reservations: one host keeps others from a namespace (Base 8.19, NVM 3.2.5 and following).

use crate::layout::layouts;

/// The type of a reservation: which hosts may read and write a reserved namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReservationType {
    /// One writes, all read.
    WriteExclusive = 1,
    /// One writes and reads.
    ExclusiveAccess = 2,
    /// Registrants write, all read.
    WriteExclusiveRegistrants = 3,
    /// Registrants write and read.
    ExclusiveAccessRegistrants = 4,
    /// As 3, and every registrant holds it.
    WriteExclusiveAll = 5,
    /// As 4, and every registrant holds it.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// The kind that is written so.
    pub const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::WriteExclusive,
            2 => Self::ExclusiveAccess,
            3 => Self::WriteExclusiveRegistrants,
            4 => Self::ExclusiveAccessRegistrants,
            5 => Self::WriteExclusiveAll,
            6 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Whether every registrant holds it.
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether registrants that do not hold it may write.
    pub const fn lets_registrants_write(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether hosts that are not registered may read.
    pub const fn lets_all_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll
        )
    }
}

layouts! {
    /// The data of Reservation Register.
    RegisterData[16] {
        /// The key that the host has.
        current: u64 = 0;
        /// The key that it shall have.
        new: u64 = 8;
    }
    /// The data of Reservation Acquire.
    AcquireData[16] {
        /// The key that the host has.
        current: u64 = 0;
        /// The key of whom it pushes out.
        preempted: u64 = 8;
    }
    /// The data of Reservation Release.
    ReleaseData[8] {
        /// The key that the host has.
        current: u64 = 0;
    }
    /// The head of a report, in both its forms.
    ReportHead[24] {
        /// How often something changed.
        generation: u32 = 0;
        /// The [`ReservationType`], 0 for none.
        kind: u8 = 4;
        /// How many registrants follow.
        registrants: u16 = 5;
        /// Whether registrations survive a restart.
        persists: u8 = 9;
    }
    /// A registrant, host identifiers of 64 bits.
    Registrant[24] {
        /// Identifier of the registrant's controller (CNTLID).
        controller_id: u16 = 0;
        /// Bit 0: holds the reservation.
        status: u8 = 2;
        /// Host identifier of the registrant.
        host_id: u64 = 8;
        /// Reservation key of the registrant.
        key: u64 = 16;
    }
    /// A registrant, host identifiers of 128 bits.
    RegistrantExtended[64] {
        /// Identifier of the registrant's controller (CNTLID).
        controller_id: u16 = 0;
        /// Bit 0: holds the reservation.
        status: u8 = 2;
        /// Reservation key of the registrant.
        key: u64 = 8;
        /// Host identifier of the registrant.
        host_id: [u8; 16] = 16;
    }
}

/// Where registrants begin in a report of extended form.
pub const EXTENDED_HEAD_SIZE: usize = 64;
