//! Files below namespaces that are truncated, shared or of another kind; state files that cannot be written.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use buffer::Buffer;
use nvme::host::{Client, HostError, Payload, Queue, transfer};
use nvme::serve::{
    BackendConfig, Bytes, Command, Config, NamespaceConfig, ServeError, Server, SubsystemConfig,
    Tuning,
};
use server::control::{Control, ControlError, ask};
use wire::nvme::{Io, Status};

use crate::live::{namespace, options, read, start, write};
use crate::support::{SUBSYSTEM, nqn, pattern};

const BLOCK: usize = 4096;
const SIZE: u64 = 4 << 20;
const OTHER: &str = "nqn.2024-01.org.example:other";

fn file(id: u32, path: &Path) -> NamespaceConfig {
    let size = Some(Bytes(SIZE));
    namespace(
        id,
        BackendConfig::File {
            path: path.to_owned(),
            size,
            direct: true,
        },
    )
}

fn status(result: Result<impl Sized, HostError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status.plain(),
        Err(error) => panic!("{error}"),
    }
}

fn call(queue: &mut Queue, io: Io, start: u64, blocks: u32) -> Status {
    let payload = match io {
        Io::Write | Io::Compare => Payload::Out(Buffer::zeroed(BLOCK), BLOCK),
        _ => Payload::None,
    };
    status(queue.call("a command", transfer(io, 1, start, blocks), payload))
}

/// Every command that needs the missing data fails, and no write turns them into zeros.
#[test]
fn a_truncated_file_is_an_error_and_never_zeros() {
    for direct in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let backend = BackendConfig::File {
            path: path.clone(),
            size: Some(Bytes(SIZE)),
            direct,
        };
        let (server, address) = start(vec![namespace(1, backend)], None);
        let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
        let mut queue = client.queues(1, 8).unwrap().remove(0);
        write(&mut queue, 1, 0, &pattern(1, 1 << 20));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(64 << 10).unwrap();
        std::thread::sleep(Duration::from_millis(2));

        assert_eq!(
            read(&mut queue, 1, 0, BLOCK).unwrap(),
            pattern(1, 1 << 20)[..BLOCK]
        );
        // 1 MiB that begins before the end of the file and ends behind it.
        for (start, length) in [(16, BLOCK), (1000, BLOCK), (0, 1 << 20)] {
            assert_eq!(
                status(read(&mut queue, 1, start, length)),
                Status::UNRECOVERED_READ,
                "{start}"
            );
        }
        assert_eq!(
            call(&mut queue, Io::Compare, 1000, 1),
            Status::UNRECOVERED_READ
        );
        assert_eq!(
            call(&mut queue, Io::Verify, 1000, 1),
            Status::UNRECOVERED_READ
        );
        for io in [Io::Write, Io::WriteZeroes, Io::Flush] {
            assert_eq!(call(&mut queue, io, 1023, 1), Status::WRITE_FAULT, "{io:?}");
        }
        assert_eq!(call(&mut queue, Io::Write, 0, 1), Status::WRITE_FAULT);
        assert_eq!(
            file.metadata().unwrap().len(),
            64 << 10,
            "nothing was written behind its end"
        );

        // Restoring the size is a decision of the administrator.
        server
            .resize_namespace(&nqn(SUBSYSTEM), 1, Bytes(SIZE))
            .unwrap();
        assert_eq!(call(&mut queue, Io::Write, 1023, 1), Status::SUCCESS);
        assert_eq!(call(&mut queue, Io::Flush, 0, 1), Status::SUCCESS);
        assert_eq!(read(&mut queue, 1, 1000, BLOCK).unwrap(), vec![0; BLOCK]);
    }
}

/// A symbolic or hard link names the same file.
#[test]
fn a_file_is_one_namespace_unless_all_only_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (server, _) = start(vec![file(1, &path("disk"))], None);
    std::fs::hard_link(path("disk"), path("hard")).unwrap();
    std::os::unix::fs::symlink(path("disk"), path("soft")).unwrap();
    server
        .add_subsystem(SubsystemConfig::new(nqn(OTHER)))
        .unwrap();
    for (name, subsystem) in [("disk", SUBSYSTEM), ("hard", OTHER), ("soft", OTHER)] {
        for read_only in [false, true] {
            let again = NamespaceConfig {
                read_only,
                ..file(2, &path(name))
            };
            let error = server.add_namespace(&nqn(subsystem), again).unwrap_err();
            assert!(
                matches!(&error, ServeError::Shared { nsid: 1, .. }),
                "{error}"
            );
            assert!(error.to_string().contains(SUBSYSTEM), "{error}");
        }
    }
    server.remove_namespace(&nqn(SUBSYSTEM), 1).unwrap();
    for (subsystem, name) in [(SUBSYSTEM, "disk"), (OTHER, "hard")] {
        let shared = NamespaceConfig {
            read_only: true,
            ..file(2, &path(name))
        };
        server.add_namespace(&nqn(subsystem), shared).unwrap();
    }
    assert!(
        server
            .add_namespace(&nqn(OTHER), file(3, &path("soft")))
            .is_err()
    );
}

