//! Tests of resets that come between two steps of another connection: each interleaving is planted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use wire::nvme::fabrics::{Connect, ConnectData, Property};
use wire::nvme::{property, text};

use super::*;
use crate::controller::Hosts;

const SUBSYSTEM: &str = "nqn.2024-01.org.example:disk";
/// Identifier of the I/O queue.
const QUEUE: u16 = 1;

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// Counts how often the connection of a queue is woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A target and an admin queue whose controller is enabled.
struct Place {
    target: Arc<Target>,
    admin: Queue,
}

impl Place {
    fn new() -> Self {
        let target = Target::new();
        let name = SUBSYSTEM.parse().unwrap();
        let (serial, model) = ("serial".to_owned(), "model".to_owned());
        target
            .add_subsystem(Subsystem::new(name, serial, model, Hosts::Any))
            .unwrap();
        let target = Arc::new(target);
        let mut admin = fresh(&target);
        let connected = connected(&admin, 0, 0xffff);
        admin.join(connected);
        let mut place = Self { target, admin };
        place.enable();
        place
    }

    fn controller(&self) -> u16 {
        self.admin.session().unwrap().id
    }

    fn configure(&mut self, value: u32) {
        let property = Property {
            wide: false,
            offset: property::CONFIGURATION,
            value: value.into(),
        };
        let command = property.to_command(Fabrics::PropertySet, 0);
        let (status, _) = self.admin.property(Fabrics::PropertySet, &command);
        assert!(status.is_success(), "{status}");
    }

    fn enable(&mut self) {
        self.configure(property::configuration::ENABLE | property::configuration::ENTRIES);
    }

    fn reset(&mut self) {
        self.configure(property::configuration::ENTRIES);
    }

    /// The connections that the controller wakes when it is reset, by queue.
    fn listed(&self) -> Vec<u16> {
        let state = self.target.lock();
        let controller = &state.controllers[&self.admin.session().unwrap().id];
        controller.queues.keys().copied().collect()
    }
}

/// A connection before Connect.
fn fresh(target: &Arc<Target>) -> Queue {
    let origin = Origin {
        port: 1,
        local: ([192, 0, 2, 1], 4420).into(),
        peer: [192, 0, 2, 2].into(),
    };
    Queue::new(Arc::clone(target), origin, Arc::new(NoWake))
}

/// Executes Connect up to the last step of it, [`Queue::join`].
fn connected(queue: &Queue, queue_id: u16, controller_id: u16) -> Connected {
    let fields = Connect {
        format: 0,
        queue_id,
        size: 31,
        attributes: 0,
        keep_alive_ms: 0,
    };
    let data = ConnectData {
        host_id: [1; 16],
        controller_id,
        subsystem: text::zeroed(SUBSYSTEM),
        host: text::zeroed("nqn.2024-01.org.example:host"),
    };
    let source = Source {
        origin: &queue.origin,
        proved: None,
    };
    let connected = queue.target.connect(fields, &data, source, &queue.wake, 0);
    connected.expect("Connect is right")
}

#[test]
fn a_reset_before_the_last_step_of_connect_ends_the_queue() {
    let mut place = Place::new();
    let mut queue = fresh(&place.target);
    let halfway = connected(&queue, QUEUE, place.controller());
    place.reset();
    queue.join(halfway);
    // The controller does not list the queue, so that nothing else could end it.
    assert_eq!(place.listed(), [0]);
    assert!(queue.is_over(), "the queue outlives the reset");
    // Without a reset it stays.
    place.enable();
    let mut queue = fresh(&place.target);
    let halfway = connected(&queue, QUEUE, place.controller());
    queue.join(halfway);
    assert!(!queue.is_over() && place.listed() == [0, QUEUE]);
}

/// Waits until a thread of this process sleeps.
fn wait_until_asleep(thread: &str) {
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
        // The state is the field behind the name, which is in parentheses.
        let state = stat.rsplit_once(") ").map(|(_, fields)| &fields[..1]);
        if state == Some("S") {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn a_queue_that_ends_during_a_reset_does_not_remove_the_next_queue_of_its_number() {
    let mut place = Place::new();
    let mut queue = fresh(&place.target);
    let halfway = connected(&queue, QUEUE, place.controller());
    queue.join(halfway);
    let woken = Arc::new(Woken::default());
    let next: Arc<dyn Wake> = woken.clone();
    let (target, id) = (Arc::clone(&place.target), place.controller());
    let mut state = target.lock();
    let (sender, receiver) = mpsc::channel();
    let ending = thread::spawn(move || {
        // PID/task/TID
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        sender.send(own.display().to_string()).unwrap();
        drop(queue);
    });
    // The connection ends, and waits for the lock of the target.
    let thread = receiver.recv().unwrap();
    wait_until_asleep(&thread);
    // Meanwhile the controller is reset, and the host connects the next queue of this number.
    let controller = state.controllers.get_mut(&id).unwrap();
    let reset = Property {
        wide: false,
        offset: property::CONFIGURATION,
        value: property::configuration::ENTRIES.into(),
    };
    controller.set_property(reset).unwrap();
    controller.queues.insert(QUEUE, next);
    drop(state);
    ending.join().unwrap();
    assert_eq!(place.listed(), [0, QUEUE]);
    // Still enabled for the host, so that a reset follows.
    place.enable();
    place.reset();
    assert_eq!(
        woken.0.load(Ordering::SeqCst),
        1,
        "a reset ends the next queue"
    );
}
