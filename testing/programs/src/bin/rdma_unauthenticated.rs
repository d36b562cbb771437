//! What hosts of several addresses that have not authenticated can make a server of NVMe/RDMA hold, at each
//! step of their connections, and that they keep no other host out.
//!
//! `rockery run -- rdma_unauthenticated HALF-OPEN ADDRESS...`; hosts and target are in this process, and the
//! interface `lo` has the addresses. HALF-OPEN is the program that sends REQs and no RTU.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command as Program, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nvme::auth::{Credentials, Secret, Secrets};
use nvme::host::{Client, Options, Transport};
use nvme::limits::{
    ADMIN_ENTRIES, AUTHENTICATION_BYTES_MAX, DEPTH_BEFORE_TRUST, HALF_OPEN_MAX, QUEUE_ENTRIES_MAX,
};
use nvme::serve::{
    BackendConfig, Bytes, Config, End, NamespaceConfig, PortConfig, Server, SubsystemConfig,
    TransportConfig, Tuning,
};
use programs::rdma_queue::{MEMORY, NEW_CONTROLLER, RdmaQueue, TIMEOUT, host_name};
use programs::storage::NQN;
use wire::nvme::fabrics::DISCOVERY_NQN;
use wire::nvme::{Admin, Command, Fabrics, Sgl, auth, property};

/// The memory of all unauthenticated hosts.
const LIMIT: usize = 4 << 20;
/// Connections of the attackers: several times as many as the limit allows.
const CONNECTIONS: usize = 120;
const NVME: u16 = 4420;
/// The number of the host that has the secret.
const HONEST: u8 = 1;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn secrets() -> Result<Secrets, String> {
    Ok(Secrets {
        secret: Secret::new(&[7; 32], None).map_err(text)?,
        controller_secret: None,
        group: None,
    })
}

/// A step at which attackers stop.
struct Step {
    name: &'static str,
    /// Entries of their queues, and its number.
    queue: (u16, u16),
    go_so_far: fn(&mut RdmaQueue) -> Result<(), String>,
}

const STEPS: [Step; 8] = [
    Step {
        name: "RTU without Connect",
        queue: (0, QUEUE_ENTRIES_MAX),
        go_so_far: |_| Ok(()),
    },
    Step {
        name: "RTU of a deep I/O queue",
        queue: (1, QUEUE_ENTRIES_MAX),
        go_so_far: |_| Ok(()),
    },
    Step {
        name: "a command before Connect, whose response finds no receive",
        queue: (0, ADMIN_ENTRIES),
        go_so_far: |queue| {
            let identify = Command {
                opcode: Admin::Identify as u8,
                cdw10: 1,
                ..Command::default()
            };
            queue.send(identify, queue.keyed(0..4096)).map(drop)
        },
    },
    Step {
        name: "Connect without authentication",
        queue: (0, ADMIN_ENTRIES),
        go_so_far: |queue| connect(queue, NQN),
    },
    Step {
        name: "Connect whose response finds no receive",
        queue: (0, ADMIN_ENTRIES),
        go_so_far: |queue| queue.send_connect(NQN, HONEST, ADMIN_ENTRIES).map(drop),
    },
    Step {
        name: "Authentication Send whose data are not fetched",
        queue: (0, ADMIN_ENTRIES),
        go_so_far: |queue| {
            connect(queue, NQN)?;
            let length = AUTHENTICATION_BYTES_MAX;
            let command = auth::command(Fabrics::AuthenticationSend, 0, length);
            // The first fails, and its response is ahead of the READs of the others.
            queue.send(command, Sgl::Address { address: 0, length })?;
            (1..DEPTH_BEFORE_TRUST).try_for_each(|_| {
                queue
                    .send(command, queue.keyed(0..length as usize))
                    .map(drop)
            })
        },
    },
    Step {
        name: "discovery",
        queue: (0, QUEUE_ENTRIES_MAX),
        go_so_far: |queue| connect(queue, DISCOVERY_NQN),
    },
    Step {
        name: "discovery with long log pages",
        queue: (0, ADMIN_ENTRIES),
        go_so_far: |queue| {
            connect(queue, DISCOVERY_NQN)?;
            queue.configure(property::configuration::ENABLE | property::configuration::ENTRIES)?;
            let dwords = (MEMORY / 4 - 1) as u32;
            let page = Command {
                opcode: Admin::GetLogPage as u8,
                cdw10: 0x70 | dwords << 16,
                cdw11: dwords >> 16,
                ..Command::default()
            };
            (0..ADMIN_ENTRIES - 2)
                .try_for_each(|_| queue.send(page, queue.keyed(0..MEMORY)).map(drop))
        },
    },
];

fn connect(queue: &mut RdmaQueue, subsystem: &str) -> Result<(), String> {
    queue
        .connect(subsystem, HONEST, 0, NEW_CONTROLLER, ADMIN_ENTRIES)
        .map(drop)
}

