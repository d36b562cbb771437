//! The InfiniBand port of a device in a host of a lab: what the lab tells of it, and how the device follows.

use crate::settings;
use link::port_state::{PortEvent, PortState};
use rnic::{Event, Mtu, SubnetPort};

/// The state of the port, if the host has one.
pub(crate) fn port_state() -> Option<PortState> {
    settings::lab()?;
    link::management::port_state().ok()
}

/// The largest packet of the link.
pub(crate) fn active_mtu(state: &PortState) -> Mtu {
    Mtu::from_code(u32::from(state.active_mtu)).unwrap_or(Mtu::B256)
}

fn port_of(state: &PortState) -> SubnetPort {
    SubnetPort {
        lid: state.lid,
        lmc: state.lmc,
        prefix: state.prefix,
        guid: state.guid,
        partitions: state.partitions,
    }
}

/// Sets the port of a device that opens. Programs get no events of it.
pub(crate) fn begin(rnic: &mut rnic::Device, state: &PortState) {
    let mut port = rnic.port_mut();
    port.set_subnet(port_of(state));
    port.set_active_mtu(active_mtu(state));
    port.begin_active(state.is_active());
}

/// Changes the port of an open device, with the events that led to its state.
pub(crate) fn follow(rnic: &mut rnic::Device, state: &PortState) {
    let mut port = rnic.port_mut();
    port.set_subnet(port_of(state));
    port.set_active_mtu(active_mtu(state));
    for event in state.events() {
        match event {
            // The link was down meanwhile, whatever it is now.
            PortEvent::Error => port.set_active(false),
            PortEvent::Active => {}
            PortEvent::LidChange => port.report(Event::LidChange),
            PortEvent::GidChange => port.report(Event::GidChange),
            PortEvent::PartitionChange => port.report(Event::PartitionChange),
            PortEvent::ManagerChange => port.report(Event::ManagerChange),
            PortEvent::ClientReregister => port.report(Event::ClientReregister),
        }
    }
    port.set_active(state.is_active());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic::Config;

    #[test]
    fn a_device_follows_its_port_and_reports_what_happened() {
        let mut rnic = rnic::Device::new(Config::default(), [7; 32]);
        let mut state = PortState::default();
        (state.guid, state.active_mtu) = (9, 5);
        begin(&mut rnic, &state);
        assert!(rnic.poll_event().is_none() && !rnic.port().is_active());
        state.lid = 4;
        state.state = 4;
        state.add_event(PortEvent::LidChange);
        state.add_event(PortEvent::Active);
        follow(&mut rnic, &state);
        assert_eq!(rnic.port().subnet().map(|port| port.lid), Some(4));
        assert_eq!(rnic.port().active_mtu(), Mtu::B4096);
        let mut events = || std::iter::from_fn(|| rnic.poll_event()).collect::<Vec<_>>();
        assert_eq!(events(), [Event::LidChange, Event::PortActive]);
        state.add_event(PortEvent::Error);
        follow(&mut rnic, &state);
        let events = std::iter::from_fn(|| rnic.poll_event()).collect::<Vec<_>>();
        assert_eq!(
            events,
            [Event::PortError, Event::LidChange, Event::PortActive]
        );
    }
}
