//! TLS over real sockets: a host with a PSK connects under its own name, and no other host connects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nvme::auth::{Credentials, Hash};
use nvme::host::{Client, HostError, Options, Tls, discover};
use nvme::serve::{BackendConfig, Bytes, PortConfig, Server, SubsystemConfig, Tuning};
use nvme::tls::{TlsKey, Version};
use wire::nvme::Status;

use crate::live::{config, namespace, options, read, write};
use crate::support::{SUBSYSTEM, host_name, nqn, pattern};

const OTHER: &str = "nqn.2024-01.org.example:other";

fn key(byte: u8, hash: Option<Hash>) -> TlsKey {
    TlsKey::new(&vec![byte; if hash == Some(Hash::Sha384) { 48 } else { 32 }], hash).unwrap()
}

/// Hosts 1 and 2 have PSKs, with SHA-256 and SHA-384; returns a port without and one with TLS.
fn start() -> (Server, SocketAddr, SocketAddr) {
    let mut config = config(vec![namespace(1, BackendConfig::Memory(Bytes(4 << 20)))]);
    let tls = PortConfig { tls: true, ..config.ports[0].clone() };
    config.ports.push(tls);
    config.subsystems.push(SubsystemConfig::new(nqn(OTHER)));
    for (number, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
        let credentials = Credentials { secrets: None, tls_key: Some(key(number, Some(hash))) };
        config.subsystems[0].credentials.insert(nqn(&host_name(number)), credentials);
    }
    let text = config.to_text();
    assert!(text.contains("tls = true") && text.contains("tls-key = \"NVMeTLSkey-1:02:"), "{text}");
    let server = Server::start(config, None, Tuning::default()).unwrap();
    let addresses = server.addresses();
    (server, addresses[0], addresses[1])
}

fn with(number: u8, key: TlsKey, version: Version) -> Options {
    Options { tls: Some(Tls { key, version }), ..options(number, false) }
}

#[test]
fn hosts_with_keys_use_their_disk_in_tls() {
    let (_server, plain, tls_port) = start();
    let data = pattern(5, 1 << 20);
    for (number, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
        for version in [Version::Names, Version::Digest] {
            let options = with(number, key(number, Some(hash)), version);
            let mut client = Client::connect(tls_port, &nqn(SUBSYSTEM), &options).unwrap();
            let mut queues = client.queues(2, 8).unwrap();
            write(&mut queues[0], 1, 3, &data);
            assert!(read(&mut queues[1], 1, 3, data.len()).unwrap() == data);
            // The same PSK is used for the discovery service, whose log shows which ports require TLS.
            let found = discover(tls_port, &options).unwrap();
            let ports: Vec<_> = found.iter().map(|it| (it.service.parse().unwrap(), it.tls)).collect();
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
    for (number, key) in [(1, key(9, Some(Hash::Sha256))), (1, key(1, None)), (3, own()), (2, own())] {
        let error = refused(&with(number, key, Version::Digest), tls_port, SUBSYSTEM);
        assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    }
    // Known names, with another PSK under the same identity.
    let error = refused(&with(1, key(9, Some(Hash::Sha256)), Version::Names), tls_port, SUBSYSTEM);
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    // A PSK is valid for one subsystem. A host that has one is refused on a port without TLS.
    let error = refused(&with(1, own(), Version::Digest), tls_port, OTHER);
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    match refused(&options(1, false), plain, SUBSYSTEM) {
        HostError::Status { status, .. } => assert_eq!(status, Status::CONNECT_INVALID_HOST.permanent()),
        error => panic!("{error:?}"),
    }
    let shown = |number| discover(plain, &options(number, false)).unwrap();
    assert!(shown(1).iter().any(|it| it.subsystem == SUBSYSTEM));
    assert!(!shown(3).iter().any(|it| it.subsystem == SUBSYSTEM), "it may not come");
    // A connection without TLS is refused on the port.
    assert!(Client::connect(tls_port, &nqn(SUBSYSTEM), &options(1, false)).is_err());
    let mut stream = TcpStream::connect(tls_port).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    assert!(server.shared().ended_so_far(nvme::serve::End::TlsHandshake) >= 7, "each was counted");
    // Hosts with a valid PSK still connect.
    Client::connect(tls_port, &nqn(SUBSYSTEM), &with(1, own(), Version::Digest)).unwrap();
}
