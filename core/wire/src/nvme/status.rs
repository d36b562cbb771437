//! The status of a command: type and code (Base 3.3.3.2.1, NVM 3.1, Fabrics 3.3).

use core::fmt;

/// The status field of a completion: code in bits 0 to 7, type in 8 to 10, "command retry delay" in 11 and
/// 12, "more" in 13, "do not retry" in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

const RETRY_DELAY_SHIFT: u16 = 11;
const RETRY_DELAY_MASK: u16 = 3;
const MORE: u16 = 1 << 13;
const DO_NOT_RETRY: u16 = 1 << 14;
const CODE_MASK: u16 = 0x7ff;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+) => {
        impl Status {
            $($(#[$doc])* #[doc = $text] pub const $name: Self = Self($code);)+

            /// The name of the specification.
            pub const fn text(self) -> &'static str {
                match self.0 & CODE_MASK {
                    $($code => $text,)+
                    _ => "a status that has no name here",
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x000, "success";
    INVALID_OPCODE = 0x001, "invalid command opcode";
    INVALID_FIELD = 0x002, "invalid field in command";
    ID_CONFLICT = 0x003, "command id conflict";
    DATA_TRANSFER_ERROR = 0x004, "data transfer error";
    INTERNAL_ERROR = 0x006, "internal error";
    ABORT_REQUESTED = 0x007, "command abort requested";
    ABORTED_QUEUE_DELETED = 0x008, "command aborted, its queue is gone";
    ABORTED_FUSED_FAILED = 0x009, "command aborted, the other one of the fused pair failed";
    ABORTED_FUSED_MISSING = 0x00a, "command aborted, the other one of the fused pair is missing";
    INVALID_NAMESPACE = 0x00b, "invalid namespace or format";
    COMMAND_SEQUENCE = 0x00c, "command sequence error";
    INVALID_SGL_SEGMENT = 0x00d, "invalid SGL segment descriptor";
    INVALID_SGL_COUNT = 0x00e, "invalid number of SGL descriptors";
    SGL_LENGTH_INVALID = 0x00f, "data SGL length invalid";
    SGL_TYPE_INVALID = 0x011, "SGL descriptor type invalid";
    SGL_OFFSET_INVALID = 0x016, "SGL offset invalid";
    HOST_ID_INCONSISTENT = 0x018, "host identifier inconsistent format";
    KEEP_ALIVE_EXPIRED = 0x019, "keep alive timer expired";
    KEEP_ALIVE_INVALID = 0x01a, "keep alive timeout invalid";
    ABORTED_PREEMPTED = 0x01b, "command aborted due to preempt and abort";
    COMMAND_INTERRUPTED = 0x021, "command interrupted, try again";
    TRANSIENT_TRANSPORT = 0x022, "transient transport error";
    NAMESPACE_WRITE_PROTECTED = 0x020, "namespace is write protected";
    LBA_OUT_OF_RANGE = 0x080, "LBA out of range";
    CAPACITY_EXCEEDED = 0x081, "capacity exceeded";
    NAMESPACE_NOT_READY = 0x082, "namespace not ready";
    RESERVATION_CONFLICT = 0x083, "reservation conflict";
    FEATURE_NOT_SAVEABLE = 0x10d, "feature identifier not saveable";
    FEATURE_NOT_CHANGEABLE = 0x10e, "feature not changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "feature not namespace specific";
    COMMAND_SETS_REJECTED = 0x12b, "I/O command set combination rejected";
    INVALID_LOG_PAGE = 0x109, "invalid log page";
    AER_LIMIT_EXCEEDED = 0x105, "asynchronous event request limit exceeded";
    INVALID_QUEUE_ID = 0x101, "invalid queue identifier";
    /// Fabrics: the record format of Connect is not supported.
    INCOMPATIBLE_FORMAT = 0x180, "connect: incompatible format";
    /// Fabrics: the controller has a host already.
    CONTROLLER_BUSY = 0x181, "connect: controller busy";
    /// Fabrics: a parameter of Connect is not valid.
    CONNECT_INVALID_PARAMETERS = 0x182, "connect: invalid parameters";
    /// Fabrics: the host has to repeat discovery.
    CONNECT_RESTART_DISCOVERY = 0x183, "connect: restart discovery";
    /// Fabrics: the host may not use the subsystem.
    CONNECT_INVALID_HOST = 0x184, "connect: invalid host";
    /// Fabrics: the discovery log has changed meanwhile.
    DISCOVER_RESTART = 0x190, "discovery: restart";
    /// Fabrics: the queue has not authenticated yet.
    AUTHENTICATION_REQUIRED = 0x191, "authentication required";
    WRITE_FAULT = 0x280, "write fault";
    UNRECOVERED_READ = 0x281, "unrecovered read error";
    COMPARE_FAILURE = 0x285, "compare failure";
    ACCESS_DENIED = 0x286, "access denied";
    DEALLOCATED_BLOCK = 0x287, "deallocated or unwritten logical block";
    ANA_PERSISTENT_LOSS = 0x301, "asymmetric access persistent loss";
    ANA_INACCESSIBLE = 0x302, "asymmetric access inaccessible";
    ANA_TRANSITION = 0x303, "asymmetric access transition";
    HOST_PATH_ERROR = 0x370, "host path error";
}

impl Status {
    /// Copy: more ranges or blocks than the namespace allows. The code means another thing to Connect.
    pub const COMMAND_SIZE_LIMIT: Self = Self(0x183);

    /// The same status with Do Not Retry.
    #[inline]
    #[must_use]
    pub const fn permanent(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// Whether trying again would end the same.
    #[inline]
    pub const fn is_permanent(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// Which of the controller's retry delays (CRDT1 to CRDT3, from 0) a retry has to wait for; `None` for
    /// no delay.
    #[inline]
    pub const fn retry_delay(self) -> Option<usize> {
        ((self.0 >> RETRY_DELAY_SHIFT & RETRY_DELAY_MASK) as usize).checked_sub(1)
    }

    /// The same with the "more" bit: the error log has more information.
    #[inline]
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Type and code, without "more" and "do not retry".
    #[inline]
    #[must_use]
    pub const fn plain(self) -> Self {
        Self(self.0 & CODE_MASK)
    }

    /// Whether the command succeeded.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 & CODE_MASK == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (status type {}, code {:#04x})",
            self.text(),
            self.0 >> 8 & 7,
            self.0 & 0xff
        )
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#06x}: {})", self.0, self.text())
    }
}
