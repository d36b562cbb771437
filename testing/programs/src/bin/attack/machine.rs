//! A machine that fails its programs: files in memory for which there is no room, a wall clock that jumps,
//! and processes that the kernel kills when memory is used up.

use std::time::{Duration, Instant};

use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery, live};
use rand_core::RngCore;

use crate::Outcome;
use crate::place::{Effort, random, wait_for};

/// Seconds within which a program ends whose peer was killed, on a busy machine.
const SECONDS: u64 = 120;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Fills the files in memory of this mount namespace, and then runs the program behind it.
const FILL: &str = "for place in /dev/shm /tmp; do mount -t tmpfs -o size=64k none $place; \
                    dd if=/dev/zero of=$place/full bs=4k 2>/dev/null; done; exec \"$@\"";

/// Two programs on one machine.
struct Transfer {
    server: Process,
    client: Process,
}

impl Transfer {
    /// Starts `ib_write_bw` for some seconds behind the words `before`, which may change its surroundings.
    fn start(machine: &Namespace, before: &[&str], seconds: u32) -> Result<Self, String> {
        let rockery = Rockery::built();
        let seconds = seconds.to_string();
        let words = [
            before,
            &[
                rockery.word(),
                "run",
                "--",
                "ib_write_bw",
                "-F",
                "-s",
                "65536",
                "-D",
                &seconds,
            ],
        ]
        .concat();
        let server = machine.start_plain(&words).map_err(text)?;
        machine.wait_for_listener(18515, SECONDS).map_err(text)?;
        let client = machine
            .start_plain(&[&words[..], &["127.0.0.1"]].concat())
            .map_err(text)?;
        Ok(Self { server, client })
    }

    /// Waits for its end.
    fn end(mut self) -> Result<(), String> {
        for end in [&mut self.client, &mut self.server] {
            let ended = end.wait(SECONDS).map_err(text)?;
            if !ended.succeeded() {
                return Err(ended.output);
            }
        }
        Ok(())
    }
}

/// Full `/dev/shm` and `/tmp`.
pub(crate) fn full_memory_files(effort: Effort) -> Outcome {
    let machine = Namespace::alone().map_err(text)?;
    let fill = ["unshare", "--mount", "sh", "-c", FILL, "sh"];
    Transfer::start(&machine, &fill, effort.seconds())?.end()?;
    // The files of this script are in /tmp.
    let script = r#"
        cat >$D/full.sh <<'FILE'
        mount -t tmpfs -o size=64k none /dev/shm && dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null
        df /dev/shm | grep -q '100%' && echo "full"
        $R lab up -d $F/lab.toml || exit 1
        $R lab exec server -- ib_write_bw -n 200 -s 65536 >/dev/null &
        until_it_listens 4853 || exit 1
        $R lab exec sender1 -- ib_write_bw -n 200 -s 65536 server >/dev/null && echo "transferred"
        wait
        down
FILE
        sed -n '/^until_it_prints()/,$p' "$0" | sed '/cat >$D/,$d' >$D/functions.sh
        unshare --user --map-root-user --mount sh -c '. $D/functions.sh; . $D/full.sh'"#;
    let ended = live::try_script(script, SECONDS, &[]).map_err(text)?;
    let is_right = |said: &str| {
        let lines = ["full", "transferred", "left: 0 processes, 0 sockets"];
        lines.iter().all(|line| said.contains(line))
    };
    if ended.succeeded() && is_right(&ended.output) {
        return Ok("programs of one machine and of a lab transferred data".to_owned());
    }
    Err(ended.output)
}

