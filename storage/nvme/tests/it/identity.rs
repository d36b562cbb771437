//! What tells disks apart: identifiers of servers on one machine and on several, after restarts, and of disks
//! that are meant to be one.

use std::net::SocketAddr;
use std::path::Path;

use nvme::Nqn;
use nvme::host::Client;
use nvme::identifier::{Nguid, Uuid};
use nvme::machine::MachineId;
use nvme::serve::{
    BackendConfig, Bytes, Config, NamespaceConfig, ServeError, Server, SubsystemConfig, Tuning,
    default_nqn,
};
use wire::nvme::fabrics::DISCOVERY_NQN;
use wire::nvme::text;

use crate::live::{config, namespace, options};
use crate::support::{SUBSYSTEM, nqn};

const SIZE: u64 = 1 << 20;

/// What a host sees of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    serial: String,
    /// UUID and NGUID of the first namespace.
    uuid: Uuid,
    nguid: Nguid,
}

fn seen(address: SocketAddr, name: &Nqn) -> (Seen, u16) {
    let mut client = Client::connect(address, name, &options(1, false)).unwrap();
    let identified = client.controller().identified;
    let serial = text::text_of(&identified.serial).unwrap().to_owned();
    let identifiers = client.identifiers(1).unwrap();
    let (uuid, nguid) = (identifiers.uuid.unwrap(), identifiers.nguid.unwrap());
    (
        Seen {
            serial,
            uuid,
            nguid,
        },
        client.id(),
    )
}

fn file(path: &Path) -> NamespaceConfig {
    namespace(
        1,
        BackendConfig::File {
            path: path.to_owned(),
            size: Some(Bytes(SIZE)),
            direct: true,
        },
    )
}

/// A server of one machine, and what a host sees there.
fn on(machine: u8, first: NamespaceConfig, state: Option<&Path>) -> (Server, Seen) {
    let machine = MachineId::from([machine; 16]);
    let state = state.map(Path::to_owned);
    let server = Server::start_on(machine, config(vec![first]), state, Tuning::default()).unwrap();
    let (seen, _) = seen(server.addresses()[0], &nqn(SUBSYSTEM));
    (server, seen)
}

fn assert_apart(one: &Seen, other: &Seen) {
    assert_ne!(one.nguid, other.nguid);
    assert_ne!(one.uuid, other.uuid);
}

#[test]
fn two_files_are_two_disks_and_one_file_is_one_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (server, first) = on(1, file(&path("a")), None);
    let (_other_server, other) = on(1, file(&path("b")), None);
    assert_apart(&first, &other);
    let (_other_machine, elsewhere) = on(2, file(&path("a")), None);
    assert_apart(&first, &elsewhere);
    assert_ne!(first.serial, elsewhere.serial);
    let (_same_disk, again) = on(1, file(&path("a")), None);
    assert_eq!(
        again, first,
        "two servers of one machine with one file are paths to one disk"
    );
    drop(server);
    assert_eq!(on(1, file(&path("a")), None).1, first, "after a restart");

    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([path("a"), path("copy")])
        .status();
    assert!(copied.unwrap().success());
    assert_apart(&on(1, file(&path("copy")), None).1, &first);
    let has_creation_time = std::fs::metadata(path("a")).unwrap().created().is_ok();
    std::fs::rename(path("a"), path("moved")).unwrap();
    let moved = on(1, file(&path("moved")), None).1;
    assert_eq!(moved == first, has_creation_time, "a renamed file");
}

#[test]
fn default_names_are_unique_to_the_storage() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| default_nqn(&file(&folder.path().join(name))).unwrap();
    assert_eq!(named("a"), named("a"));
    assert_ne!(named("a"), named("b"));
    let memory = namespace(1, BackendConfig::Memory(Bytes(SIZE)));
    assert_ne!(default_nqn(&memory).unwrap(), default_nqn(&memory).unwrap());
    let missing = NamespaceConfig::new(
        1,
        BackendConfig::File {
            path: folder.path().join("none"),
            size: None,
            direct: true,
        },
    );
    assert!(matches!(
        default_nqn(&missing),
        Err(ServeError::NoFile { .. })
    ));
}

