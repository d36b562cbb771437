//! Places: how machines are joined.

use std::path::Path;

use crate::addresses::addresses;
use crate::guest::{Extras, Kernel};
use crate::machine::until;
use crate::{Arm, Error, Guest, Machine, Namespace, Rockery};

/// How long machines on one bridge may take to reach each other.
const INTRODUCTION_SECONDS: u64 = 30;

/// The kernel's name of an interface: 15 characters at most.
fn interface(kind: &str, number: u8) -> String {
    format!("{kind}{number}")
}

pub(crate) fn give_addresses(
    namespace: &Namespace,
    interface: &str,
    number: u8,
    mtu: u32,
) -> Result<(), Error> {
    let (v4, v6) = addresses(number);
    namespace.call(&format!("ip link set {interface} mtu {mtu} up"))?;
    namespace.call(&format!("ip address add {v4}/24 dev {interface}"))?;
    namespace.call(&format!("ip address add {v6}/64 dev {interface} nodad"))?;
    Ok(())
}

/// Two namespaces joined by a veth, which is called `eth0` at both ends.
#[derive(Debug)]
pub struct Pair {
    /// The end with address 10.88.0.1.
    pub left: Namespace,
    /// The end with address 10.88.0.2.
    pub right: Namespace,
}

impl Pair {
    /// Makes one whose veth has this MTU in bytes.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn new(mtu: u32) -> Result<Self, Error> {
        let [(one, one_v6), (two, two_v6)] = [addresses(1), addresses(2)];
        let pair = Self {
            left: Namespace::new(one, one_v6)?,
            right: Namespace::new(two, two_v6)?,
        };
        pair.connect(mtu)?;
        Ok(pair)
    }

    /// Makes one where programs at both ends see the device of rockery as it was built.
    ///
    /// # Panics
    /// When it cannot be made, or rockery cannot be built.
    #[track_caller]
    pub fn with_rockery(mtu: u32) -> Self {
        Self::new(mtu)
            .expect("a pair of namespaces")
            .with(&Rockery::built())
    }

    /// Makes the veth; again, after it was deleted.
    ///
    /// # Errors
    /// When there is one already.
    pub fn connect(&self, mtu: u32) -> Result<(), Error> {
        let peer = self.right.netns();
        self.left.call(&format!(
            "ip link add eth0 type veth peer name eth0 netns {peer}"
        ))?;
        give_addresses(&self.left, "eth0", 1, mtu)?;
        give_addresses(&self.right, "eth0", 2, mtu)
    }

    /// The same, where programs at both ends see rockery's device.
    pub fn with(self, rockery: &Rockery) -> Self {
        Self {
            left: self.left.with(rockery),
            right: self.right.with(rockery),
        }
    }
}

/// A bridge, to which namespaces and guests are connected.
#[derive(Debug)]
pub struct Segment {
    bridge: Namespace,
    mtu: u32,
}

impl Segment {
    /// Makes a namespace with the device of rockery, and a guest with the Linux kernel's and these programs,
    /// which reach each other. The values are dropped in this order.
    ///
    /// # Panics
    /// When one of them cannot be made.
    #[track_caller]
    pub fn rockery_and_kernel(mtu: u32, programs: &[&Path]) -> (Namespace, Guest, Self) {
        let segment = Self::new(mtu).expect("a segment");
        let ours = segment
            .namespace(1)
            .expect("a namespace")
            .with(&Rockery::built());
        let theirs = segment.guest(11, programs).expect("a guest");
        segment
            .introduce(&ours, &theirs)
            .expect("they hear each other");
        (ours, theirs, segment)
    }

