//! NVMe/RDMA hosts that post no receives for responses, and a target with little memory: how much the target
//! takes, whether another host is served meanwhile, and whether all memory returns. A device retries SENDs
//! for which there is no receive for ever, so that only the stall timer of the target ends these connections.
//!
//! `rockery run -- rdma_overload`; hosts and target are in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use buffer::Buffer;
use nvme::host::{Client, Options, Payload, Transport, transfer};
use nvme::serve::{
    BackendConfig, Bytes, Config, End, NamespaceConfig, PortConfig, Server, SubsystemConfig,
    TransportConfig, Tuning,
};
use programs::storage::{NQN, options};
use rdma::{Connection, Domain, Done, Sizes};
use wire::nvme::fabrics::{CONNECT_NO_FLOW_CONTROL, Connect, ConnectData};
use wire::nvme::rdma::Request;
use wire::nvme::{COMPLETION_SIZE, Command, Io, Sgl, text};

/// The budget of the target for data, in bytes.
const BUDGET: usize = 8 << 20;
/// Hosts that post no receives.
const HOSTS: u64 = 4;
/// Commands of each of them after the first, and their data in bytes.
const COMMANDS: u16 = 14;
const LENGTH: usize = 1 << 20;
const BLOCK: usize = 4096;
/// The memory that a queue may keep for requests that no completion has reported.
const UNREPORTED_BYTES: usize = 64 << 10;
const ENTRIES: u16 = 16;
/// How long the target may take for anything, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A target at two addresses, because it distinguishes hosts by address.
fn start() -> (Server, [SocketAddr; 2]) {
    let addresses = ["127.0.0.1:4420", "[::1]:4420"].map(|it| it.parse().expect("an address"));
    let port = |address| PortConfig {
        id: None,
        transport: TransportConfig::Rdma,
        tls: false,
        shared_receives: None,
        address,
        subsystems: None,
    };
    let backend = BackendConfig::Memory(Bytes(16 << 20));
    let namespace = NamespaceConfig::new(1, backend);
    let subsystem = SubsystemConfig {
        namespaces: vec![namespace],
        ..SubsystemConfig::new(NQN.parse().expect("a name"))
    };
    let ports = addresses.map(port).into();
    let config = Config {
        subsystems: vec![subsystem],
        ports,
        referrals: Vec::new(),
    };
    let tuning = Tuning {
        data_bytes: BUDGET,
        stall_timeout: Duration::from_secs(1),
        ..Tuning::default()
    };
    (
        Server::start(config, None, tuning).expect("it starts"),
        addresses,
    )
}

fn rdma_options() -> Options {
    Options {
        transport: Transport::Rdma,
        ..options()
    }
}

/// An I/O queue whose only receive was for the response to Connect, and its controller.
struct Deaf {
    _client: Client,
    connection: Connection,
    memory: Buffer,
}

impl Deaf {
    fn connect(address: SocketAddr) -> Self {
        let subsystem: nvme::Nqn = NQN.parse().expect("a name");
        let mut client =
            Client::connect(address, &subsystem, &rdma_options()).expect("a controller");
        client.grant(1).expect("a queue is granted");
        let (receive_size, send_size, controller_id) = (ENTRIES, ENTRIES - 1, client.id());
        let private = Request {
            format: 0,
            queue_id: 1,
            receive_size,
            send_size,
            controller_id,
        };
        let sizes = Sizes {
            send: u32::from(ENTRIES),
            receive: 1,
            reads: 0,
            rnr_retry: 7,
        };
        let prepare = |connection: &mut Connection, domain: &Arc<Domain>| {
            let buffer = domain.registered(COMPLETION_SIZE)?;
            connection.receive(buffer, 0).map_err(|(error, _)| error)
        };
        let (connection, _) = Connection::connect(address, sizes, &private.to_bytes(), prepare)
            .expect("a connection");
        let memory = connection.domain().open(LENGTH).expect("memory");
        let mut deaf = Self {
            _client: client,
            connection,
            memory,
        };
        deaf.become_a_queue(&subsystem, controller_id);
        deaf
    }