/// A server at these addresses, on which the one host needs a secret.
fn start(addresses: &[SocketAddr]) -> Result<Server, String> {
    let port = |address: &SocketAddr| PortConfig {
        id: None,
        transport: TransportConfig::Rdma,
        tls: false,
        shared_receives: None,
        address: *address,
        subsystems: None,
    };
    let name: nvme::Nqn = NQN.parse().map_err(text)?;
    let memory = BackendConfig::Memory(Bytes(1 << 20));
    let subsystem = SubsystemConfig {
        namespaces: vec![NamespaceConfig::new(1, memory)],
        ..SubsystemConfig::new(name.clone())
    };
    let config = Config {
        subsystems: vec![subsystem],
        ports: addresses.iter().map(port).collect(),
        referrals: Vec::new(),
    };
    let tuning = Tuning {
        unauthenticated_bytes: LIMIT,
        // Connections end because others need their memory, not because of their time.
        connect_timeout: 4 * TIMEOUT,
        stall_timeout: 4 * TIMEOUT,
        ..Tuning::default()
    };
    let server = Server::start(config, None, tuning).map_err(text)?;
    let credentials = Credentials {
        secrets: Some(secrets()?),
        tls_key: None,
    };
    let host = host_name(HONEST).parse().map_err(text)?;
    server
        .set_credentials(&name, host, Some(credentials))
        .map_err(text)?;
    Ok(server)
}

/// The host that has the secret connects, with an I/O queue. A refused connection is repeated, as hosts do,
/// while displaced connections end.
fn honest_host(address: SocketAddr) -> Result<(), String> {
    let host: nvme::Nqn = host_name(HONEST).parse().map_err(text)?;
    let options = Options {
        transport: Transport::Rdma,
        host_id: host.to_host_id(),
        host,
        digests: Default::default(),
        congestion: None,
        secrets: Some(secrets()?),
        tls: None,
        keep_alive_timeout: nvme::host::KEEP_ALIVE_TIMEOUT,
    };
    let name = NQN.parse().map_err(text)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match Client::connect(address, &name, &options) {
            Ok(mut client) => {
                client.queues(1, 8).map_err(text)?;
                return client.namespace(1).map(drop).map_err(text);
            }
            Err(error) if Instant::now() > deadline => {
                return Err(format!("the host cannot connect: {error}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether the server holds no more than it may.
fn is_within_limits(server: &Server) -> Result<(), String> {
    let shared = server.shared();
    let (held, data) = (shared.unauthenticated_bytes(), shared.data_bytes());
    // One more for each listener whose half-open connections are those of others.
    let half_open_max = HALF_OPEN_MAX + server.addresses().len();
    let half_open = shared.half_open();
    match held <= LIMIT && data <= LIMIT && half_open <= half_open_max {
        true => Ok(()),
        false => Err(format!(
            "{held} bytes, {data} of data, {half_open} half-open connections"
        )),
    }
}

fn attempt(step: &Step, ours: SocketAddr, attackers: &[SocketAddr]) -> Result<usize, String> {
    let server = start(&[&[ours], attackers].concat())?;
    let (queue_id, entries) = step.queue;
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        let address = attackers[number % attackers.len()];
        // The server may refuse the connection, or end it at any time.
        if let Ok(mut queue) = RdmaQueue::open(address, queue_id, NEW_CONTROLLER, entries, 0) {
            _ = (step.go_so_far)(&mut queue);
            held.push(queue);
        }
        is_within_limits(&server)?;
    }
    let refused = [End::Displaced, End::Full];
    let has_refused = || {
        refused
            .iter()
            .any(|end| server.shared().ended_so_far(*end) > 0)
    };
    let deadline = Instant::now() + TIMEOUT;
    while !has_refused() {
        is_within_limits(&server)?;
        if Instant::now() > deadline {
            return Err("no connection gave way".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    honest_host(ours)?;
    is_within_limits(&server)?;
    Ok(held.len())
}

/// A process that ends with this.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// REQs without RTU of each address.
fn requests_without_rtu(
    program: &str,
    ours: SocketAddr,
    attackers: &[SocketAddr],
) -> Result<(), String> {
    let server = start(&[&[ours], attackers].concat())?;
    let mut started = Vec::new();
    for address in attackers {
        let (ip, port) = (address.ip().to_string(), NVME.to_string());
        let mut program = Program::new(program);
        program.args([ip, port, HALF_OPEN_MAX.to_string()]);
        let child = program.stdout(Stdio::null()).spawn().map_err(text)?;
        started.push(Owned(child));
    }
    let deadline = Instant::now() + TIMEOUT;
    while server.shared().half_open() < HALF_OPEN_MAX {
        is_within_limits(&server)?;
        if Instant::now() > deadline {
            let count = server.shared().half_open();
            return Err(format!("{count} half-open connections are no attack"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..10 {
        honest_host(ours)?;
        is_within_limits(&server)?;
    }
    Ok(())
}

fn run(half_open: &str, attackers: &[SocketAddr]) -> Result<(), String> {
    let ours = SocketAddr::from(([127, 0, 0, 1], NVME));
    requests_without_rtu(half_open, ours, attackers)
        .map_err(|error| format!("REQ without RTU: {error}"))?;
    println!("REQ without RTU: within the limits; a host connects");
    for step in &STEPS {
        let made = attempt(step, ours, attackers);
        let made = made.map_err(|error| format!("{}: {error}", step.name))?;
        if made < CONNECTIONS / 2 {
            return Err(format!("{}: {made} connections are no attack", step.name));
        }
        println!("{}: within the limits; a host connects", step.name);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((half_open, addresses)) = arguments.split_first() else {
        return ExitCode::from(2);
    };
    let attackers: Result<Vec<SocketAddr>, _> = addresses
        .iter()
        .map(|address| address.parse().map(|ip: IpAddr| (ip, NVME).into()))
        .collect();
    let Some(attackers) = attackers.ok().filter(|all| !all.is_empty()) else {
        return ExitCode::from(2);
    };
    match run(half_open, &attackers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
