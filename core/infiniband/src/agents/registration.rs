//! Which datagrams an agent gets: what a program registers by the calls of `/dev/infiniband/umadN`.

use super::Errno;
use crate::mad::{Mad, class};

/// A registered agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Registration {
    /// The queue pair, 0 or 1.
    pub(super) qp: u8,
    /// The class; 0 where the agent gets responses only.
    pub(super) class: u8,
    /// The version of the class.
    pub(super) class_version: u8,
    /// The OUI of a vendor's class.
    pub(super) oui: [u8; 3],
    /// Bits of the methods of requests.
    pub(super) methods: u128,
    /// Messages of several datagrams are put together for the agent.
    pub(super) reassembles: bool,
}

/// The calls by which agents are registered.
pub(super) mod command {
    pub(in crate::agents) const REGISTER: u32 = 0xc01c_1b01;
    pub(in crate::agents) const UNREGISTER: u32 = 0x4004_1b02;
    pub(in crate::agents) const ENABLE_P_KEY: u32 = 0x1b03;
    pub(in crate::agents) const REGISTER_2: u32 = 0xc028_1b04;
}

/// Flags of the second call: the program handles RMPP itself.
const USER_RMPP: u32 = 1;
const CLASS_VERSION_MAX: u8 = 0x83;
/// Classes from here on are not for agents, but for that of directed routes.
const CLASS_MAX: u8 = 80;
const RMPP_VERSION: u8 = 1;

impl Registration {
    /// Reads the argument of the first call, 28 bytes.
    pub(super) fn parse(argument: &[u8]) -> Option<Self> {
        let argument: &[u8; 28] = argument.try_into().ok()?;
        Some(
            Self {
                qp: argument[20],
                class: argument[21],
                class_version: argument[22],
                oui: [argument[23], argument[24], argument[25]],
                methods: u128::from_ne_bytes(core::array::from_fn(|byte| argument[4 + byte])),
                reassembles: argument[26] != 0,
            }
            .with_rmpp(argument[26]),
        )
    }

    /// Reads the argument of the second call, 40 bytes. Unknown flags are an error, and the known ones are
    /// written in their place.
    pub(super) fn parse_2(argument: &mut [u8]) -> Result<Self, Errno> {
        let argument: &mut [u8; 40] = argument.try_into().map_err(|_| Errno::INVALID)?;
        let word = |at: usize| u32::from_ne_bytes(core::array::from_fn(|byte| argument[at + byte]));
        let (qp, flags, oui) = (word(4), word(12), word(32));
        if flags & !USER_RMPP != 0 {
            argument[12..16].copy_from_slice(&USER_RMPP.to_ne_bytes());
            return Err(Errno::INVALID);
        }
        let qp = u8::try_from(qp).map_err(|_| Errno::INVALID)?;
        if oui >> 24 != 0 {
            return Err(Errno::INVALID);
        }
        let [_, oui @ ..] = oui.to_be_bytes();
        let registration = Self {
            qp,
            class: argument[8],
            class_version: argument[9],
            oui,
            methods: u128::from_ne_bytes(core::array::from_fn(|byte| argument[16 + byte])),
            reassembles: argument[36] != 0 && flags & USER_RMPP == 0,
        };
        Ok(registration.with_rmpp(argument[36]))
    }

    /// A version of RMPP that does not exist is refused with a queue pair that does not exist.
    fn with_rmpp(self, version: u8) -> Self {
        if version > RMPP_VERSION {
            return Self {
                qp: u8::MAX,
                ..self
            };
        }
        self
    }

    /// Checks the values as Linux does.
    pub(super) fn check_values(&self) -> Result<(), Errno> {
        if self.qp > 1 {
            return Err(Errno::INVALID);
        }
        if self.class == 0 {
            return Ok(());
        }
        let is_smp = matches!(self.class, class::SUBNET_LID | class::SUBNET_DIRECTED);
        let has_oui = self.oui != [0; 3];
        let is_wrong = self.class_version >= CLASS_VERSION_MAX
            || (self.class >= CLASS_MAX && self.class != class::SUBNET_DIRECTED)
            || (is_vendor_2(self.class) && !has_oui)
            || (self.reassembles && !has_rmpp(self.class))
            || is_smp != (self.qp == 0);
        if is_wrong {
            Err(Errno::INVALID)
        } else {
            Ok(())
        }
    }

    /// Whether two agents would both get some requests.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        self.class != 0
            && self.class == other.class
            && self.class_version == other.class_version
            && (!is_vendor_2(self.class) || self.oui == other.oui)
            && self.methods & other.methods != 0
    }

    /// Whether the agent gets a request.
    pub(super) fn takes(&self, mad: &Mad) -> bool {
        self.class != 0
            && self.class == mad.class()
            && self.class_version == mad.class_version()
            && (!is_vendor_2(self.class) || self.oui == mad.oui())
            && self.methods >> (mad.method() & 0x7f) & 1 != 0
    }
}

/// Whether a class is one of vendors with an OUI.
fn is_vendor_2(class: u8) -> bool {
    (class::VENDOR_2_FIRST..=class::VENDOR_2_LAST).contains(&class)
}

/// Whether datagrams of a class have a header of RMPP (IBTA 13.6).
pub(super) fn has_rmpp(class: u8) -> bool {
    matches!(class, class::SUBNET_ADMINISTRATION | class::DEVICE | 0x12) || is_vendor_2(class)
}
