//! Two programs on one host where the kernel refuses the fastest copy method: the next one is used, and the
//! programs see no difference.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery, patterns};
use tempfile::TempDir;

const SECONDS: u64 = 60;
const PERFTEST_PORT: u16 = 18515;
/// Packets that each end has sent when it is clear that it goes on so.
const MANY: u64 = 100;
/// Two users without privileges.
const NOBODY: &str = "65534";
const OTHER_USER: &str = "65533";

/// The command before a program at one end, or nothing.
type Before<'a> = &'a [&'a str];

/// Which transport and copy method two programs use.
#[derive(PartialEq, Eq, Debug)]
struct Methods {
    /// Queue pairs that use shared memory, and packets.
    memory: usize,
    packets: usize,
    /// Whether the requester executes WRITEs itself.
    direct: bool,
}

const BY_RINGS: Methods = Methods {
    memory: 2,
    packets: 0,
    direct: false,
};
const BY_PACKETS: Methods = Methods {
    memory: 0,
    packets: 2,
    direct: false,
};

/// The number after a name in `rockery devices --json`, each time.
fn numbers(json: &str, name: &str) -> Vec<u64> {
    let name = format!("\"{name}\":");
    let after = json.split(&name).skip(1);
    after
        .filter_map(|rest| rest.split([',', '}']).next()?.parse().ok())
        .collect()
}

fn is_direct(json: &str) -> bool {
    numbers(json, "shm_direct").iter().any(|&count| count > 0)
}

/// A namespace, and what is run in it.
struct Place {
    alone: Namespace,
    rockery: PathBuf,
    /// Where all users find rockery and the probes, if others than the caller run them.
    prefix: Option<TempDir>,
}

impl Place {
    fn new() -> Self {
        let rockery = Rockery::built().path().to_owned();
        Self {
            alone: Namespace::alone().unwrap(),
            rockery,
            prefix: None,
        }
    }

    /// The same for all users.
    fn for_all() -> Self {
        let (prefix, rockery) = Rockery::built().installed();
        Self {
            alone: Namespace::alone().unwrap(),
            rockery,
            prefix: Some(prefix),
        }
    }

    /// A program where all users may run it.
    fn publish(&self, program: &Path, mode: u32) -> PathBuf {
        let Some(prefix) = &self.prefix else {
            return program.to_owned();
        };
        let copy = prefix.path().join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        copy
    }

    fn start<'a>(
        &self,
        before: Before<'a>,
        after: Before<'a>,
        program: &[&'a str],
    ) -> impl Job + use<'a> {
        let rockery = self.rockery.to_string_lossy().into_owned();
        let run = [rockery.as_str(), "run", "--"];
        self.alone
            .start_plain(&[before, &run, after, program].concat())
            .unwrap()
    }

    /// How the ends of a program that WRITEs and waits reach each other. `before` starts rockery, `after` is
    /// started by it.
    fn methods(&self, ends: [(Before<'_>, Before<'_>); 2], program: &str) -> Methods {
        let line = format!("{program} -D 60 -s 8 -d rk_lo -x 1");
        let mut words: Vec<&str> = line.split(' ').collect();
        let mut server = self.start(ends[0].0, ends[0].1, &words);
        let listens = self.alone.wait_for_listener(PERFTEST_PORT, SECONDS);
        assert!(listens.is_ok(), "{:?}", server.output());
        words.push("127.0.0.1");
        let mut client = self.start(ends[1].0, ends[1].1, &words);
        let mut last = String::new();
        let running = until(SECONDS, || {
            last = self
                .alone
                .call(&format!("{} devices --json", self.rockery.display()))?;
            let sent = numbers(&last, "sent_packets");
            let many = sent.len() >= 2 && sent.iter().all(|&packets| packets > MANY);
            Ok(last.matches("\"state\":\"RTS\"").count() == 2 && (many || is_direct(&last)))
        });
        let said = (server.output(), client.output());
        assert!(running.unwrap(), "{last}\n{said:?}");
        client.kill().unwrap();
        server.kill().unwrap();
        let count = |what: &str| last.matches(&format!("\"path\":\"{what}\"")).count();
        Methods {
            memory: count("memory"),
            packets: count("packets"),
            direct: is_direct(&last),
        }
    }

    /// Every operation, every byte.
    fn patterns(&self, ends: [(Before<'_>, Before<'_>); 2]) {
        let probe = Probe::compile("patterns").unwrap();
        let path = self
            .publish(probe.path(), 0o755)
            .to_string_lossy()
            .into_owned();
        for operation in patterns::OPERATIONS {
            let words = [&*path, "-d", "rk_lo", operation];
            let mut server = self.start(ends[0].0, ends[0].1, &words);
            self.alone
                .wait_for_listener(patterns::PORT, SECONDS)
                .unwrap();
            let words = [&words[..], &["127.0.0.1"]].concat();
            let mut client = self.start(ends[1].0, ends[1].1, &words);
            for end in [&mut client, &mut server] {
                let said = end.wait(SECONDS).unwrap().expect_success().output;
                assert!(
                    said.contains("all as they were sent"),
                    "{operation}: {said}"
                );
            }
        }
    }
}

