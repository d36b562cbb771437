//! The features that controllers support (Base figure 317): their scope, their data, and the bits of dword 11
//! that are not reserved. Every other feature is refused.

use wire::nvme::feature::{self, events};

use super::temperature::WARNING_TEMPERATURE_KELVIN;

/// What a feature belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The controller: Set Features takes no identifier of a namespace.
    Controller,
    /// A namespace, as this controller sees it: FFFFFFFFh sets the feature of all namespaces.
    Namespace,
}

/// A supported feature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feature {
    pub(super) number: u8,
    pub(super) scope: Scope,
    /// Whether discovery controllers have the feature as well.
    of_discovery: bool,
    /// Whether Set Features can change the feature.
    pub(super) is_changeable: bool,
    /// The length of its data in bytes; 0 if its value is in a dword.
    pub(super) data: u32,
    /// The bits of dword 11 that Set Features may set.
    fields: u32,
    /// The value of a new controller, and after a reset.
    pub(super) default: u32,
}

const fn dword(number: u8, fields: u32, default: u32) -> Feature {
    Feature {
        number,
        scope: Scope::Controller,
        of_discovery: false,
        is_changeable: true,
        data: 0,
        fields,
        default,
    }
}

const fn of_namespace(number: u8, fields: u32) -> Feature {
    Feature {
        scope: Scope::Namespace,
        ..dword(number, fields, 0)
    }
}

/// A feature with a data structure; nvme-cli sends its value in dword 11 as well, where it has no meaning.
const fn structure(number: u8, data: u32) -> Feature {
    Feature {
        data,
        ..dword(number, u32::MAX, 0)
    }
}

const fn of_discovery_too(feature: Feature) -> Feature {
    Feature {
        of_discovery: true,
        ..feature
    }
}

/// The mask of the three reservation notifications: bit 0 is reserved.
const NOTIFICATIONS: u32 = 0b1110;

const FEATURES: &[Feature] = &[
    // The arbitration burst (7: no limit), and the weights of weighted round robin, which hosts cannot
    // select.
    dword(feature::ARBITRATION, 0xffff_ff07, 7),
    // The power state, of which there is one, and the workload hint.
    dword(feature::POWER, 0xff, 0),
    dword(
        feature::TEMPERATURE,
        0x003f_ffff,
        WARNING_TEMPERATURE_KELVIN as u32,
    ),
    // The time limit for error recovery. Errors for deallocated blocks (DULBE) are not supported (NSFEAT).
    of_namespace(feature::ERROR_RECOVERY, 0xffff),
    dword(feature::WRITE_CACHE, 1, 1),
    dword(feature::QUEUES, u32::MAX, 0),
    dword(feature::WRITE_ATOMICITY, 1, 0),
    of_discovery_too(dword(
        feature::EVENTS,
        events::HEALTH | events::NAMESPACES | events::ANA,
        0,
    )),
    structure(feature::TIMESTAMP, 8),
    of_discovery_too(dword(feature::KEEP_ALIVE, u32::MAX, 0)),
    structure(feature::HOST_BEHAVIOUR, 512),
    // The index of a combination of I/O command sets.
    dword(feature::COMMAND_SETS, 0x1ff, 0),
    Feature {
        is_changeable: false,
        ..of_discovery_too(structure(feature::HOST_ID, 16))
    },
    of_namespace(feature::RESERVATION_MASK, NOTIFICATIONS),
    of_namespace(feature::RESERVATION_PERSISTENCE, 1),
    of_namespace(feature::WRITE_PROTECTION, 0b111),
];

impl Feature {
    /// The feature of this number, if the kind of controller supports it.
    pub(super) fn find(number: u8, is_discovery: bool) -> Option<&'static Self> {
        let found = FEATURES.iter().find(|feature| feature.number == number);
        found.filter(|feature| feature.of_discovery || !is_discovery)
    }

    /// Whether the feature of this number belongs to a namespace.
    pub(super) fn is_of_namespace(number: u8) -> bool {
        Self::find(number, false).is_some_and(|feature| feature.scope == Scope::Namespace)
    }

    /// All features of a controller with namespaces.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        FEATURES.iter()
    }

    /// The bits of dword 11 that Set Features may set.
    pub(super) fn fields(&self, is_discovery: bool) -> u32 {
        match (self.number, is_discovery) {
            (feature::EVENTS, true) => events::DISCOVERY,
            _ => self.fields,
        }
    }

    /// The supported capabilities, in dword 0 of Get Features (Base figure 186).
    pub(super) fn capabilities(&self) -> u64 {
        const OF_NAMESPACE: u64 = 1 << 1;
        const CHANGEABLE: u64 = 1 << 2;
        let scope = if self.scope == Scope::Namespace {
            OF_NAMESPACE
        } else {
            0
        };
        scope | if self.is_changeable { CHANGEABLE } else { 0 }
    }
}
