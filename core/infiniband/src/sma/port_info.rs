//! PortInfo (IBTA 14.2.5.6). Each field of a Set takes effect by itself; the status says when one did not.

use super::identity::GUID_CAPACITY;
use super::{Answered, Effect, PortEvent, Request, SILENT};
use crate::lid::FIRST_MULTICAST;
use crate::mad::{DirectedRoute, Mad, get, put, status};
use crate::node::{Node, PhysicalState, Port, PortState};
use alloc::vec::Vec;

/// Entries of each arbitration table of ports.
const ARBITRATION_CAP: u8 = 8;
/// The modifier's bit of managers that know speeds from FDR on.
const EXTENDED_SPEEDS: u32 = 1 << 31;
/// "All that are supported", of widths and speeds.
const ALL_WIDTHS: u8 = 0xff;
const ALL_SPEEDS: u8 = 15;
const ALL_EXTENDED: u8 = 31;
/// The largest code of an MTU.
const MTU_MAX: u8 = 5;

/// The number of the port that a request is about.
fn number_of(node: &Node, request: &Request<'_>) -> Result<u8, u16> {
    let asked = (request.mad.modifier() & 0xff) as u8;
    let number = if asked == 0 && !node.is_switch() {
        request.arrival
    } else {
        asked
    };
    if number > node.port_count() {
        return Err(status::BAD_VALUE);
    }
    Ok(number)
}

pub(super) fn answer_get(node: &Node, request: &Request<'_>, reply: &mut Mad) -> Answered {
    let number = number_of(node, request)?;
    let port = &node.ports[usize::from(number)];
    let key = &node.ports[usize::from(node.addressed_port(request.arrival))].m_key;
    let shows_key = request.is_local || key.protect == 0 || key.key == request.mad.m_key();
    write(
        node,
        port,
        number,
        request.arrival,
        shows_key,
        reply.data_mut(),
    );
    Ok(())
}

/// The PortInfo of a port as its own node reads it.
pub fn port_info(node: &Node, number: u8) -> Option<[u8; 64]> {
    let port = node.ports.get(usize::from(number))?;
    let mut data = [0; 64];
    write(node, port, number, number, true, &mut data);
    Some(data)
}

fn write(node: &Node, port: &Port, number: u8, arrival: u8, shows_key: bool, data: &mut [u8]) {
    data.fill(0);
    // LIDs, keys and the like belong to adapters' ports, and to port 0 of switches.
    if !node.is_switch() || number == 0 {
        if shows_key {
            put(data, 0, port.m_key.key);
        }
        put(data, 8, port.gid_prefix);
        put(data, 16, port.lid);
        put(data, 18, port.sm_lid);
        put(data, 26, port.m_key.lease);
        data[34] = port.m_key.protect << 6 | port.lmc;
        data[50] = GUID_CAPACITY;
        data[51] = port.subnet_timeout;
        data[52] = port.response_time;
    }
    put(data, 20, port.capabilities.0);
    data[28] = arrival;
    data[29..32].copy_from_slice(&[
        port.enabled.width,
        port.supported_widths(),
        port.active.width.code(),
    ]);
    data[32] = port.supported_speeds() << 4 | port.state as u8;
    data[33] = (port.physical as u8) << 4 | port.down_default;
    data[35] = port.active.speed.code() << 4 | port.enabled.speed;
    data[36] = port.neighbor_mtu << 4 | port.sm_sl;
    data[37] = port.vl_cap << 4;
    data[38..41].copy_from_slice(&[port.vl_high_limit, ARBITRATION_CAP, ARBITRATION_CAP]);
    data[41] = port.mtu_cap;
    data[42] = port.vl_stall << 5 | port.hoq_life;
    data[43] = port.operational_vls << 4 | port.enforcement;
    for (index, violations) in port.violations.into_iter().enumerate() {
        put(data, 44 + 2 * index, violations);
    }
    data[53] = port.error_thresholds;
    data[62] = port.active.speed.extended_code() << 4 | port.supported_extended();
    data[63] = port.enabled.extended;
}

pub(super) fn answer_set(
    node: &mut Node,
    request: &Request<'_>,
    reply: &mut Mad,
    effects: &mut Vec<Effect>,
) -> Answered {
    let number = number_of(node, request)?;
    let (is_switch, arrival) = (node.is_switch(), request.arrival);
    let data = request.mad.data();
    let mut fields = Fields {
        port: &mut node.ports[usize::from(number)],
        data,
        is_valid: true,
        effects,
    };
    if !is_switch || number == 0 {
        fields.set_addresses(!is_switch);
    }
    if !is_switch || number > 0 {
        fields.set_link(request.mad.modifier() & EXTENDED_SPEEDS != 0);
        fields.set_lanes(is_switch);
    }
    fields.clear_violations();
    let disables = (!is_switch || number > 0) && fields.set_state(number);
    let is_valid = fields.is_valid;
    // The answer would leave by the port that was disabled.
    if disables && !request.is_local && number == arrival {
        return Err(SILENT);
    }
    let port = &node.ports[usize::from(number)];
    write(node, port, number, arrival, true, reply.data_mut());
    // The bit comes back as it was sent (o14-12.2.1).
    reply.data_mut()[51] |= data[51] & REREGISTER;
    if is_valid {
        Ok(())
    } else {
        Err(status::BAD_VALUE)
    }
}

/// The bit by which a manager asks clients to register again.
const REREGISTER: u8 = 0x80;

/// The fields of a Set, applied to a port.
struct Fields<'a> {
    port: &'a mut Port,
    data: &'a [u8],
    /// All fields had values that the port takes.
    is_valid: bool,
    effects: &'a mut Vec<Effect>,
}

