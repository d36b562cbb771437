//! The distribution's Samba as an ordinary user: a share in a temporary folder, on a port above 1024.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::machine::until;
use crate::namespace::Process;
use crate::{Error, Finished, Job, Machine, Namespace, system};

/// The name of the share. Guests may write to it.
pub const SHARE: &str = "share";
/// The password of its one user, [`USER`].
pub const PASSWORD: &str = "secret";
/// The user that Samba runs as: it exists on every machine and has no rights.
pub const USER: &str = "nobody";
/// The identifier of this user in the user namespace in which Samba runs.
const USER_ID: &str = "65534";
/// How long Samba may take to listen or to end: less than a second on an idle machine.
const SECONDS: u64 = 60;

/// A running `smbd` with all its files in a temporary folder. Its processes are ended when it is dropped.
///
/// `smbd` runs in a user namespace as [`USER`], so that it behaves the same whether root, root of a user
/// namespace or an ordinary user runs the tests. It therefore changes no groups and no owners.
#[derive(Debug)]
pub struct Samba {
    process: Process,
    folder: TempDir,
    address: SocketAddr,
}

impl Samba {
    /// Starts it on a free port of loopback. `settings` are lines of the section `[global]`, after the
    /// fixture's own, which they override.
    ///
    /// # Errors
    /// When it does not start.
    pub fn here(settings: &[&str]) -> Result<Self, Error> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let free = TcpListener::bind((loopback, 0)).and_then(|socket| socket.local_addr());
        let address = free.map_err(Error::file("a free port"))?;
        let started = Self::start(address, settings, |argv| {
            let mut command = Command::new(argv[0]);
            command.args(&argv[1..]);
            Process::start(command)
        })?;
        started.wait_until(|| Ok(std::net::TcpStream::connect(address).is_ok()))
    }

    /// Starts it on a port of a namespace's own address and of its loopback.
    ///
    /// # Errors
    /// As [`Samba::here`].
    pub fn within(namespace: &Namespace, port: u16, settings: &[&str]) -> Result<Self, Error> {
        let address = SocketAddr::new(namespace.address(), port);
        let started = Self::start(address, settings, |argv| namespace.start_plain(argv))?;
        started.wait_until(|| namespace.listens(port))
    }

    fn start(
        address: SocketAddr,
        settings: &[&str],
        start: impl FnOnce(&[&str]) -> Result<Process, Error>,
    ) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::file("a temporary folder"))?;
        for name in [SHARE, "state"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).map_err(Error::file(&path))?;
        }
        let file = folder.path().join("smb.conf");
        let text = configuration(folder.path(), address, settings);
        fs::write(&file, text).map_err(Error::file(&file))?;
        let file = file.to_string_lossy();
        let (user, group) = (
            format!("--map-user={USER_ID}"),
            format!("--map-group={USER_ID}"),
        );
        let as_user = ["unshare", "--user", &user, &group];
        let add = format!(
            "printf '%s\\n%s\\n' '{PASSWORD}' '{PASSWORD}' | pdbedit -s \"$0\" -a -t -u {USER}"
        );
        system::call(&[&as_user[..], &["sh", "-c", &add, &file]].concat())?;
        let logs = folder.path().to_string_lossy();
        // Without `--no-process-group`: at SIGTERM, smbd sends that to its whole process group.
        let smbd = ["/usr/sbin/smbd", "-F", "-l", &logs, "-s", &file];
        let process = start(&[&as_user[..], &smbd].concat())?;
        Ok(Self {
            process,
            folder,
            address,
        })
    }

    fn wait_until(mut self, listens: impl Fn() -> Result<bool, Error>) -> Result<Self, Error> {
        let mut ended = None;
        let happened = until(SECONDS, || {
            ended = self.process.finished()?;
            Ok(ended.is_some() || listens()?)
        })?;
        match ended {
            None if happened => Ok(self),
            None => {
                let what = format!("listening of smbd on {}", self.address);
                Err(Error::TooLate {
                    what,
                    seconds: SECONDS,
                    output: self.log(),
                })
            }
            Some(ended) => Err(Error::Failed {
                command: "smbd".to_owned(),
                output: ended.output + &self.log(),
            }),
        }
    }

    /// The address and port of its TCP listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The folder that it shares.
    pub fn share(&self) -> PathBuf {
        self.folder.path().join(SHARE)
    }

    /// The process IDs of `smbd`: the one that listens first, then the others. Each connection has one.
    pub fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.process.id()];
        let mut next = 0;
        while let Some(id) = all.get(next) {
            let path = format!("/proc/{id}/task/{id}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
            next += 1;
        }
        all
    }

    /// Kills every process of it (SIGKILL).
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self) -> Result<(), Error> {
        let ids: Vec<String> = self.processes().iter().map(u32::to_string).collect();
        let mut argv = vec!["kill", "-KILL"];
        argv.extend(ids.iter().map(String::as_str));
        system::call(&argv)?;
        self.process.wait(SECONDS).map(drop)
    }

    /// The text of all its logs.
    pub fn log(&self) -> String {
        let entries = fs::read_dir(self.folder.path())
            .into_iter()
            .flatten()
            .flatten();
        let logs = entries.filter(|it| it.file_name().to_string_lossy().starts_with("log."));
        logs.filter_map(|it| fs::read_to_string(it.path()).ok())
            .collect()
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        // The processes of connections end with the one that listens, which removes its sockets first.
        _ = system::call(&["kill", "-TERM", &self.process.id().to_string()]);
        _ = self.process.wait(SECONDS);
    }
}

