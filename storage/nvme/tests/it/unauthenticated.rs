//! What hosts that have not authenticated can make a server hold, at each step of their connections, and that
//! they keep no other host out.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nvme::auth::{Credentials, Secret, Secrets};
use nvme::host::{Client, Options};
use nvme::limits::AUTHENTICATION_BYTES_MAX;
use nvme::serve::{BackendConfig, Bytes, End, Server, Tuning};
use socket2::{Domain, Socket, Type};
use wire::nvme::fabrics::{Connect, ConnectData, DISCOVERY_NQN, Property};
use wire::nvme::tcp::{Digests, ENCODED_MAX, Header, Initialize};
use wire::nvme::{Admin, Command, Fabrics, Sgl, auth, property, text};

use crate::live::{config, namespace, options};
use crate::support::{SUBSYSTEM, host_name, nqn};

/// The memory of all unauthenticated hosts in these tests.
const LIMIT: usize = 4 << 20;
/// Connections of the attacker: several times as many as the limit allows.
const CONNECTIONS: usize = 200;

fn secrets() -> Secrets {
    Secrets {
        secret: Secret::new(&[7; 32], None).unwrap(),
        controller_secret: None,
        group: None,
    }
}

/// A server on which the one host needs a secret.
fn server() -> (Server, SocketAddr) {
    let config = config(vec![namespace(1, BackendConfig::Memory(Bytes(1 << 20)))]);
    let tuning = Tuning {
        unauthenticated_bytes: LIMIT,
        ..Tuning::default()
    };
    let server = Server::start(config, None, tuning).unwrap();
    let credentials = Credentials {
        secrets: Some(secrets()),
        tls_key: None,
    };
    server
        .set_credentials(&nqn(SUBSYSTEM), nqn(&host_name(1)), Some(credentials))
        .unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// A connection from 127.0.0.`from`, which the target takes for another machine.
fn from(from: u8, address: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, from], 0)).into())
        .unwrap();
    socket.connect(&address.into()).ok()?;
    Some(socket.into())
}

fn pdu(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut head = [0; ENCODED_MAX];
    let end = header.encode(0, Digests::default(), data.len(), 4, &mut head);
    [&head[..end], data].concat()
}

fn capsule(command: Command, data: &[u8]) -> Vec<u8> {
    let sgl = Sgl::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    pdu(&Header::Command(command.with_sgl(sgl)), data)
}

fn connect(subsystem: &str) -> Vec<u8> {
    let fields = Connect {
        format: 0,
        queue_id: 0,
        size: 1022,
        attributes: 0,
        keep_alive_ms: 0,
    };
    let (subsystem, host) = (text::zeroed(subsystem), text::zeroed(&host_name(1)));
    let data = ConnectData {
        host_id: [1; 16],
        controller_id: 0xffff,
        subsystem,
        host,
    };
    capsule(fields.to_command(0), &data.to_bytes())
}

/// Log pages and Identify of the largest transfer, as many as a deep queue takes.
fn long_pages() -> Vec<u8> {
    let value = u64::from(property::configuration::ENABLE | property::configuration::ENTRIES);
    let enable = Property {
        wide: false,
        offset: property::CONFIGURATION,
        value,
    };
    let enable = enable
        .to_command(Fabrics::PropertySet, 1)
        .with_sgl(Sgl::Transport { length: 0 });
    let mut bytes = pdu(&Header::Command(enable), &[]);
    for cid in 2..500 {
        const LENGTH: u32 = 1 << 20;
        let dwords = LENGTH / 4 - 1;
        let opcode = Admin::GetLogPage as u8;
        let (cdw10, cdw11) = (0x70 | dwords << 16, dwords >> 16);
        let command = Command {
            opcode,
            cid,
            cdw10,
            cdw11,
            ..Command::default()
        };
        bytes.extend(pdu(
            &Header::Command(command.with_sgl(Sgl::Transport { length: LENGTH })),
            &[],
        ));
    }
    bytes
}

