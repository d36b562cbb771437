//! A remote namespace as an NBD export: in the foreground, or connected for as long as it is wanted.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::nvme::nbd;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::nvme::Target;

/// Clients of one export at once: each has a controller of its own.
const CLIENTS_MAX: usize = 16;

/// A namespace for clients of ours.
#[derive(Debug, clap::Args)]
pub(crate) struct Remote {
    /// Where.
    #[command(flatten)]
    pub(crate) target: Target,
    /// The namespace.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// Let clients only read.
    #[arg(long)]
    read_only: bool,
}

/// What to export.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// What.
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Where NBD clients connect: unix:PATH or ADDRESS:PORT, where everybody may who reaches it.
    #[arg(long, value_name = "WHERE")]
    pub(crate) nbd: Place,
}

/// What to connect.
#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// What.
    #[command(flatten)]
    remote: Remote,
    /// What to call it.
    #[arg(long, default_value = "disk")]
    pub(crate) name: Name,
}

/// The name of a connection, of which a file name is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=32).contains(&text.len()) && text.bytes().all(is_plain);
        if is_name { Ok(Self(text.to_owned())) } else { Err("1 to 32 letters, digits, - and _") }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where NBD clients connect.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            _ => text.parse().map(Self::Tcp).map_err(|_| "write unix:PATH or ADDRESS:PORT".to_owned()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Self::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A client that may be given up half way: what went wrong is said, the next is served.
struct Clients {
    what: Export,
    count: AtomicUsize,
}

/// Serves NBD clients until it is ended.
///
/// # Errors
/// When the target is not there, or the place cannot be had.
pub(crate) fn export(what: Export) -> Result<(), Error> {
    // What cannot work is said now, not to the first client.
    drop(what.remote.connected()?);
    let listener = match &what.nbd {
        Place::Unix(path) => {
            // One that nobody answers any more.
            if UnixStream::connect(path).is_err() {
                _ = fs::remove_file(path);
            }
            let listener = UnixListener::bind(path).map_err(Error::file(path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Error::file(path))?;
            Listener::Unix(listener)
        }
        Place::Tcp(address) => {
            Listener::Tcp(TcpListener::bind(address).map_err(Error::file(address.to_string()))?)
        }
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", what.nbd).and_then(|()| out.flush()).map_err(Error::file("standard output"))?;
    drop(out);
    let clients = Arc::new(Clients { what, count: AtomicUsize::new(0) });
    loop {
        match &listener {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().map_err(Error::file("an NBD client"))?;
                stream.set_nonblocking(true).map_err(Error::file("an NBD client"))?;
                Clients::start(&clients, stream);
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().map_err(Error::file("an NBD client"))?;
                _ = stream.set_nodelay(true);
                stream.set_nonblocking(true).map_err(Error::file("an NBD client"))?;
                Clients::start(&clients, stream);
            }
        }
    }
}

trait Stream: std::io::Read + Write + std::os::fd::AsRawFd + Send + 'static {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

impl Clients {
    fn start(this: &Arc<Self>, mut stream: impl Stream) {
        if this.count.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            this.count.fetch_sub(1, Ordering::Relaxed);
            eprintln!("rockery: there are {CLIENTS_MAX} NBD clients already");
            return;
        }
        let this = Arc::clone(this);
        std::thread::spawn(move || {
            let served =
                this.what.remote.connected().and_then(|target| Ok(nbd::serve(&mut stream, target, "")?));
            this.count.fetch_sub(1, Ordering::Relaxed);
            match served {
                // That is how most of them leave.
                Err(Error::Nbd(nbd::NbdError::Stream(error)))
                    if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
                Err(error) => eprintln!("rockery: {error}"),
                Ok(()) => {}
            }
        });
    }
}

impl Remote {
    fn connected(&self) -> Result<nbd::Target, Error> {
        let mut client = self.target.connect()?;
        let namespace = client.namespace(self.namespace)?;
        Ok(nbd::Target { client, namespace, read_only: self.read_only })
    }

    /// The same on a command line.
    fn words(&self) -> Vec<String> {
        let mut words = self.target.words();
        words.extend(["--namespace".to_owned(), self.namespace.to_string()]);
        words.extend(self.read_only.then(|| "--read-only".to_owned()));
        words
    }
}

/// What is connected: a process that exports, and where.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    process: u32,
    target: String,
    subsystem: String,
    transport: String,
    namespace: u32,
    uri: String,
}