    /// Makes an empty one of this MTU in bytes.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn new(mtu: u32) -> Result<Self, Error> {
        let (v4, v6) = addresses(254);
        let bridge = Namespace::new(v4, v6)?;
        bridge.call("ip link add bridge type bridge")?;
        bridge.call(&format!("ip link set bridge mtu {mtu} up"))?;
        Ok(Self { bridge, mtu })
    }

    /// A namespace on the bridge, with the address that `number` gives it.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn namespace(&self, number: u8) -> Result<Namespace, Error> {
        let (v4, v6) = addresses(number);
        let namespace = Namespace::new(v4, v6)?;
        let port = interface("port", number);
        let peer = namespace.netns();
        self.bridge.call(&format!(
            "ip link add {port} type veth peer name eth0 netns {peer}"
        ))?;
        self.bridge.call(&format!(
            "ip link set {port} mtu {} master bridge up",
            self.mtu
        ))?;
        give_addresses(&namespace, "eth0", number, self.mtu)?;
        Ok(namespace)
    }

    /// Has a namespace and a guest learn each other's link-layer addresses. The kernel's device looks a
    /// peer's up when it connects and waits for a second, which a guest on a busy machine can take.
    ///
    /// # Errors
    /// [`Error::TooLate`] when one does not reach the other.
    pub fn introduce(&self, namespace: &Namespace, guest: &Guest) -> Result<(), Error> {
        for address in [guest.address(), guest.address_v6()] {
            let ping = format!("ping -q -c 1 -W 1 {address}");
            if !until(INTRODUCTION_SECONDS, || Ok(namespace.call(&ping).is_ok()))? {
                let what = format!("an answer of {address}");
                return Err(Error::TooLate {
                    what,
                    seconds: INTRODUCTION_SECONDS,
                    output: String::new(),
                });
            }
        }
        Ok(())
    }

    /// Boots a guest on the bridge. `programs` of this host are in it, at the same paths.
    ///
    /// # Errors
    /// When the guest cannot be built or does not come up.
    pub fn guest(&self, number: u8, programs: &[&Path]) -> Result<Guest, Error> {
        self.guest_with_processors(number, 1, programs)
    }

    /// The same with so many processors.
    ///
    /// # Errors
    /// As [`Segment::guest`].
    pub fn guest_with_processors(
        &self,
        number: u8,
        processors: u32,
        programs: &[&Path],
    ) -> Result<Guest, Error> {
        let tap = interface("tap", number);
        self.bridge.call(&format!("ip tuntap add {tap} mode tap"))?;
        self.bridge.call(&format!(
            "ip link set {tap} mtu {} master bridge up",
            self.mtu
        ))?;
        Guest::boot(
            &self.bridge,
            &tap,
            number,
            self.mtu,
            processors,
            Extras::Programs(programs),
        )
    }

    /// The same with what storage takes: the modules of NVMe over Fabrics, nvme-cli, fio, ext4.
    ///
    /// # Errors
    /// As [`Segment::guest`].
    pub fn storage_guest(&self, number: u8) -> Result<Guest, Error> {
        self.with_extras(number, Extras::Storage(Kernel::Plain))
    }

    /// The same with a kernel whose NVMe host can authenticate.
    ///
    /// # Errors
    /// As [`Segment::guest`].
    pub fn authenticating_guest(&self, number: u8) -> Result<Guest, Error> {
        self.with_extras(number, Extras::Storage(Kernel::Authenticating))
    }

    /// The same whose kernel has SMB Direct, as client (cifs) and as server (ksmbd), and with fio.
    ///
    /// # Errors
    /// As [`Segment::guest`].
    pub fn smb_guest(&self, number: u8) -> Result<Guest, Error> {
        self.with_extras(number, Extras::Smb)
    }

    /// Boots one of 64-bit ARM, with two processors if they run at once.
    ///
    /// # Errors
    /// As [`Segment::guest`].
    pub fn arm_guest(&self, number: u8, arm: &Arm) -> Result<Guest, Error> {
        self.with_extras(number, Extras::Arm(arm))
    }

    fn with_extras(&self, number: u8, extras: Extras<'_>) -> Result<Guest, Error> {
        let tap = interface("tap", number);
        self.bridge.call(&format!("ip tuntap add {tap} mode tap"))?;
        self.bridge.call(&format!(
            "ip link set {tap} mtu {} master bridge up",
            self.mtu
        ))?;
        let processors = match extras {
            Extras::Arm(arm) => arm.processors(),
            _ => 1,
        };
        Guest::boot(&self.bridge, &tap, number, self.mtu, processors, extras)
    }
}