impl Fields<'_> {
    fn event(&mut self, event: PortEvent) {
        self.effects.push(Effect::Event(event));
    }

    /// Keys, LIDs and what else an adapter's port or port 0 of a switch has.
    fn set_addresses(&mut self, has_events: bool) {
        let (data, port) = (self.data, &mut *self.port);
        port.m_key.key = get(data, 0);
        port.gid_prefix = get(data, 8);
        port.m_key.lease = get(data, 26);
        port.m_key.protect = data[34] >> 6;
        let (lid, sm_lid): (u16, u16) = (get(data, 16), get(data, 18));
        let (lmc, sm_sl) = (data[34] & 7, data[36] & 0xf);
        let is_unicast = |lid: u16| lid != 0 && lid < FIRST_MULTICAST;
        let before = (port.lid, port.lmc, port.sm_lid, port.sm_sl);
        if is_unicast(lid) {
            (port.lid, port.lmc) = (lid, lmc);
        } else {
            self.is_valid = false;
        }
        if is_unicast(sm_lid) {
            (port.sm_lid, port.sm_sl) = (sm_lid, sm_sl);
        } else {
            self.is_valid = false;
        }
        port.subnet_timeout = data[51] & 0x1f;
        let after = (port.lid, port.lmc, port.sm_lid, port.sm_sl);
        if has_events && (before.0, before.1) != (after.0, after.1) {
            self.event(PortEvent::LidChange);
        }
        if has_events && (before.2, before.3) != (after.2, after.3) {
            self.event(PortEvent::ManagerChange);
        }
        if has_events && data[51] & REREGISTER != 0 {
            self.event(PortEvent::ClientReregister);
        }
    }

    /// Widths and speeds that may be used from the next training on. 0 changes nothing.
    fn set_link(&mut self, knows_extended: bool) {
        let all = self.port.all_enabled();
        let chosen = |wanted: u8, everything: u8, supported: u8, before: u8| match wanted {
            0 => Ok(before),
            wanted if wanted == everything => Ok(supported),
            wanted if wanted & !supported == 0 => Ok(wanted),
            _ => Err(before),
        };
        let before = self.port.enabled;
        let width = chosen(self.data[29], ALL_WIDTHS, all.width, before.width);
        let speed = chosen(self.data[35] & 0xf, ALL_SPEEDS, all.speed, before.speed);
        let extended = if knows_extended {
            chosen(
                self.data[63] & 0x1f,
                ALL_EXTENDED,
                all.extended,
                before.extended,
            )
        } else {
            Ok(before.extended)
        };
        self.is_valid &= width.is_ok() && speed.is_ok() && extended.is_ok();
        let either = |one: Result<u8, u8>| one.unwrap_or_else(|before| before);
        self.port.enabled = crate::node::Enabled {
            width: either(width),
            speed: either(speed),
            extended: either(extended),
        };
    }

    /// Sizes, lanes and lifetimes of a link.
    fn set_lanes(&mut self, is_switch: bool) {
        let (data, port) = (self.data, &mut *self.port);
        let mtu = data[36] >> 4;
        let vls = data[43] >> 4;
        if mtu != 0 && mtu <= port.mtu_cap.min(MTU_MAX) {
            port.neighbor_mtu = mtu;
        } else {
            self.is_valid = false;
        }
        if vls != 0 && vls <= port.vl_cap {
            port.operational_vls = vls;
        } else if vls != 0 {
            self.is_valid = false;
        }
        port.vl_high_limit = data[38];
        (port.vl_stall, port.hoq_life) = (data[42] >> 5, data[42] & 0x1f);
        if is_switch {
            port.enforcement = data[43] & 0xf;
        }
        port.error_thresholds = data[53];
    }

    fn clear_violations(&mut self) {
        for index in 0..self.port.violations.len() {
            if get::<u16>(self.data, 44 + 2 * index) == 0 {
                self.port.violations[index] = 0;
            }
        }
    }

    /// The state of the link, and what becomes of it when it is down. Returns whether the port is disabled
    /// now.
    fn set_state(&mut self, number: u8) -> bool {
        let (state, physical) = (self.data[32] & 0xf, self.data[33] >> 4);
        match self.data[33] & 0xf {
            0 => {}
            down @ (1 | 2) => self.port.down_default = down,
            _ => self.is_valid = false,
        }
        let (polls, disables) = (physical == POLLING, physical == DISABLED);
        let is_down = state == PortState::Down as u8;
        if physical != 0 && ((state != 0 && !is_down) || !(polls || disables)) {
            self.is_valid = false;
            return false;
        }
        let was_disabled = self.port.physical == PhysicalState::Disabled;
        if disables {
            self.effects.push(Effect::ResetLink {
                port: number,
                disable: true,
            });
            return true;
        }
        if polls && was_disabled {
            self.effects.push(Effect::EnableLink(number));
            return false;
        }
        if is_down || polls {
            if !was_disabled {
                self.effects.push(Effect::ResetLink {
                    port: number,
                    disable: false,
                });
            }
            return false;
        }
        self.advance_state(state, number);
        false
    }

    /// A link advances by one step: from Initialize to Armed, and from there to Active.
    fn advance_state(&mut self, state: u8, number: u8) {
        let before = self.port.state;
        let after = match (state, before) {
            (0, _) => return,
            (3, PortState::Initialize | PortState::Armed) => PortState::Armed,
            (4, PortState::Armed | PortState::Active) => PortState::Active,
            _ => {
                self.is_valid = false;
                return;
            }
        };
        self.port.state = after;
        if before != after {
            self.effects.push(Effect::StateChanged(number));
        }
    }
}

const POLLING: u8 = PhysicalState::Polling as u8;
const DISABLED: u8 = PhysicalState::Disabled as u8;
