//! Two network namespaces, the path between them, and programs in them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use command::bench::Way;
use command::process::processor_time;

use super::lab::{Functions, HOSTS};
use crate::place::{Held, Owned};
use crate::tap;

/// Addresses of the two ends, from the block for measuring devices (RFC 2544).
const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(10);

/// Bytes of the longest frame on a tap: a segment of 64 KiB with headers.
const FRAME_BYTES_MAX: usize = 66_000;

/// `/proc` folders of what forwards frames: threads, or the process of a lab.
type Forwards = Arc<Mutex<Vec<PathBuf>>>;

/// Where the programs of the two ends run.
#[derive(Debug)]
enum Ends {
    Namespaces([Held; 2]),
    Functions(Functions),
}

/// Two ends and what is between them.
#[derive(Debug)]
pub(super) struct Place {
    ends: Ends,
    forwards: Forwards,
}

/// Runs a command in this process's namespace.
fn call(words: &str) -> Result<(), String> {
    let (program, arguments) = words.split_once(' ').unwrap_or((words, ""));
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{words}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Two veth pairs and a bridge.
fn bridge(ids: &[String; 2], mtu: u32) -> Result<(), String> {
    // An earlier path may have left its bridge.
    _ = call("ip link del bridge0");
    call("ip link add bridge0 type bridge")?;
    call(&format!("ip link set bridge0 mtu {mtu} up"))?;
    for (number, id) in ids.iter().enumerate() {
        let port = format!("port{number}");
        call(&format!(
            "ip link add {port} mtu {mtu} type veth peer name v0 mtu {mtu} netns {id}"
        ))?;
        call(&format!("ip link set {port} master bridge0 up"))?;
    }
    Ok(())
}

/// Two macvlan interfaces on one parent.
fn macvlan(ids: &[String; 2], mtu: u32) -> Result<(), String> {
    _ = call("ip link del parent0");
    call(&format!(
        "ip link add parent0 mtu {mtu} type veth peer name parent1 mtu {mtu}"
    ))?;
    call("ip link set parent0 up")?;
    call("ip link set parent1 up")?;
    for id in ids {
        call(&format!(
            "ip link add link parent0 name v0 netns {id} type macvlan mode bridge"
        ))?;
    }
    Ok(())
}

/// Two taps, and a thread for each direction.
fn forward(ids: &[String; 2], mtu: u32, forwards: &Forwards) -> Result<(), String> {
    let mut taps = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let name = format!("tap{number}");
        let tap = tap::open_tap(&name).map_err(|error| format!("/dev/net/tun: {error}"))?;
        call(&format!("ip link set {name} mtu {mtu} netns {id} name v0"))?;
        taps.push(tap);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let clone = |tap: &File| tap.try_clone().map_err(|error| error.to_string());
        let (from, to) = (clone(&taps[from])?, clone(&taps[to])?);
        let forwards = forwards.clone();
        std::thread::spawn(move || pass(from, to, &forwards));
    }
    Ok(())
}

/// Two namespaces, each with an interface `v0` and an address. `connect` makes the interfaces and the path
/// between them.
fn namespaces(
    mtu: u32,
    connect: impl FnOnce(&[String; 2]) -> Result<(), String>,
) -> Result<Ends, String> {
    let none = "this user may make no network namespaces here";
    let ends = [Held::new().ok_or(none)?, Held::new().ok_or(none)?];
    connect(&[ends[0].process(), ends[1].process()])?;
    for (end, address) in ends.iter().zip(ADDRESSES) {
        let done = end.call(&format!("ip link set v0 mtu {mtu} up"))
            && end.call(&format!("ip address add {address}/24 dev v0"));
        if !done {
            return Err(format!(
                "the interface v0 with {address} could not be set up"
            ));
        }
    }
    Ok(Ends::Namespaces(ends))
}

