//! Follows the network interface of an open device: its addresses, its MTU, and whether it is up.

use crate::device::Shared;
use crate::interface;

/// Tells the device how its interface is now.
pub(crate) fn follow(shared: &Shared, ifindex: u32) {
    // Where the kernel does not tell, nothing is known to have changed.
    let Ok(state) = interface::state(ifindex) else { return };
    let Some(state) = state else {
        // It is gone: no address is left, and nothing can be sent.
        let mut pump = shared.lock();
        pump.rnic.set_port_active(false);
        pump.rnic.change_gids(&[]);
        pump.rnic.set_removed();
        return pump.pump_events(&shared.events);
    };
    let mut pump = shared.lock();
    pump.lanes.follow_addresses();
    pump.rnic.change_gids(&state.gids);
    pump.rnic.set_active_mtu(state.active_mtu);
    pump.rnic.set_port_active(state.is_up);
    pump.pump_events(&shared.events);
}
