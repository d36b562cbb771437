//! Where attacks happen: a victim, its honest peer and an attacker on one bridge.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use command::process::peak_resident_kib;
use programs::forge::{self, Route};
use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Error, Job, Machine, Namespace, Rockery, Segment};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use tempfile::TempDir;

/// The router of [`Place::routed`] on the network of the victim and the attacker.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 9);
/// Its link-local address there, by which it is a router (RFC 4861, 6.1.2).
pub(crate) const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
/// The attacker's link-local address on the same network.
pub(crate) const ATTACKER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x66);

/// How long an attack lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// A few seconds, for CI.
    Short,
    /// About half a minute, for `make attack`.
    Long,
}

impl Effort {
    /// The seconds for which the attacker sends.
    pub(crate) fn seconds(self) -> u32 {
        match self {
            Self::Short => 3,
            Self::Long => 30,
        }
    }
}

/// Whether the programs are built with a sanitizer, which keeps freed memory, and margins around the rest.
static IS_SANITIZED: AtomicBool = AtomicBool::new(false);

/// How much more memory a program may take that is built with AddressSanitizer: four to ten times as much
/// was seen.
const SANITIZED_FACTOR: u64 = 16;

/// Says that the programs are built with a sanitizer.
pub(crate) fn expect_sanitized() {
    IS_SANITIZED.store(true, Ordering::Relaxed);
}

/// The memory that a program may lose, in MiB, where it loses `mib` as users have it.
pub(crate) fn memory_limit(mib: u64) -> u64 {
    if IS_SANITIZED.load(Ordering::Relaxed) {
        mib * SANITIZED_FACTOR
    } else {
        mib
    }
}

/// Three machines on one bridge, and the attacker's tools.
pub(crate) struct Place {
    pub(crate) victim: Namespace,
    pub(crate) peer: Namespace,
    pub(crate) attacker: Namespace,
    pub(crate) folder: TempDir,
    blast: Probe,
    segment: Segment,
}

/// The report of the attacker.
pub(crate) struct Blasted {
    pub(crate) packets: u64,
}

impl Place {
    pub(crate) fn new() -> Result<Self, Error> {
        Self::with_mtu(1500)
    }

    /// The same with another MTU in bytes.
    pub(crate) fn with_mtu(mtu: u32) -> Result<Self, Error> {
        let segment = Segment::new(mtu)?;
        let rockery = Rockery::built();
        Ok(Self {
            victim: segment.namespace(1)?.with(&rockery),
            peer: segment.namespace(2)?.with(&rockery),
            attacker: segment.namespace(3)?.with(&rockery),
            folder: TempDir::new().map_err(Error::file("a temporary folder"))?,
            blast: Probe::compile_with("cc", "blast", &[])?,
            segment,
        })
    }

    /// The same with the peer on a network of its own, 10.89.0.0/24 and fd89::/64, and the router before it,
    /// at [`ROUTER`] and [`ROUTER_V6`].
    pub(crate) fn routed() -> Result<(Self, Namespace), Error> {
        let (v4, v6) = (Ipv4Addr::new(10, 89, 0, 2), [0xfd89, 0, 0, 0, 0, 0, 0, 2]);
        let peer = Namespace::new(v4.into(), v6.into())?.with(&Rockery::built());
        let place = Self {
            peer,
            ..Self::new()?
        };
        let router = place.segment.namespace(ROUTER.octets()[3])?;
        router.call(&format!(
            "ip link add eth1 type veth peer name eth0 netns {}",
            place.peer.netns()
        ))?;
        let lines = [
            (&router, "ip link set eth1 up"),
            (&router, "ip address add 10.89.0.9/24 dev eth1"),
            (&router, "ip address add fd89::9/64 dev eth1 nodad"),
            (&router, "ip address add fe80::9/64 dev eth0 nodad"),
            (
                &router,
                "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
            ),
            (&place.peer, "ip link set eth0 up"),
            (&place.peer, "ip address add 10.89.0.2/24 dev eth0"),
            (&place.peer, "ip address add fd89::2/64 dev eth0 nodad"),
            (&place.peer, "ip route add default via 10.89.0.9"),
            (&place.peer, "ip -6 route add default via fd89::9"),
            (&place.attacker, "ip address add fe80::66/64 dev eth0 nodad"),
        ];
        for (machine, line) in lines {
            machine.call(line)?;
        }
        for machine in [&place.victim, &place.attacker] {
            machine.call(&format!("ip route add default via {ROUTER}"))?;
            machine.call(&format!("ip -6 route add default via {ROUTER_V6} dev eth0"))?;
        }
        Ok((place, router))
    }

    /// Sends forged packets round robin, at most `rate` a second, for the time of `effort`.
    pub(crate) fn blast(
        &self,
        packets: &[Vec<u8>],
        rate: u32,
        effort: Effort,
    ) -> Result<Blasted, Error> {
        let file = self.folder.path().join("packets");
        forge::write(&file, packets)?;
        let (program, file) = (self.blast.path().to_string_lossy(), file.to_string_lossy());
        let (rate, seconds) = (rate.to_string(), effort.seconds().to_string());
        let limit = u64::from(effort.seconds()) + 60;
        let said = self
            .attacker
            .run(&[&program, &file, &rate, &seconds], limit)?
            .expect_success()
            .output;
        let packets = said
            .split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        Ok(Blasted { packets })
    }
}

/// A route from `source` to a machine, by a source port that adapters use.
pub(crate) fn route(source: Ipv4Addr, to: &Namespace) -> Route {
    Route {
        source,
        destination: v4(to),
        source_port: 0xc000,
    }
}

/// The IPv4 address of a machine.
pub(crate) fn v4(machine: &Namespace) -> Ipv4Addr {
    match machine.address() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => unreachable!("machines of a segment have IPv4 addresses"),
    }
}

/// Chance by seed, so that an attack that breaks something can be repeated.
pub(crate) fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The most memory that a process has had so far, in MiB; `None` when it has ended.
pub(crate) fn peak_memory_mib(process: &Process) -> Option<u64> {
    Some(peak_resident_kib(process.id())? / 1024)
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(process: &Process) -> Option<usize> {
    Some(
        fs::read_dir(format!("/proc/{}/fd", process.id()))
            .ok()?
            .count(),
    )
}

/// The output of a program that ends well.
pub(crate) fn output_of(mut job: impl Job) -> Result<String, String> {
    let ended = job.wait(60).map_err(|error| error.to_string())?;
    Ok(ended.expect_success().output)
}

/// Waits for a line of a program that has `word` in it, and returns the program's output.
pub(crate) fn wait_for(job: &mut dyn Job, word: &str) -> Result<String, String> {
    let mut output = String::new();
    let seen = programs::machine::until(60, || {
        output = job.output()?;
        Ok(output.contains(word) || job.finished()?.is_some())
    });
    match seen {
        Ok(true) if output.contains(word) => Ok(output),
        _ => Err(format!("`{word}` was not printed:\n{output}")),
    }
}