    fn become_a_queue(&mut self, subsystem: &nvme::Nqn, controller_id: u16) {
        let Options { host, host_id, .. } = rdma_options();
        let (subsystem, host) = (
            text::zeroed(subsystem.as_str()),
            text::zeroed(host.as_str()),
        );
        let data = ConnectData {
            host_id,
            controller_id,
            subsystem,
            host,
        };
        self.memory[..ConnectData::SIZE].copy_from_slice(&data.to_bytes());
        let (size, attributes) = (ENTRIES - 1, CONNECT_NO_FLOW_CONTROL);
        let connect = Connect {
            format: 0,
            queue_id: 1,
            size,
            attributes,
            keep_alive_ms: 0,
        };
        self.send(&connect.to_command(1), ConnectData::SIZE as u32);
        let mut completed = Vec::new();
        until("the response to Connect", || {
            self.connection
                .poll(&mut completed)
                .expect("it is connected");
            completed
                .iter()
                .any(|it| matches!(it.done, Ok(Done::Receive(_))))
        });
    }

    fn send(&mut self, command: &Command, length: u32) {
        let (address, key) = self
            .connection
            .domain()
            .remote(&self.memory)
            .expect("it is open");
        let sgl = Sgl::Keyed {
            address,
            length,
            key,
            invalidate: false,
        };
        self.connection
            .send_short(&command.with_sgl(sgl).to_bytes(), None)
            .expect("a free entry");
        self.connection.flush().expect("it is connected");
    }

    fn read(&mut self, cid: u16) {
        let command = Command {
            cid,
            ..transfer(Io::Read, 1, 0, (LENGTH / BLOCK) as u32)
        };
        self.send(&command, LENGTH as u32);
    }
}

/// A well-behaved host reads what it wrote.
fn another_host_is_served(address: SocketAddr, seed: u8) {
    let subsystem = NQN.parse().expect("a name");
    let mut client = Client::connect(address, &subsystem, &rdma_options()).expect("a controller");
    let mut queue = client.queues(1, 8).expect("a queue").remove(0);
    let mut buffer = queue.buffer(BLOCK).expect("memory");
    buffer[..BLOCK].fill(seed);
    queue
        .call(
            "Write",
            transfer(Io::Write, 1, 2048, 1),
            Payload::Out(buffer, BLOCK),
        )
        .expect("a write");
    let payload = Payload::In(queue.buffer(BLOCK).expect("memory"), BLOCK);
    let done = queue
        .call("Read", transfer(Io::Read, 1, 2048, 1), payload)
        .expect("a read");
    assert!(
        done.buffer.expect("data")[..BLOCK]
            .iter()
            .all(|byte| *byte == seed)
    );
}

fn main() {
    let (server, [ours, theirs]) = start();
    let subsystem = server
        .target()
        .subsystem(&NQN.parse().expect("a name"))
        .expect("it is there");
    let disk = subsystem.namespace(1).expect("it is there");
    let read = || disk.counters.read_bytes.load(Ordering::Relaxed);
    let mut most = 0;
    let mut deaf_hosts = Vec::new();
    for _ in 0..HOSTS {
        let mut host = Deaf::connect(theirs);
        // The response to the first command waits at the head of the send queue of the target for a receive,
        // and behind it the data of the others.
        let before = read();
        host.read(0);
        until("the first command", || {
            read() > before || server.shared().ended_so_far(End::Stalled) > 0
        });
        (1..=COMMANDS).for_each(|cid| host.read(cid));
        most = most.max(server.shared().data_bytes());
        deaf_hosts.push(host);
    }
    for seed in 0..10 {
        another_host_is_served(ours, seed);
        most = most.max(server.shared().data_bytes());
    }
    until("the end of all queues", || {
        most = most.max(server.shared().data_bytes());
        server.shared().ended_so_far(End::Stalled) == HOSTS
    });
    // The admin queues stay, each with the buffers of its last requests, which no completion has reported.
    until("the memory", || {
        server.shared().data_bytes() <= HOSTS as usize * UNREPORTED_BYTES
    });
    another_host_is_served(theirs, 10);
    println!("within the budget: {}", (LENGTH..=BUDGET).contains(&most));
    println!("stalled: {}", server.shared().ended_so_far(End::Stalled));
    drop(deaf_hosts);
}