/// Where connections of this user are recorded.
fn folder() -> Result<PathBuf, Error> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let folder = own.unwrap_or_else(std::env::temp_dir).join("rockery-nvme");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(Error::file(&folder))?;
    Ok(folder)
}

/// Starts a process that exports, and says where.
///
/// # Errors
/// When there is one of this name, or the target is not there.
pub(crate) fn connect(what: &Connect) -> Result<(), Error> {
    let folder = folder()?;
    let (socket, record) = (folder.join(format!("{}.sock", what.name)), recorded(&folder, &what.name));
    if UnixStream::connect(&socket).is_ok() {
        return Err(Error::Connected(what.name.to_string()));
    }
    let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let mut command = Command::new(&own);
    command.args(["nvme", "export"]).args(what.remote.words());
    command.arg("--nbd").arg(format!("unix:{}", socket.display()));
    // A group of its own: what ends the shell's job does not end it.
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::file(&own))?;
    let mut uri = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut uri).map_err(Error::file("the export's output"))?;
    }
    let uri = uri.trim().to_owned();
    if uri.is_empty() {
        _ = child.wait();
        return Err(Error::NotConnected);
    }
    let target = &what.remote.target;
    let written = Record {
        process: child.id(),
        target: target.place().to_owned(),
        subsystem: target.subsystem().to_string(),
        transport: target.transport().to_string(),
        namespace: what.remote.namespace,
        uri: uri.clone(),
    };
    let text = serde_json::to_string(&written).unwrap_or_default();
    fs::write(&record, text).map_err(Error::file(&record))?;
    writeln!(std::io::stdout().lock(), "{uri}").map_err(Error::file("standard output"))
}

fn recorded(folder: &Path, name: &Name) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// Every connection that is there; records of others are removed.
fn records() -> Result<Vec<(String, Record)>, Error> {
    let folder = folder()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten() {
        let path = entry.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let is_there = UnixStream::connect(path.with_extension("sock")).is_ok();
        match serde_json::from_str(&text).ok().filter(|_| is_there) {
            Some(record) => found.push((name, record)),
            None => _ = fs::remove_file(&path),
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Shows what is connected.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn list() -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    for (name, it) in records()? {
        let Record { target, subsystem, transport, namespace, uri, .. } = it;
        writeln!(out, "{name:12} {transport:4} {target} {subsystem} namespace {namespace}  {uri}")
            .map_err(Error::file("standard output"))?;
    }
    Ok(())
}

/// Ends a connection.
///
/// # Errors
/// When there is none of this name.
pub(crate) fn disconnect(name: &Name) -> Result<(), Error> {
    let found = records()?.into_iter().find(|(found, _)| *found == name.0);
    let (_, record) = found.ok_or_else(|| Error::NoSuchConnection(name.to_string()))?;
    let ended = Command::new("kill").arg(record.process.to_string()).status();
    ended.map_err(Error::file("kill"))?;
    let folder = folder()?;
    _ = fs::remove_file(recorded(&folder, name));
    _ = fs::remove_file(folder.join(format!("{name}.sock")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_are_what_they_say() {
        assert_eq!("unix:/a/b".parse::<Place>().unwrap().to_string(), "nbd+unix:///?socket=/a/b");
        assert_eq!("[::1]:10809".parse::<Place>().unwrap().to_string(), "nbd://[::1]:10809");
        assert!("unix:".parse::<Place>().is_err() && "/a/b".parse::<Place>().is_err());
        assert!("../x".parse::<Name>().is_err() && "".parse::<Name>().is_err());
    }
}