/// Authentication Send of the longest message, whose data the host never sends, as often as it may.
fn authentications() -> Vec<u8> {
    let command = |cid| {
        let command = auth::command(Fabrics::AuthenticationSend, cid, AUTHENTICATION_BYTES_MAX);
        let sgl = Sgl::Transport {
            length: AUTHENTICATION_BYTES_MAX,
        };
        pdu(&Header::Command(command.with_sgl(sgl)), &[])
    };
    (1..4).flat_map(command).collect()
}

/// What a host sends before it stays silent, by step.
fn steps() -> Vec<(&'static str, Vec<u8>)> {
    let initialize = pdu(&Header::InitializeRequest(Initialize::default()), &[]);
    let after = |rest: Vec<u8>| [initialize.clone(), rest].concat();
    let whole = connect(SUBSYSTEM);
    vec![
        ("nothing", Vec::new()),
        ("a part of ICReq", initialize[..100].to_vec()),
        ("ICReq", initialize.clone()),
        (
            "a part of Connect",
            after(whole[..whole.len() - 1].to_vec()),
        ),
        ("Connect without authentication", after(whole.clone())),
        (
            "Authentication Send without data",
            after([whole, authentications()].concat()),
        ),
        ("discovery", after(connect(DISCOVERY_NQN))),
        (
            "discovery with long log pages",
            after([connect(DISCOVERY_NQN), long_pages()].concat()),
        ),
    ]
}

fn host(address: SocketAddr) -> Client {
    let with = Options {
        secrets: Some(secrets()),
        ..options(1, false)
    };
    let mut last = None;
    // A refused connection is repeated, as hosts do, while displaced connections end.
    for _ in 0..100 {
        match Client::connect(address, &nqn(SUBSYSTEM), &with) {
            Ok(client) => return client,
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the host cannot connect: {last:?}");
}

#[test]
fn hosts_at_every_step_hold_no_more_than_the_budget_and_keep_no_other_host_out() {
    for (step, bytes) in steps() {
        let (server, address) = server();
        let mut streams = Vec::new();
        for number in 0..CONNECTIONS {
            // Four addresses, none of which is that of the honest host.
            let Some(mut stream) = from(2 + number as u8 % 4, address) else {
                continue;
            };
            stream
                .set_write_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            // The server may close the connection, or not read all of it.
            _ = stream.write_all(&bytes);
            streams.push(stream);
            let held = server.shared().unauthenticated_bytes();
            assert!(
                held <= LIMIT,
                "{step}: {held} bytes after {number} connections"
            );
        }
        let displaced = || server.shared().ended_so_far(End::Displaced) > 0;
        let gave_way = (0..1200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            displaced()
        });
        assert!(gave_way, "{step}: no connection gave way");
        let mut client = host(address);
        client.queues(2, 8).unwrap();
        assert!(client.namespace(1).is_ok(), "{step}");
        for _ in 0..20 {
            streams.extend(from(2, address));
            client.keep_alive().unwrap();
        }
        let held = server.shared().unauthenticated_bytes();
        assert!(held <= LIMIT, "{step}: {held} bytes");
        assert!(
            server.shared().data_bytes() <= LIMIT,
            "{step}: {} bytes",
            server.shared().data_bytes()
        );
    }
}

#[test]
fn an_authenticated_host_holds_nothing_of_the_budget_for_others() {
    let (server, address) = server();
    let mut client = host(address);
    let mut queues = client.queues(2, 128).unwrap();
    assert!(queues.len() == 2 && client.namespace(1).is_ok());
    assert_eq!(server.shared().unauthenticated_bytes(), 0);
    let discovery = Client::connect(address, &nqn(DISCOVERY_NQN), &options(1, false)).unwrap();
    assert!(
        server.shared().unauthenticated_bytes() > 0,
        "discovery asks for no secret"
    );
    queues.clear();
    drop(discovery);
    let config = config(vec![namespace(1, BackendConfig::Memory(Bytes(1 << 20)))]);
    let open = Server::start(config, None, Tuning::default()).unwrap();
    let _discovery =
        Client::connect(open.addresses()[0], &nqn(DISCOVERY_NQN), &options(1, false)).unwrap();
    assert_eq!(
        open.shared().unauthenticated_bytes(),
        0,
        "this server asks no host for a secret"
    );
}
