//! TLS over real sockets: who has the key comes in under its own name, and nobody else.

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

/// Hosts 1 and 2 have keys, by SHA-256 and SHA-384; returns a plain port and one with TLS.
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
    let (_server, plain, sealed) = start();
    let data = pattern(5, 1 << 20);
    for (number, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
        for version in [Version::Names, Version::Digest] {
            let options = with(number, key(number, Some(hash)), version);
            let mut client = Client::connect(sealed, &nqn(SUBSYSTEM), &options).unwrap();
            let mut queues = client.queues(2, 8).unwrap();
            write(&mut queues[0], 1, 3, &data);
            assert!(read(&mut queues[1], 1, 3, data.len()).unwrap() == data);
            // The same key serves for discovery, where the port says what it wants.
            let found = discover(sealed, &options).unwrap();
            let ports: Vec<_> = found.iter().map(|it| (it.service.parse().unwrap(), it.tls)).collect();
            assert!(
                ports.contains(&(sealed.port(), true)) && ports.contains(&(plain.port(), false)),
                "{found:?}"
            );
        }
    }
}

#[test]
fn nobody_else_comes_in() {
    let (server, plain, sealed) = start();
    let own = || key(1, Some(Hash::Sha256));
    let refused = |options: &Options, address, subsystem: &str| {
        Client::connect(address, &nqn(subsystem), options).unwrap_err()
    };
    for (number, key) in [(1, key(9, Some(Hash::Sha256))), (1, key(1, None)), (3, own()), (2, own())] {
        let error = refused(&with(number, key, Version::Digest), sealed, SUBSYSTEM);
        assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    }
    // Known names, another key under the same identity.
    let error = refused(&with(1, key(9, Some(Hash::Sha256)), Version::Names), sealed, SUBSYSTEM);
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    // A key is for one subsystem, and for those that want it in TLS only.
    let error = refused(&with(1, own(), Version::Digest), sealed, OTHER);
    assert!(matches!(error, HostError::Tls(_)), "{error:?}");
    match refused(&options(1, false), plain, SUBSYSTEM) {
        HostError::Status { status, .. } => assert_eq!(status, Status::CONNECT_INVALID_HOST.permanent()),
        error => panic!("{error:?}"),
    }
    let shown = |number| discover(plain, &options(number, false)).unwrap();
    assert!(shown(1).iter().any(|it| it.subsystem == SUBSYSTEM));
    assert!(!shown(3).iter().any(|it| it.subsystem == SUBSYSTEM), "it may not come");
    // Who says nothing of TLS is not understood.
    assert!(Client::connect(sealed, &nqn(SUBSYSTEM), &options(1, false)).is_err());
    let mut stream = TcpStream::connect(sealed).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    assert!(server.shared().ended_so_far(nvme::serve::End::Unsealed) >= 7, "each was counted");
    // And those that may still do.
    Client::connect(sealed, &nqn(SUBSYSTEM), &with(1, own(), Version::Digest)).unwrap();
}