/// All commands that change a server, while its state file cannot be written.
#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let state = path("state.toml");
    let (server, _) = start(vec![file(1, &path("one"))], Some(&state));
    let (name, host) = (nqn(SUBSYSTEM), nqn("nqn.2014-08.org.nvmexpress:uuid:1"));
    let kept = std::fs::read(&state).unwrap();
    let (before, addresses) = (server.config(), server.addresses());
    // A directory that is not empty blocks the path of the temporary file.
    std::fs::create_dir_all(path("state.toml.new/in the way")).unwrap();

    let port = before.ports[0].clone();
    let results = [
        server.add_namespace(&name, file(2, &path("two"))).map(drop),
        server.remove_namespace(&name, 1),
        server.resize_namespace(&name, 1, Bytes(2 * SIZE)).map(drop),
        server.add_subsystem(SubsystemConfig::new(nqn(OTHER))),
        server.remove_subsystem(&name),
        server.set_hosts(&name, Some([host.clone()].into())),
        server.set_credentials(
            &name,
            host,
            Some(nvme::auth::Credentials {
                secrets: None,
                tls_key: None,
            }),
        ),
        server
            .add_port(nvme::serve::PortConfig { id: None, ..port })
            .map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert!(
            matches!(&result, Err(ServeError::Config(_))),
            "{number}: {result:?}"
        );
    }
    assert_eq!((server.config(), server.addresses()), (before, addresses));
    assert_eq!(std::fs::read(&state).unwrap(), kept);
    let subsystems = server.target().subsystems();
    let found: Vec<_> = subsystems
        .iter()
        .flat_map(|it| it.namespaces())
        .map(|it| it.bytes())
        .collect();
    assert_eq!((subsystems.len(), found), (1, vec![SIZE]));
    assert_eq!(subsystems[0].hosts(), nvme::controller::Hosts::Any);
    assert_eq!(path("one").metadata().unwrap().len(), SIZE);
    drop((server, subsystems));

    // The state is unchanged, so the next start need not write it.
    let server = Server::start(Config::default(), Some(state.clone()), Tuning::default()).unwrap();
    std::fs::remove_dir_all(path("state.toml.new")).unwrap();
    server.add_namespace(&name, file(2, &path("two"))).unwrap();
    assert_ne!(std::fs::read(&state).unwrap(), kept);
}

#[test]
fn a_change_that_fails_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let state = path("state.toml");
    let (server, _) = start(vec![file(1, &path("one"))], Some(&state));
    let name = nqn(SUBSYSTEM);
    let kept = std::fs::read(&state).unwrap();
    assert!(
        server
            .add_namespace(
                &name,
                NamespaceConfig {
                    group: 0,
                    ..file(3, &path("three"))
                }
            )
            .is_err()
    );
    assert!(server.set_hosts(&nqn(OTHER), None).is_err());
    assert_eq!(std::fs::read(&state).unwrap(), kept);
}

/// Opening a FIFO waits for its other end: adding one is an error, and the control socket keeps answering.
#[test]
fn a_fifo_does_not_stop_the_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (server, _) = start(vec![file(1, &path("one"))], None);
    let control = Control::listen(&path("control")).unwrap();
    let server = Arc::new(server);
    std::thread::spawn(move || server.serve_control(&control));
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path("fifo"))
            .status()
            .unwrap()
            .success()
    );
    for read_only in [false, true] {
        let namespace = NamespaceConfig {
            read_only,
            ..file(2, &path("fifo"))
        };
        let added = ask(
            &path("control"),
            &Command::AddNamespace {
                nqn: nqn(SUBSYSTEM),
                namespace,
            },
        );
        assert!(
            matches!(&added, Err(ControlError::Refused(why)) if why.contains("a FIFO")),
            "{added:?}"
        );
    }
    ask(&path("control"), &Command::Status).unwrap();
}

#[test]
fn the_control_socket_replaces_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    std::fs::write(&path, "precious").unwrap();
    assert!(
        Control::listen(&path)
            .unwrap_err()
            .to_string()
            .contains("a regular file")
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    Control::listen(&path).unwrap();
}
