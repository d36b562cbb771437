//! Two namespaces on a bad wire. Kernels have `netem` for it, if it was configured; this one works
//! wherever the other places do, and by seed.

use std::cell::RefCell;

use crate::addresses::addresses;
use crate::machine::until;
use crate::namespace::Process;
use crate::probe::Probe;
use crate::segment::give_addresses;
use crate::{Error, Job, Namespace};

const START_SECONDS: u64 = 30;

/// How many of a thousand frames the process in the middle impairs, by kind.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Frames that are dropped.
    pub lost: u32,
    /// Frames that are reordered.
    pub reordered: u32,
    /// Frames that are duplicated.
    pub doubled: u32,
    /// Frames with one bit inverted.
    pub damaged: u32,
}

/// Two namespaces, and a process between them that carries and impairs their frames.
#[derive(Debug)]
pub struct Impaired {
    /// The end with address 10.88.0.1.
    pub left: Namespace,
    /// The end with address 10.88.0.2.
    pub right: Namespace,
    wire: RefCell<Option<Process>>,
    probe: Probe,
    // Dropped last: the wire's ends lie here.
    middle: Namespace,
}

impl Impaired {
    /// Makes one of this MTU in bytes, that carries every frame.
    ///
    /// # Errors
    /// As [`Namespace::new`] and [`Probe::compile`].
    pub fn new(mtu: u32) -> Result<Self, Error> {
        let [(one, one_v6), (two, two_v6), (between, between_v6)] = [1, 2, 254].map(addresses);
        let it = Self {
            left: Namespace::new(one, one_v6)?,
            right: Namespace::new(two, two_v6)?,
            wire: RefCell::new(None),
            probe: Probe::compile_with("cc", "badwire", &[])?,
            middle: Namespace::new(between, between_v6)?,
        };
        for (namespace, port, number) in [(&it.left, "wire1", 1), (&it.right, "wire2", 2)] {
            let peer = namespace.netns();
            it.middle.call(&format!(
                "ip link add {port} type veth peer name eth0 netns {peer}"
            ))?;
            // The middle namespace has no address, and sends nothing of its own.
            it.middle
                .call(&format!("sysctl -qw net.ipv6.conf.{port}.disable_ipv6=1"))?;
            it.middle
                .call(&format!("ip link set {port} mtu {mtu} up"))?;
            give_addresses(namespace, "eth0", number, mtu)?;
            namespace.call(&format!("{} whole eth0", it.probe.path().display()))?;
        }
        it.treat(
            1,
            Faults {
                lost: 0,
                reordered: 0,
                doubled: 0,
                damaged: 0,
            },
        )?;
        Ok(it)
    }

    /// Sets the impairments from now on; `seed` decides which frames are hit.
    ///
    /// # Errors
    /// When the wire does not start.
    pub fn treat(&self, seed: u64, faults: Faults) -> Result<(), Error> {
        drop(self.wire.take());
        let Faults {
            lost,
            reordered,
            doubled,
            damaged,
        } = faults;
        let path = self.probe.path().display();
        let line = format!("{path} {seed} {lost} {reordered} {doubled} {damaged}");
        let argv: Vec<&str> = line.split(' ').collect();
        let mut wire = self.middle.start_plain(&argv)?;
        if !until(START_SECONDS, || Ok(wire.output()?.contains("carrying")))? {
            return Err(Error::Failed {
                command: line,
                output: wire.output()?,
            });
        }
        self.wire.replace(Some(wire));
        Ok(())
    }
}