const PLAIN: (Before<'static>, Before<'static>) = (&[], &[]);

#[test]
fn without_restrictions_the_requester_executes_its_writes() {
    let methods = Place::new().methods([PLAIN, PLAIN], "ib_write_lat");
    assert_eq!(
        methods,
        Methods {
            direct: true,
            ..BY_RINGS
        }
    );
}

#[test]
fn without_access_to_the_peers_memory_payload_goes_through_the_rings() {
    let (place, confine) = (Place::new(), Probe::compile("confine").unwrap());
    let path = confine.path().to_string_lossy();
    let confined: (Before<'_>, Before<'_>) = (&[], &[&path, "memory"]);
    assert_eq!(
        place.methods([confined, confined], "ib_write_lat"),
        BY_RINGS
    );
    place.patterns([confined, confined]);
    // The other one still may.
    assert_eq!(
        place.methods([confined, PLAIN], "ib_write_lat"),
        Methods {
            direct: true,
            ..BY_RINGS
        }
    );
    place.patterns([confined, PLAIN]);
}

#[test]
fn without_shared_memory_packets_are_used() {
    let (place, confine) = (Place::new(), Probe::compile("confine").unwrap());
    let path = confine.path().to_string_lossy();
    let confined: (Before<'_>, Before<'_>) = (&[], &[&path, "shared"]);
    assert_eq!(
        place.methods([confined, confined], "ib_write_lat"),
        BY_PACKETS
    );
    place.patterns([confined, confined]);
}

/// The kernel refuses access to another process's memory where Yama forbids it or the process is undumpable,
/// as one is whose program file its user may not read.
#[test]
fn an_undumpable_program_is_reached_through_the_rings() {
    let place = Place::for_all();
    let perftest = place.publish(Path::new("/usr/bin/ib_write_lat"), 0o711);
    let nobody = [
        "setpriv",
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
        "--bounding-set=-all",
    ];
    let end: (Before<'_>, Before<'_>) = (&nobody, &[]);
    assert_eq!(
        place.methods([end, end], &perftest.to_string_lossy()),
        BY_RINGS
    );
}

#[test]
fn the_other_end_may_be_in_a_container_of_the_same_network() {
    let place = Place::new();
    for container in [
        &["unshare", "--user", "--map-root-user"][..],
        &["unshare", "--pid", "--fork", "--mount-proc"][..],
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ][..],
    ] {
        let end: (Before<'_>, Before<'_>) = (container, &[]);
        place.patterns([end, PLAIN]);
        place.patterns([PLAIN, end]);
    }
}

/// Port 4791 of a network namespace belongs to one user: another one gets an error, and reaches nothing.
#[test]
fn another_user_gets_no_device_and_sees_no_programs() {
    let place = Place::for_all();
    let serving = ["ib_write_lat", "-d", "rk_lo"];
    let mut server = place.start(
        &["setpriv", "--reuid", NOBODY, "--clear-groups"],
        &[],
        &serving,
    );
    place
        .alone
        .wait_for_listener(PERFTEST_PORT, SECONDS)
        .unwrap();
    let other = [
        "setpriv",
        "--reuid",
        OTHER_USER,
        "--clear-groups",
        "--bounding-set=-all",
    ];
    let refused = place
        .start(&other, &[], &["ibv_rc_pingpong", "-d", "rk_lo", "-g", "1"])
        .wait(SECONDS);
    let refused = refused.unwrap();
    assert!(
        !refused.succeeded() && refused.output.contains("UDP port 4791 is taken"),
        "{}",
        refused.output
    );
    let listed = |before: &[&str]| {
        let line = format!(
            "{} {} devices --json",
            before.join(" "),
            place.rockery.display()
        );
        place.alone.call(line.trim()).unwrap()
    };
    assert!(
        listed(&[]).contains("ib_write_lat"),
        "root sees all: {}",
        listed(&[])
    );
    assert!(
        !listed(&other).contains("ib_write_lat"),
        "{}",
        listed(&other)
    );
    server.kill().unwrap();
}
