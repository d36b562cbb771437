//! Follows the network interface of an open device: its addresses, its MTU, and whether it is up.

use super::shared::Shared;
use crate::{faults, interface, subnet};

/// Sets the device's addresses, MTU and port state to those that its interface has now.
pub(super) fn update_port(shared: &Shared, ifindex: u32) {
    // An error means that the kernel does not report the interface's state: nothing is changed then.
    let Ok(state) = interface::state(ifindex) else {
        return;
    };
    let Some(state) = state else {
        // The interface was removed: no address is left, and nothing can be sent.
        let mut pump = shared.lock();
        pump.rnic.port_mut().set_active(false);
        pump.rnic.port_mut().change_gids(&[]);
        pump.rnic.port_mut().set_removed();
        return pump.pump_events(&shared.events);
    };
    let mut pump = shared.lock();
    pump.shm.follow_addresses();
    if let Some(port) = &state.subnet {
        subnet::follow(&mut pump.rnic, port);
        return pump.pump_events(&shared.events);
    }
    pump.rnic.port_mut().change_gids(&state.gids);
    let (mtu, is_up) = faults::port(ifindex, state.active_mtu, state.is_up);
    pump.rnic.port_mut().set_active_mtu(mtu);
    pump.rnic.port_mut().set_active(is_up);
    pump.pump_events(&shared.events);
}
