//! The distribution's Samba with a share in a folder: started as an ordinary user, ended with the benchmark.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use command::runtime;
use command::sys::Pidfd;

use super::super::place::{Held, Owned};
use crate::Error;

/// The name of the share.
pub(super) const SHARE: &str = "bench";
/// Where Debian, Ubuntu, Fedora and SUSE have it; users have no `/usr/sbin` in their PATH.
const SMBD: &str = "/usr/sbin/smbd";
/// Samba runs as the user and group `nobody` if root starts the measurement.
const NOBODY: (&str, &str) = ("65534", "nobody");
/// How long Samba may take to listen, or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running `smbd`.
#[derive(Debug)]
pub(super) struct Samba {
    smbd: Owned,
    state: PathBuf,
}

impl Samba {
    /// Starts it with a share of `folder`, in a network namespace if there is one.
    pub(super) fn start(
        folder: &Path,
        address: SocketAddr,
        place: Option<&Held>,
    ) -> Result<Self, Error> {
        if !Path::new(SMBD).exists() {
            return Err(Error::NoSuchProgram(SMBD.to_owned()));
        }
        let state = runtime::subfolder(&format!("samba-{}", std::process::id()))?;
        let file = state.join("smb.conf");
        let is_root = os::user() == 0;
        let user = if is_root {
            NOBODY.1.to_owned()
        } else {
            own_name()?
        };
        let text = configuration(folder, &state, address, &user);
        std::fs::write(&file, text).map_err(Error::file(&file))?;
        let mut words: Vec<&str> = Vec::new();
        let (map_user, map_group) = (
            format!("--map-user={}", NOBODY.0),
            format!("--map-group={}", NOBODY.0),
        );
        if is_root {
            // As root, smbd would change to the user of each session, which it does not need to here.
            words.extend(["unshare", "--user", &map_user, &map_group]);
        }
        add_account(&words, &file, &user)?;
        // It ends with this process, however that ends.
        words.extend(["setpriv", "--pdeathsig", "TERM", SMBD, "-F", "-l"]);
        let mut command = place.map_or_else(|| Command::new(words[0]), Held::enter);
        command.args(if place.is_some() {
            &words[..]
        } else {
            &words[1..]
        });
        command.arg(&state).arg("-s").arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(Error::file(SMBD))?;
        let mut samba = Self {
            smbd: Owned(child),
            state,
        };
        match samba.listens(address, place) {
            true => Ok(samba),
            false => Err(Error::NoSamba(samba.log())),
        }
    }

    /// The process that listens; each connection has a child of it.
    pub(super) fn process(&self) -> u32 {
        self.smbd.0.id()
    }

    fn listens(&mut self, address: SocketAddr, place: Option<&Held>) -> bool {
        let port = format!(":{:04X} 00000000:0000 0A", address.port());
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end && matches!(self.smbd.0.try_wait(), Ok(None)) {
            let mut command = place.map_or_else(|| Command::new("cat"), Held::enter);
            if place.is_some() {
                command.arg("cat");
            }
            let sockets = command.arg("/proc/net/tcp").output();
            if sockets.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(&port)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// The end of what it has logged.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.state.join("log")).unwrap_or_default();
        let skipped = text.lines().count().saturating_sub(10);
        text.lines()
            .skip(skipped)
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        // On SIGTERM it ends its children, which would outlive a SIGKILL for a moment.
        if let Ok(process) = Pidfd::open(self.process()) {
            let _ = process.terminate();
            let _ = process.wait(TIMEOUT);
        }
        _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Gives Samba's user an account, with a random password. Without an account, Samba does not map the owner of
/// the shared file to its guest.
fn add_account(as_user: &[&str], file: &Path, user: &str) -> Result<(), Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(io::Error::from)
        .map_err(Error::file("random numbers"))?;
    let password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let words: Vec<&str> = [as_user, &["pdbedit", "-a", "-t", "-u", user, "-s"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(file);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(Error::file("pdbedit"))?;
    if let Some(input) = &mut child.stdin {
        writeln!(input, "{password}\n{password}").map_err(Error::file("pdbedit"))?;
    }
    match child.wait().map_err(Error::file("pdbedit"))?.success() {
        true => Ok(()),
        false => Err(Error::NoSamba("pdbedit added no account".to_owned())),
    }
}

/// The name of this user.
fn own_name() -> Result<String, Error> {
    let output = Command::new("id")
        .arg("-un")
        .output()
        .map_err(Error::file("id"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn configuration(folder: &Path, state: &Path, address: SocketAddr, user: &str) -> String {
    let (folder, state) = (folder.display(), state.display());
    let mut text = format!(
        "[global]\nserver role = standalone server\ninterfaces = {}\n",
        address.ip()
    );
    for setting in [
        "state directory",
        "lock directory",
        "cache directory",
        "private dir",
        "pid directory",
    ] {
        let _ = writeln!(text, "{setting} = {state}");
    }
    let _ = write!(
        text,
        "ncalrpc dir = {state}/ncalrpc\nlog file = {state}/log\nguest account = {user}\nsmb ports = {}\n\
         passdb backend = smbpasswd:{state}/passwords\nbind interfaces only = yes\ndisable netbios = yes\n\
         map to guest = Bad User\nload printers = no\nprinting = bsd\nprintcap name = /dev/null\n\
         disable spoolss = yes\n[{SHARE}]\npath = {folder}\nread only = no\nguest ok = yes\n",
        address.port()
    );
    text
}
