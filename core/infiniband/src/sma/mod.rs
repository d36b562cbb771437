//! The subnet management agent of a node (IBTA 14.2): answers Get and Set of the node's attributes.

mod identity;
mod port_info;
mod tables;

pub use port_info::port_info;

use crate::mad::{DirectedRoute, Mad, class, method, status};
use crate::node::{Node, PortState};
use fabric::{Span, Time};

/// Attributes of subnet management (IBTA table 141).
mod attribute {
    pub(super) const NODE_DESCRIPTION: u16 = 0x10;
    pub(super) const NODE_INFO: u16 = 0x11;
    pub(super) const SWITCH_INFO: u16 = 0x12;
    pub(super) const GUID_INFO: u16 = 0x14;
    pub(super) const PORT_INFO: u16 = 0x15;
    pub(super) const PARTITION_TABLE: u16 = 0x16;
    pub(super) const SL_TO_VL: u16 = 0x17;
    pub(super) const VL_ARBITRATION: u16 = 0x18;
    pub(super) const LINEAR_FORWARDING: u16 = 0x19;
    pub(super) const MULTICAST_FORWARDING: u16 = 0x1b;
    pub(super) const SM_INFO: u16 = 0x20;
}

/// What a change means for others than the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A port takes its link down, and trains it again unless it is disabled.
    ResetLink {
        /// The port's number.
        port: u8,
        /// The port stays down.
        disable: bool,
    },
    /// A port that was disabled trains its link again.
    EnableLink(u8),
    /// A port's state was set to another one than before, without a change of the link.
    StateChanged(u8),
    /// Programs of the node's host hear of this.
    Event(PortEvent),
    /// A packet had a wrong key.
    KeyViolation,
}

/// Asynchronous events of a port, as verbs name them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortEvent {
    /// The link carries data.
    Active,
    /// The link carries no data any more.
    Error,
    /// The LID or the number of paths changed.
    LidChange,
    /// A partition key changed.
    PartitionChange,
    /// The manager's LID or service level changed.
    ManagerChange,
    /// The manager asks to register again for groups and events.
    ClientReregister,
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The answer to a Get or a Set.
    Reply(Mad),
    /// The request is for a program on the node.
    Pass,
    /// No answer: the key was wrong, or the port of the answer is down.
    Silent,
}

/// A request as it came.
pub struct Request<'a> {
    /// The datagram with the request.
    pub mad: &'a Mad,
    /// The port of arrival; 0 at a switch that asks itself.
    pub arrival: u8,
    /// The request was made on the node, without a hop: the key is not asked for.
    pub is_local: bool,
    /// The time at which the agent has the request.
    pub now: Time,
}

/// The lifetime of a lease's unit.
const SECOND: Span = Span(1_000_000_000_000);

/// Processes a request at a node, and adds what follows to `effects`.
pub fn process(
    node: &mut Node,
    request: &Request<'_>,
    effects: &mut alloc::vec::Vec<Effect>,
) -> Outcome {
    let mad = request.mad;
    if mad.class_version() != 1 {
        return reply_status(mad, status::BAD_VERSION);
    }
    if !passes_key(node, request) {
        effects.push(Effect::KeyViolation);
        return Outcome::Silent;
    }
    match mad.method() {
        method::GET | method::SET if mad.attribute() == attribute::SM_INFO => Outcome::Pass,
        method::GET | method::SET => attribute_of(node, request, effects),
        method::TRAP => Outcome::Pass,
        // The repetition of a trap ends, if the key is right.
        method::TRAP_REPRESS => Outcome::Pass,
        method if method & method::RESPONSE != 0 => Outcome::Pass,
        _ => reply_status(mad, status::BAD_METHOD),
    }
}

/// Checks the manager's key (IBTA 14.2.4): a Set needs it, and a Get from the second protection level on.
fn passes_key(node: &mut Node, request: &Request<'_>) -> bool {
    let mad = request.mad;
    let number = usize::from(node.addressed_port(request.arrival));
    let Some(port) = node.ports.get_mut(number) else {
        return true;
    };
    if port.lease_ends.is_some_and(|ends| request.now >= ends) {
        port.lease_ends = None;
        port.m_key.protect = 0;
    }
    let asks = matches!(
        mad.method(),
        method::GET | method::SET | method::TRAP_REPRESS
    );
    let is_valid = request.is_local || port.m_key.key == 0 || port.m_key.key == mad.m_key();
    if is_valid {
        if asks {
            port.lease_ends = None;
        }
        return true;
    }
    if !asks || (mad.method() == method::GET && port.m_key.protect < 2) {
        return true;
    }
    port.violations[0] = port.violations[0].saturating_add(1);
    if port.lease_ends.is_none() && port.m_key.lease > 0 {
        port.lease_ends = Some(request.now + SECOND.times(u64::from(port.m_key.lease)));
    }
    false
}

/// What an attribute made of a request: fields in the data of the response, or a status.
type Answered = Result<(), u16>;

fn attribute_of(
    node: &mut Node,
    request: &Request<'_>,
    effects: &mut alloc::vec::Vec<Effect>,
) -> Outcome {
    let mut reply = request.mad.clone();
    let sets = request.mad.method() == method::SET;
    let answered: Answered = match (request.mad.attribute(), sets) {
        (attribute::NODE_DESCRIPTION, false) => identity::description(node, &mut reply),
        (attribute::NODE_INFO, false) => identity::node_info(node, request.arrival, &mut reply),
        (attribute::GUID_INFO, _) => identity::guid_info(node, request.arrival, &mut reply),
        (attribute::PORT_INFO, false) => port_info::answer_get(node, request, &mut reply),
        (attribute::PORT_INFO, true) => port_info::answer_set(node, request, &mut reply, effects),
        (attribute::PARTITION_TABLE, _) => {
            tables::partitions(node, request.arrival, sets, &mut reply, effects)
        }
        (attribute::SL_TO_VL, _) => tables::lanes(node, request.arrival, sets, &mut reply),
        (attribute::VL_ARBITRATION, _) => {
            tables::arbitration(node, request.arrival, sets, &mut reply)
        }
        (attribute::SWITCH_INFO, _) => tables::switch_info(node, sets, &mut reply),
        (attribute::LINEAR_FORWARDING, _) => tables::linear(node, sets, &mut reply),
        (attribute::MULTICAST_FORWARDING, _) => tables::multicast(node, sets, &mut reply),
        _ => Err(status::BAD_ATTRIBUTE),
    };
    let status = match answered {
        Ok(()) => 0,
        Err(SILENT) => return Outcome::Silent,
        Err(status) => status,
    };
    reply_with(reply, status)
}

/// Stands for no answer at all.
const SILENT: u16 = u16::MAX;

fn reply_status(request: &Mad, status: u16) -> Outcome {
    reply_with(request.clone(), status)
}

fn reply_with(mut reply: Mad, status: u16) -> Outcome {
    reply.set_method(method::GET_RESPONSE);
    reply.set_status(status);
    if reply.class() == class::SUBNET_DIRECTED {
        reply.set_returns();
    }
    Outcome::Reply(reply)
}

/// Whether the state of a port lets packets of data pass.
pub(crate) const fn carries_data(state: PortState) -> bool {
    matches!(state, PortState::Active)
}
