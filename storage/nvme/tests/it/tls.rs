//! TLS over real sockets: a host with a PSK connects under its own name, and no other host connects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nvme::auth::{Credentials, Hash};
use nvme::host::{Client, HostError, Options, Tls, discover};
use nvme::serve::{BackendConfig, Bytes, PortConfig, Server, SubsystemConfig, Tuning};
use nvme::tls::{Derivation, TlsKey, Version};
use wire::nvme::Status;

use crate::live::{config, namespace, options, read, write};
use crate::support::{SUBSYSTEM, host_name, nqn, pattern};

const OTHER: &str = "nqn.2024-01.org.example:other";

fn key(byte: u8, hash: Option<Hash>) -> TlsKey {
    TlsKey::new(
        &vec![byte; if hash == Some(Hash::Sha384) { 48 } else { 32 }],
        hash,
    )
    .unwrap()
}

/// Hosts 1 and 2 have PSKs, with SHA-256 and SHA-384; returns a port without and one with TLS.
fn start() -> (Server, SocketAddr, SocketAddr) {
    let mut config = config(vec![namespace(1, BackendConfig::Memory(Bytes(4 << 20)))]);
    let tls = PortConfig {
        tls: true,
        ..config.ports[0].clone()
    };
    config.ports.push(tls);
    config.subsystems.push(SubsystemConfig::new(nqn(OTHER)));
    for (number, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
        let credentials = Credentials {
            secrets: None,
            tls_key: Some(key(number, Some(hash))),
        };
        config.subsystems[0]
            .credentials
            .insert(nqn(&host_name(number)), credentials);
    }
    let text = config.to_text();
    assert!(
        text.contains("tls = true") && text.contains("tls-key = \"NVMeTLSkey-1:02:"),
        "{text}"
    );
    let server = Server::start(config, None, Tuning::default()).unwrap();
    let addresses = server.addresses();
    (server, addresses[0], addresses[1])
}

fn with(number: u8, key: TlsKey, version: Version) -> Options {
    derived(number, key, version, Derivation::Rfc8446)
}

fn derived(number: u8, key: TlsKey, version: Version, derivation: Derivation) -> Options {
    Options {
        tls: Some(Tls {
            key,
            version,
            derivation,
        }),
        ..options(number, false)
    }
}

#[test]
fn hosts_with_keys_use_their_disk_in_tls() {
    let (_server, plain, tls_port) = start();
    let data = pattern(5, 1 << 20);
    for (number, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
        let versions = [Version::Names, Version::Digest];
        for (version, derivation) in versions
            .into_iter()
            .flat_map(|version| Derivation::ALL.map(|it| (version, it)))
        {
            let options = derived(number, key(number, Some(hash)), version, derivation);
            let mut client = Client::connect(tls_port, &nqn(SUBSYSTEM), &options).unwrap();
            let mut queues = client.queues(2, 8).unwrap();
            write(&mut queues[0], 1, 3, &data);
            assert!(read(&mut queues[1], 1, 3, data.len()).unwrap() == data);
            // The same PSK is used for the discovery service, whose log shows which ports require TLS.
            let found = discover(tls_port, &options).unwrap();
            let ports: Vec<_> = found
                .iter()
                .map(|it| (it.service.parse().unwrap(), it.tls))
                .collect();
            assert!(
                ports.contains(&(tls_port.port(), true)) && ports.contains(&(plain.port(), false)),
                "{found:?}"
            );
        }
    }
}