/// A wall clock that jumps, for programs, their agent, a target and its host.
pub(crate) fn clock_jumps(effort: Effort) -> Outcome {
    let clock = Probe::compile_with("cc", "jumping_clock", &["-shared", "-fPIC"]).map_err(text)?;
    let preload = format!("LD_PRELOAD={}", clock.path().display());
    let jumping = ["env", &preload];
    let machine = Namespace::alone().map_err(text)?;
    let said = machine
        .start_plain(&["env", &preload, "date", "+%s"])
        .and_then(|mut job| job.wait(SECONDS))
        .map_err(text)?;
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs() as i64;
    match said.output.trim().parse::<i64>() {
        Ok(seen) if (seen - now).abs() > 86400 => {}
        _ => return Err(format!("the clock did not jump: {}", said.output)),
    }
    let transfer = Transfer::start(&machine, &jumping, effort.seconds())?;

    let rockery = Rockery::built();
    let (secret, nqn, host) = (crate::hold::secret()?, crate::hold::NQN, crate::hold::HOST);
    let folder = tempfile::TempDir::new().map_err(text)?;
    let config = folder.path().join("config").to_string_lossy().into_owned();
    let lines = format!(
        "[[subsystem]]\nnqn = \"{nqn}\"\n[subsystem.host.\"{host}\"]\nsecret = \"{secret}\"\n\
         [[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n\
         [[port]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:4420\"\n"
    );
    std::fs::write(&config, lines).map_err(text)?;
    let control = folder.path().join("control").to_string_lossy().into_owned();
    let serve = ["serve", "nvme", "--config", &config, "--control", &control];
    let words = [&jumping[..], &[rockery.word()], &serve].concat();
    let mut target = machine.start_plain(&words).map_err(text)?;
    wait_for(&mut target, "listening on")?;
    let read = [
        "nvme",
        "read",
        "127.0.0.1:4420",
        "--subsystem",
        nqn,
        "--host",
        host,
    ];
    let read = [&read[..], &["--secret", &secret, "--blocks", "1"]].concat();
    let words = [&jumping[..], &[rockery.word()], &read].concat();
    let (begin, mut reads) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(effort.seconds().into()) {
        let ended = machine
            .start_plain(&words)
            .and_then(|mut job| job.wait(SECONDS))
            .map_err(text)?;
        if !ended.succeeded() {
            return Err(format!("after {reads} reads: {}", ended.output));
        }
        reads += 1;
    }
    transfer.end()?;
    Ok(format!(
        "the transfer ended well; a host read {reads} times"
    ))
}

/// The processes of a namespace whose program has one of these names.
fn processes(machine: &Namespace, names: &[&str]) -> Result<Vec<String>, String> {
    let all = machine
        .call(&format!("ip netns pids {}", machine.netns()))
        .map_err(text)?;
    let is_it = |pid: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| names.contains(&name.trim()))
    };
    Ok(all
        .split_whitespace()
        .filter(is_it)
        .map(str::to_owned)
        .collect())
}

/// Kills at random moments: the server, the client, the agent, or the agent with one of them.
pub(crate) fn kills(effort: Effort) -> Outcome {
    let machine = Namespace::with_rockery();
    let mut random = random(34);
    let (begin, mut killed) = (Instant::now(), 0);
    while killed < 4 || begin.elapsed() < Duration::from_secs(effort.seconds().into()) {
        let mut transfer = Transfer::start(&machine, &[], 100)?;
        std::thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 800)));
        let mut victims = Vec::new();
        if killed % 2 == 1 {
            victims.extend(processes(&machine, &["rockery-agent"])?);
        }
        let is_server = random.next_u32().is_multiple_of(2);
        let (gone, left) = match is_server {
            true => (&mut transfer.server, &mut transfer.client),
            false => (&mut transfer.client, &mut transfer.server),
        };
        victims.push(gone.id().to_string());
        machine
            .call(&format!("kill -KILL {}", victims.join(" ")))
            .map_err(text)?;
        // A server whose client was killed before it connected waits for another one, as on hardware.
        let is_waiting = !is_server && left.output().map_err(text)?.lines().count() < 8;
        if is_waiting {
            left.kill().map_err(text)?;
        }
        left.wait(SECONDS)
            .map_err(|error| format!("{victims:?} were killed: {error}"))?;
        killed += 1;
        let found = machine
            .run(&["ibv_devinfo", "-d", "rk_lo"], SECONDS)
            .map_err(text)?;
        if !found.succeeded() {
            return Err(format!("{victims:?} were killed: {}", found.output));
        }
    }
    Ok(format!(
        "{killed} kills; each time the other end ended, and a further program got its device"
    ))
}