/// The text of `smb.conf`. `smb2 max trans` and its siblings keep messages below what the kernel's SMB Direct
/// can reassemble.
fn configuration(folder: &Path, address: SocketAddr, settings: &[&str]) -> String {
    let (ip, port) = (address.ip(), address.port());
    let interfaces = if ip.is_loopback() {
        ip.to_string()
    } else {
        format!("{ip} 127.0.0.1")
    };
    let folder = folder.display();
    let mut text =
        format!("[global]\nserver role = standalone server\ninterfaces = {interfaces}\n");
    for setting in [
        "state directory",
        "lock directory",
        "cache directory",
        "private dir",
        "pid directory",
    ] {
        let _ = writeln!(text, "{setting} = {folder}/state");
    }
    let _ = write!(
        text,
        "ncalrpc dir = {folder}/state/ncalrpc\nlog file = {folder}/log.%m\n\
         passdb backend = smbpasswd:{folder}/passwords\nguest account = {USER}\nsmb ports = {port}\n"
    );
    text += "bind interfaces only = yes\ndisable netbios = yes\nmap to guest = Bad User\n\
             smb2 max trans = 131072\nsmb2 max read = 131072\nsmb2 max write = 131072\n\
             server multi channel support = yes\nload printers = no\nprinting = bsd\n\
             printcap name = /dev/null\ndisable spoolss = yes\n";
    for setting in settings {
        let _ = writeln!(text, "{setting}");
    }
    let _ = write!(
        text,
        "[{SHARE}]\npath = {folder}/{SHARE}\nread only = no\nguest ok = yes\n"
    );
    text
}

/// The words of `smbclient` for a share of a server: its signing or encryption in `options`, then commands.
pub fn smbclient(server: SocketAddr, share: &str, options: &[&str], commands: &str) -> Vec<String> {
    let (ip, port) = (server.ip(), server.port());
    let service = format!("//{ip}/{share}");
    let user = format!("{USER}%{PASSWORD}");
    let words = [
        "smbclient",
        &service,
        "-p",
        &port.to_string(),
        "-U",
        &user,
        "-s",
        "/dev/null",
        "-m",
        "SMB3",
    ]
    .map(str::to_owned);
    let options = options.iter().map(|&it| it.to_owned());
    words
        .into_iter()
        .chain(options)
        .chain(["-c".to_owned(), commands.to_owned()])
        .collect()
}

/// Runs a program with its words on a machine.
///
/// # Errors
/// As [`Machine::run`].
pub fn run(machine: &dyn Machine, argv: &[String], seconds: u64) -> Result<Finished, Error> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    machine.run(&argv, seconds)
}

/// The words of `smbtorture` for one of its tests or suites, on [`SHARE`] of a server.
pub fn smbtorture(server: SocketAddr, test: &str) -> Vec<String> {
    let service = format!("//{}/{SHARE}", server.ip());
    let user = format!("{USER}%{PASSWORD}");
    [
        "smbtorture",
        &service,
        "-p",
        &server.port().to_string(),
        "-U",
        &user,
        "-s",
        "/dev/null",
        test,
    ]
    .map(str::to_owned)
    .into()
}

/// The result of each test that `smbtorture` printed, as `success: NAME`, `failure: NAME`, `skip: NAME`, with
/// the place in its source that gave up.
pub fn results(output: &str) -> Vec<String> {
    const KINDS: [&str; 4] = ["success: ", "failure: ", "error: ", "skip: "];
    let mut found: Vec<String> = Vec::new();
    let mut is_within_reason = false;
    for line in output.lines() {
        if KINDS.iter().any(|kind| line.starts_with(kind)) {
            is_within_reason = line.ends_with(" [");
            found.push(line.trim_end_matches(" [").to_owned());
        } else if line == "]" {
            is_within_reason = false;
        } else if is_within_reason
            && let Some((_, place)) = line.split_once("/source4/")
            && let Some(last) = found.last_mut()
        {
            let place = place.split([' ', ')']).next().unwrap_or_default();
            _ = write!(last, ", {}", place.trim_end_matches(':'));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_places_that_gave_up() {
        let output = "time: 2026\nsuccess: read\nfailure: one [\n\
                      (../../source4/torture/smb2/a.c:299) Wrong\n\
                      ../../source4/torture/smb2/b.c:17: status was 5\n]\n\
                      at /source4/c.c:1\nskip: two [\nno\n]";
        let expected = [
            "success: read",
            "failure: one, torture/smb2/a.c:299, torture/smb2/b.c:17",
            "skip: two",
        ];
        assert_eq!(results(output), expected);
    }
}
