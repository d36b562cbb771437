//! Opcodes. The low two bits of each are the direction of data (Base 3.3.3.1).

/// Direction of a command's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The command has no data.
    None,
    /// To the controller.
    FromHost,
    /// To the host.
    ToHost,
    /// Both ways: not used by any command here.
    Both,
}

impl Direction {
    /// The direction in the low two bits of an opcode, or of a fabrics command's type.
    #[inline]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 3 {
            0 => Self::None,
            1 => Self::FromHost,
            2 => Self::ToHost,
            _ => Self::Both,
        }
    }
}

/// The opcode of every fabrics command, in both command sets.
pub const FABRICS: u8 = 0x7f;

macro_rules! opcodes {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$case_doc:meta])* $case:ident = $code:literal, $text:literal;)+ }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $text] $(#[$case_doc])* $case = $code,)+
        }

        impl $name {
            /// All that are supported.
            pub const ALL: &[Self] = &[$(Self::$case),+];

            /// The opcode that is written so.
            #[inline]
            pub const fn parse(byte: u8) -> Option<Self> {
                match byte {
                    $($code => Some(Self::$case),)+
                    _ => None,
                }
            }

            /// The name of the specification.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$case => $text,)+
                }
            }
        }
    )+};
}

opcodes! {
    /// Commands of the admin queue.
    Admin {
        GetLogPage = 0x02, "Get Log Page";
        Identify = 0x06, "Identify";
        Abort = 0x08, "Abort";
        SetFeatures = 0x09, "Set Features";
        GetFeatures = 0x0a, "Get Features";
        AsyncEventRequest = 0x0c, "Asynchronous Event Request";
        KeepAlive = 0x18, "Keep Alive";
    }
    /// Commands of I/O queues.
    Io {
        Flush = 0x00, "Flush";
        Write = 0x01, "Write";
        Read = 0x02, "Read";
        Compare = 0x05, "Compare";
        WriteZeroes = 0x08, "Write Zeroes";
        DatasetManagement = 0x09, "Dataset Management";
        Verify = 0x0c, "Verify";
        ReservationRegister = 0x0d, "Reservation Register";
        ReservationReport = 0x0e, "Reservation Report";
        ReservationAcquire = 0x11, "Reservation Acquire";
        ReservationRelease = 0x15, "Reservation Release";
        Copy = 0x19, "Copy";
    }
    /// Types of fabrics commands.
    Fabrics {
        PropertySet = 0x00, "Property Set";
        Connect = 0x01, "Connect";
        PropertyGet = 0x04, "Property Get";
        AuthenticationSend = 0x05, "Authentication Send";
        AuthenticationReceive = 0x06, "Authentication Receive";
        Disconnect = 0x08, "Disconnect";
    }
}