/// The data of a disk in memory end with the server, so that the next one is another disk.
#[test]
fn a_disk_in_memory_is_another_one_after_each_start() {
    for backend in [
        BackendConfig::Memory(Bytes(SIZE)),
        BackendConfig::Null(Bytes(SIZE)),
    ] {
        let (first, second) = (
            on(1, namespace(1, backend.clone()), None).1,
            on(1, namespace(1, backend), None).1,
        );
        assert_apart(&first, &second);
        assert_eq!(first.serial, second.serial, "that of the subsystem");
    }
}

#[test]
fn servers_that_are_paths_to_one_disk_have_its_identifiers() {
    let folder = tempfile::tempdir().unwrap();
    let (uuid, nguid) = (Uuid::from([1; 16]), Nguid::from([2; 16]));
    let path = |name: &str| folder.path().join(name);
    for (uuid, nguid) in [
        (Some(uuid), None),
        (None, Some(nguid)),
        (Some(uuid), Some(nguid)),
    ] {
        let of = |machine, name| {
            on(
                machine,
                NamespaceConfig {
                    uuid,
                    nguid,
                    ..file(&path(name))
                },
                None,
            )
            .1
        };
        let (one, other) = (of(1, "a"), of(2, "b"));
        assert_eq!((one.uuid, one.nguid), (other.uuid, other.nguid));
        assert!(
            uuid.is_none_or(|uuid| one.uuid == uuid)
                && nguid.is_none_or(|nguid| one.nguid == nguid)
        );
    }
    let serial = Some("A1".parse().unwrap());
    let subsystem = SubsystemConfig {
        serial,
        ..config(vec![file(&path("a"))]).subsystems[0].clone()
    };
    let config = Config {
        subsystems: vec![subsystem],
        ..config(Vec::new())
    };
    let server = Server::start(config, None, Tuning::default()).unwrap();
    assert_eq!(seen(server.addresses()[0], &nqn(SUBSYSTEM)).0.serial, "A1");
}

#[test]
fn given_identifiers_are_kept_and_not_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let state = path("state.toml");
    let uuid = Some(Uuid::from([1; 16]));
    let (server, first) = on(
        1,
        NamespaceConfig {
            uuid,
            ..file(&path("a"))
        },
        Some(&state),
    );
    let twice = NamespaceConfig {
        id: 2,
        uuid,
        ..file(&path("b"))
    };
    let refused = server.add_namespace(&nqn(SUBSYSTEM), twice.clone());
    assert!(
        matches!(refused, Err(ServeError::Identifiers { nsid: 1, .. })),
        "{refused:?}"
    );
    server.remove_namespace(&nqn(SUBSYSTEM), 1).unwrap();
    server
        .add_namespace(&nqn(SUBSYSTEM), NamespaceConfig { id: 1, ..twice })
        .unwrap();
    drop(server);
    let server = Server::start(Config::default(), Some(state), Tuning::default()).unwrap();
    let found = seen(server.addresses()[0], &nqn(SUBSYSTEM)).0;
    assert_eq!((found.uuid, found.nguid), (first.uuid, first.nguid));
}

/// A host refuses a second path whose controller has the identifier of the first one's.
#[test]
fn controllers_of_two_servers_have_identifiers_of_their_own() {
    let begins = |_| {
        let (server, _) = on(1, namespace(1, BackendConfig::Null(Bytes(SIZE))), None);
        let (_, first) = seen(server.addresses()[0], &nqn(SUBSYSTEM));
        let (_, second) = seen(server.addresses()[0], &nqn(SUBSYSTEM));
        assert!((1..=0xffef).contains(&first) && first != second);
        first
    };
    let distinct: std::collections::BTreeSet<u16> = (0..4).map(begins).collect();
    assert!(
        distinct.len() > 1,
        "{distinct:?}: the first identifiers are random"
    );
}

#[test]
fn discovery_controllers_of_two_machines_have_two_serial_numbers() {
    let serial = |machine| {
        let (server, _) = on(
            machine,
            namespace(1, BackendConfig::Null(Bytes(SIZE))),
            None,
        );
        let name = DISCOVERY_NQN.parse().unwrap();
        let client = Client::connect(server.addresses()[0], &name, &options(1, false)).unwrap();
        text::text_of(&client.controller().identified.serial)
            .unwrap()
            .to_owned()
    };
    assert_eq!(serial(1), serial(1));
    assert_ne!(serial(1), serial(2));
}
