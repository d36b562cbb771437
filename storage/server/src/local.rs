//! Unix sockets for one user: no other file is removed to create one, and neither end accepts a process of
//! another user but root.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::sys::peer;
pub use crate::sys::peer::Peer;

/// The backlog of the listening socket.
const BACKLOG: i32 = 128;
/// How long a client waits for a place in the backlog.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it retries.
const BACKLOG_INTERVAL: Duration = Duration::from_millis(20);

/// A listening Unix socket. Dropping it removes its file.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file, so that only this file is removed.
    file: (u64, u64),
}

impl LocalListener {
    /// Listens with a new socket file of mode 0600. The file of a socket that no process listens on is
    /// replaced.
    ///
    /// # Errors
    /// When a process listens there, or the path names another kind of file, which is not changed.
    pub fn bind(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // bind(2) gives the file the mode of the socket, so no other user can connect at any time.
        let socket = File::from(OwnedFd::from(socket));
        socket.set_permissions(Permissions::from_mode(0o600))?;
        let socket = Socket::from(OwnedFd::from(socket));
        socket.bind(&SockAddr::unix(path)?)?;
        let found = fs::symlink_metadata(path)?;
        let file = (found.dev(), found.ino());
        socket.listen(BACKLOG)?;
        Ok(Self {
            listener: OwnedFd::from(socket).into(),
            path: path.to_owned(),
            file,
        })
    }

    /// Accepts the next connection of this user or of root. Connections of other users are closed.
    ///
    /// # Errors
    /// The error of `accept`.
    pub fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept()?;
            if peer::of(&stream)?.is_trusted() {
                return Ok(stream);
            }
        }
    }
}

impl LocalListener {
    /// Removes the file of the socket, which no client finds any more.
    pub fn remove_file(&self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Why a Unix socket cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No process accepts connections there.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A process of another user accepts them.
    #[error(
        "a process of user {0} listens there, and not of this user or root: nothing was sent to it"
    )]
    OtherUser(u32),
}

/// Connects to a socket of this user or of root; returns the listening process too.
///
/// # Errors
/// When no process accepts the connection in time, or the process belongs to another user.
pub fn connect(path: &Path) -> Result<(UnixStream, Peer), LocalError> {
    connect_within(path, BACKLOG_TIMEOUT)
}

/// The same as [`connect`], with another time limit for a place in the backlog.
///
/// # Errors
/// As [`connect`].
pub fn connect_within(path: &Path, time: Duration) -> Result<(UnixStream, Peer), LocalError> {
    let deadline = Instant::now() + time;
    let stream = loop {
        match connect_at_once(path) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                std::thread::sleep(BACKLOG_INTERVAL);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let text = format!("it accepted no connection for {} seconds", time.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
            }
            result => break result?,
        }
    };
    let peer = peer::of(&stream)?;
    if !peer.is_trusted() {
        return Err(LocalError::OtherUser(peer.user));
    }
    stream.set_nonblocking(false)?;
    Ok((stream, peer))
}

/// Connects without waiting for a place in the backlog, which another process may keep full.
fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Frees a path: removes a socket file that no process listens on, and nothing else.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?.file_type(),
    };
    if !found.is_socket() {
        let text = format!(
            "it is {} and no socket, so it is left as it is: name another path",
            kind(found)
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match connect_at_once(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Any other error of connect means that a process has the socket open.
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "a server listens there already",
        )),
    }
}

/// The kind of a file, for an error message.
pub fn kind(found: fs::FileType) -> &'static str {
    match found {
        it if it.is_file() => "a regular file",
        it if it.is_dir() => "a folder",
        it if it.is_symlink() => "a symbolic link",
        it if it.is_fifo() => "a FIFO",
        it if it.is_char_device() => "a character device",
        it if it.is_block_device() => "a block device",
        it if it.is_socket() => "a socket",
        _ => "no file of a known kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_socket_replaces_only_a_socket_that_no_process_listens_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let refused = |kind: &str| {
            let error = LocalListener::bind(&path).unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::AlreadyExists && error.to_string().contains(kind)
            );
        };
        fs::write(&path, "kept").unwrap();
        refused("a regular file");
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        fs::remove_file(&path).unwrap();
        symlink(folder.path().join("elsewhere"), &path).unwrap();
        refused("a symbolic link");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("a folder");
        fs::remove_dir(&path).unwrap();
        // A listener of the standard library leaves its file behind.
        drop(UnixListener::bind(&path).unwrap());
        let listener = LocalListener::bind(&path).unwrap();
        assert_eq!(
            LocalListener::bind(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let (_stream, peer) = connect(&path).unwrap();
        assert_eq!(
            peer,
            Peer {
                process: std::process::id(),
                user: os::user()
            }
        );
        listener.accept().unwrap();
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_listener_removes_only_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = LocalListener::bind(&path).unwrap();
        fs::rename(&path, folder.path().join("first")).unwrap();
        let second = LocalListener::bind(&path).unwrap();
        drop(listener);
        assert!(connect(&path).is_ok());
        drop(second);
    }

    /// A blocking connect would wait for the backlog without limit.
    #[test]
    fn a_listener_with_a_full_backlog_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = connect_at_once(&path) {
            waiting.push(stream);
        }
        assert_eq!(
            LocalListener::bind(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        let error = connect(&path).unwrap_err();
        assert!(
            matches!(&error, LocalError::Io(error) if error.kind() == io::ErrorKind::TimedOut),
            "{error}"
        );
    }
}