#[test]
fn connections_without_a_known_key_are_refused() {
    let (server, plain, tls_port) = start();
    let own = || key(1, Some(Hash::Sha256));
    let refused = |options: &Options, address, subsystem: &str| {
        Client::connect(address, &nqn(subsystem), options).unwrap_err()
    };
    for (number, key) in [
        (1, key(9, Some(Hash::Sha256))),
        (1, key(1, None)),
        (3, own()),
        (2, own()),
    ] {
        let error = refused(&with(number, key, Version::Digest), tls_port, SUBSYSTEM);
        assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    }
    // Known names, with another PSK under the same identity.
    let error = refused(
        &with(1, key(9, Some(Hash::Sha256)), Version::Names),
        tls_port,
        SUBSYSTEM,
    );
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    // A PSK is valid for one subsystem. A host that has one is refused on a port without TLS.
    let error = refused(&with(1, own(), Version::Digest), tls_port, OTHER);
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    match refused(&options(1, false), plain, SUBSYSTEM) {
        HostError::Status { status, .. } => {
            assert_eq!(status, Status::CONNECT_INVALID_HOST.permanent())
        }
        error => panic!("{error:?}"),
    }
    let shown = |number| discover(plain, &options(number, false)).unwrap();
    assert!(shown(1).iter().any(|it| it.subsystem == SUBSYSTEM));
    assert!(
        !shown(3).iter().any(|it| it.subsystem == SUBSYSTEM),
        "it may not come"
    );
    // A connection without TLS is refused on the port.
    assert!(Client::connect(tls_port, &nqn(SUBSYSTEM), &options(1, false)).is_err());
    let mut stream = TcpStream::connect(tls_port).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    assert!(
        server.shared().ended_so_far(nvme::serve::End::TlsHandshake) >= 7,
        "each was counted"
    );
    // Hosts with a valid PSK still connect.
    Client::connect(tls_port, &nqn(SUBSYSTEM), &with(1, own(), Version::Digest)).unwrap();
}

/// PSKs of both derivations have one identity if the configured PSK is used as it is, and in version 0.
#[test]
fn a_key_that_is_used_as_it_is_has_one_identity_in_both_derivations() {
    let mut config = config(vec![namespace(1, BackendConfig::Memory(Bytes(4 << 20)))]);
    config.ports[0].tls = true;
    for (number, length) in [(1, 32), (2, 48)] {
        let tls_key = Some(TlsKey::new(&vec![number; length], None).unwrap());
        let credentials = Credentials {
            secrets: None,
            tls_key,
        };
        config.subsystems[0]
            .credentials
            .insert(nqn(&host_name(number)), credentials);
    }
    let server = Server::start(config, None, Tuning::default()).unwrap();
    let address = server.addresses()[0];
    for (number, length) in [(1, 32), (2, 48)] {
        let key = |byte: u8| TlsKey::new(&vec![byte; length], None).unwrap();
        for version in [Version::Names, Version::Digest] {
            let (host, subsystem) = (nqn(&host_name(number)), nqn(SUBSYSTEM));
            let identity = |derivation| {
                key(number)
                    .psk(&host, &subsystem, version, derivation)
                    .unwrap()
                    .identity
            };
            assert_eq!(identity(Derivation::Rfc8446), identity(Derivation::Compat));
            for derivation in Derivation::ALL {
                let options = derived(number, key(number), version, derivation);
                Client::connect(address, &subsystem, &options).unwrap();
                let wrong = derived(number, key(9), version, derivation);
                let error = Client::connect(address, &subsystem, &wrong).unwrap_err();
                assert!(matches!(error, HostError::Tls(_)), "{error:?}");
            }
        }
    }
}

/// What a host hears of its refusal: the alerts of RFC 8446, 6.2.
#[test]
fn a_host_hears_whether_its_identity_or_its_key_is_wrong() {
    let (_server, _, tls_port) = start();
    let refused = |key: TlsKey, version: Version| {
        let options = with(1, key, version);
        let error = Client::connect(tls_port, &nqn(SUBSYSTEM), &options).unwrap_err();
        let HostError::Tls(error) = error else {
            panic!("{error:?}")
        };
        format!("{error:?}")
    };
    let other = || key(9, Some(Hash::Sha256));
    let unknown = refused(other(), Version::Digest);
    assert!(unknown.contains("unknown psk identity"), "{unknown}");
    let wrong = refused(other(), Version::Names);
    assert!(wrong.contains("decrypt error"), "{wrong}");
}