impl Place {
    /// Makes the two ends and the path between them.
    pub(super) fn new(way: Way, rockery: &Path, mtu: u32) -> Result<Self, String> {
        let forwards = Forwards::default();
        let ends = match way {
            Way::Bridge => namespaces(mtu, |ids| bridge(ids, mtu))?,
            Way::Macvlan => namespaces(mtu, |ids| macvlan(ids, mtu))?,
            Way::Tap => namespaces(mtu, |ids| forward(ids, mtu, &forwards))?,
            Way::Function => {
                let functions = Functions::new(rockery, mtu)?;
                forwards
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(functions.process());
                Ends::Functions(functions)
            }
        };
        Ok(Self { ends, forwards })
    }

    /// The address of the second end, as the first one reaches it.
    pub(super) fn address(&self) -> &'static str {
        match self.ends {
            Ends::Namespaces(_) => ADDRESSES[1],
            Ends::Functions(_) => HOSTS[1],
        }
    }

    /// A program at an end.
    fn enter(&self, end: usize) -> Command {
        match &self.ends {
            Ends::Namespaces(ends) => ends[end].enter(),
            Ends::Functions(functions) => functions.enter(end),
        }
    }

    /// Processor time of what forwards frames, so far.
    pub(super) fn switch_seconds(&self) -> f64 {
        let forwards = self.forwards.lock().unwrap_or_else(PoisonError::into_inner);
        forwards
            .iter()
            .map(|folder| processor_time(folder).as_secs_f64())
            .sum()
    }

    /// Starts a program that serves, at the second end.
    pub(super) fn serve(&self, program: &str, arguments: &[&str]) -> Result<Owned, String> {
        let mut command = self.enter(1);
        command.arg(program).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
            .spawn()
            .map(Owned)
            .map_err(|error| format!("{program}: {error}"))
    }

    /// Runs a program that connects to it, at the first end, until it prints what is expected: the server may
    /// not listen yet.
    pub(super) fn ask(
        &self,
        program: &str,
        arguments: &[&str],
        expected: &str,
    ) -> Result<String, String> {
        let until = Instant::now() + START;
        loop {
            let mut command = self.enter(0);
            command.arg(program).args(arguments).stdin(Stdio::null());
            let output = command
                .output()
                .map_err(|error| format!("{program}: {error}"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && text.contains(expected) {
                return Ok(text);
            }
            if Instant::now() > until {
                let said = String::from_utf8_lossy(&output.stderr);
                // The last line of JSON is a bracket.
                let is_text = |line: &&str| line.contains(char::is_alphabetic);
                let last = said.lines().chain(text.lines()).rfind(is_text);
                return Err(format!(
                    "{program}: {}",
                    last.unwrap_or("it printed nothing").trim()
                ));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Reads the output of a server until its end.
pub(super) fn output(mut server: Owned) -> Result<String, String> {
    let child: &mut Child = &mut server.0;
    let mut text = String::new();
    let out = child.stdout.as_mut().ok_or("the server has no output")?;
    out.read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

/// Forwards frames, with their offloads, until one of the taps is gone.
fn pass(mut from: File, mut to: File, forwards: &Forwards) {
    if let Ok(own) = std::fs::read_link("/proc/thread-self") {
        forwards
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Path::new("/proc").join(own));
    }
    let mut frame = vec![0; FRAME_BYTES_MAX];
    loop {
        match from.read(&mut frame) {
            Ok(bytes) if bytes > 0 => {
                // A frame is lost if the peer's queue is full or the peer is down, as on a cable.
                let _ = to.write(&frame[..bytes]);
            }
            // The interface is down until it is set up.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

/// The second line of the shell's `times`: user and system time of its children, as `0m1.250s`.
pub(super) fn child_seconds(text: &str) -> f64 {
    let time = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let last = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    last.split_whitespace().filter_map(time).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_children() {
        assert_eq!(
            child_seconds("BW\n0m0.00s 0m0.01s\n1m2.50s 0m0.25s\n"),
            62.75
        );
        assert_eq!(child_seconds(""), 0.0);
    }
}
