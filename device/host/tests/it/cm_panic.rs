//! A panic in a call on the connection manager: the next call finds an empty one, and the owner is notified.

use host::DeviceInfo;
use host::cm::{Connector, Owner};
use rnic::Instant;
use rnic::cm::{Cm, CmEvent, ListenAddress};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::cm::PortSpace;

/// Records the number of devices at each change.
#[derive(Default)]
struct Recorder(Vec<usize>);

impl Owner for Recorder {
    fn handle(&mut self, _: CmEvent, _: &mut Cm, _: Instant) {}

    fn devices_changed(&mut self, devices: &[DeviceInfo]) {
        self.0.push(devices.len());
    }
}

#[test]
fn a_panic_in_a_call_ends_the_connections_and_new_ones_can_be_made() {
    let connector = Connector::start(Recorder::default()).unwrap();
    let listen = |port| {
        let bound = connector
            .bind(PortSpace::Tcp, port, ListenAddress::Any, false)
            .unwrap();
        connector.listen(&bound, 1, |_, _| bound.port)
    };
    listen(0).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| connector.with(|_, _| panic!("a bug"))));
    assert!(panicked.is_err());
    let (connections, changes) =
        connector.with(|session, _| (session.cm.connections(), session.owner.0.clone()));
    assert_eq!(connections, 0);
    assert!(
        changes.len() == 2 && changes[0] == 0 && changes[1] > 0,
        "gone, and there again: {changes:?}"
    );
    assert!(
        listen(0).is_ok(),
        "the lock is not poisoned, and a new listener works"
    );
}
