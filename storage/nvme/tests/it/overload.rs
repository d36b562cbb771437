//! Hosts that try to exhaust the target, over real sockets, while another host reads and writes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use buffer::Buffer;
use nvme::host::{Client, Payload, transfer};
use nvme::limits::{NBD_CLIENT_BYTES, STALL_TIMEOUT, UNAUTHENTICATED_MAX};
use nvme::nbd;
use nvme::serve::{BackendConfig, Bytes, End, PortConfig, Server, Tuning};
use socket2::{Domain, Socket, Type};
use wire::nvme::tcp::{Digests, ENCODED_MAX, Header, Initialize};
use wire::nvme::{Command, Io};

use crate::live::{config, namespace, options, start};
use crate::support::{SUBSYSTEM, nqn, pattern};

const BLOCK: usize = 4096;

fn server() -> (Server, SocketAddr) {
    start(
        vec![namespace(1, BackendConfig::Memory(Bytes(16 << 20)))],
        None,
    )
}

/// A connection from another address, which the target takes for another machine.
fn from_elsewhere(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into())
        .unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// A well-behaved host reads what it wrote.
#[track_caller]
fn other_hosts_are_served(address: SocketAddr, seed: u64) {
    let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
    let mut queue = client.queues(1, 8).unwrap().remove(0);
    let data = pattern(seed, BLOCK);
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer[..BLOCK].copy_from_slice(&data);
    queue
        .call(
            "Write",
            transfer(Io::Write, 1, seed, 1),
            Payload::Out(buffer, BLOCK),
        )
        .unwrap();
    let payload = Payload::In(Buffer::zeroed(BLOCK), BLOCK);
    let done = queue
        .call("Read", transfer(Io::Read, 1, seed, 1), payload)
        .unwrap();
    assert!(done.buffer.unwrap()[..BLOCK] == data);
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = [0; ENCODED_MAX];
    let end = header.encode(0, Digests::default(), 0, 4, &mut bytes);
    bytes[..end].to_vec()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // A minute: the machine may be busy.
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited in vain for {what}");
}

#[test]
fn unauthenticated_connections_of_one_address_do_not_block_others() {
    let (server, address) = server();
    let unauthenticated: Vec<TcpStream> = (0..UNAUTHENTICATED_MAX)
        .map(|_| from_elsewhere(address))
        .collect();
    until("the connections", || {
        server.shared().connections() == UNAUTHENTICATED_MAX
    });
    let mut one_more = from_elsewhere(address);
    assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    until("its end", || {
        server.shared().ended_so_far(End::Unauthenticated) == 1
    });
    other_hosts_are_served(address, 1);
    drop(unauthenticated);
    until("their end", || {
        server.shared().ended_so_far(End::Host) >= UNAUTHENTICATED_MAX as u64
    });
    other_hosts_are_served(address, 2);
}

/// Connections that send one byte at a time and never a whole capsule delay no other host.
#[test]
fn partial_capsules_do_not_delay_other_hosts() {
    let (_server, address) = server();
    let initialize = encoded(&Header::InitializeRequest(Initialize::default()));
    let capsule = encoded(&Header::Command(Command::default()));
    let mut slow: Vec<TcpStream> = (0..32).map(|_| from_elsewhere(address)).collect();
    let said = [initialize, capsule[..capsule.len() - 1].to_vec()].concat();
    for (round, byte) in said.iter().enumerate() {
        slow.iter_mut()
            .for_each(|stream| stream.write_all(&[*byte]).unwrap());
        if round % 64 == 0 {
            other_hosts_are_served(address, round as u64);
        }
    }
    other_hosts_are_served(address, 3);
}

/// Hosts that submit many reads and read no responses: the responses wait on their connections.
#[test]
fn hosts_that_read_no_responses_do_not_delay_others() {
    let (server, address) = server();
    let stalled_hosts: Vec<_> = (0..4)
        .map(|number| {
            let mut client =
                Client::connect(address, &nqn(SUBSYSTEM), &options(10 + number, false)).unwrap();
            let mut queue = client.queues(1, 512).unwrap().remove(0);
            for token in 0..512 {
                let payload = Payload::In(Buffer::zeroed(1 << 20), 1 << 20);
                queue
                    .submit(transfer(Io::Read, 1, 0, 256), payload, token)
                    .unwrap();
            }
            queue.poll(&mut Vec::new()).unwrap();
            (client, queue)
        })
        .collect();
    for seed in 0..20 {
        other_hosts_are_served(address, seed);
    }
    drop(stalled_hosts);
    until("their end", || server.shared().connections() == 0);
}

/// The budget of the server in the tests, in bytes.
const BUDGET: usize = 8 << 20;
/// Hosts that take all the memory that their address can get. They get it one after the other.
const STALLED_HOSTS: u8 = 6;
/// Requests of a host that reads no responses.
const UNTAKEN: u64 = 30;

/// A server with little memory and a stall timeout of one second, at two addresses, because it distinguishes
/// hosts by address.
fn small_server() -> (Server, SocketAddr, SocketAddr) {
    let mut config = config(vec![namespace(1, BackendConfig::Memory(Bytes(16 << 20)))]);
    let port = PortConfig {
        address: "[::1]:0".parse().unwrap(),
        ..config.ports[0].clone()
    };
    config.ports.push(port);
    let tuning = Tuning {
        data_bytes: BUDGET,
        stall_timeout: Duration::from_secs(1),
        ..Tuning::default()
    };
    let server = Server::start(config, None, tuning).unwrap();
    let addresses = server.addresses();
    let of = |v6: bool| *addresses.iter().find(|it| it.is_ipv6() == v6).unwrap();
    let (ours, theirs) = (of(false), of(true));
    (server, ours, theirs)
}

/// Waits until the stall timer has closed the I/O queues of `hosts` hosts, also those that first waited for
/// memory, and all memory is back, although the hosts stay.
#[track_caller]
fn all_are_closed(server: &Server, hosts: usize) {
    until("the end of all I/O queues", || {
        server.shared().ended_so_far(End::Stalled) == hosts as u64
    });
    until("the memory", || server.shared().data_bytes() == 0);
}

/// Hosts of one address request more data than the budget and read none: memory stays within the budget, a
/// host of another address is served, and the stalled hosts are disconnected.
#[test]
fn hosts_that_read_no_responses_share_one_budget_and_are_closed() {
    stalled_hosts_share_one_budget(Io::Read, Payload::In, 0);
}

/// The same for hosts that announce data, and send none for the R2Ts.
#[test]
fn hosts_that_send_no_data_share_one_budget_and_are_closed() {
    stalled_hosts_share_one_budget(Io::Write, Payload::Out, 1000);
}

fn stalled_hosts_share_one_budget(
    kind: Io,
    payload: fn(Buffer, usize) -> Payload,
    first_seed: u64,
) {
    let (server, ours, theirs) = small_server();
    let mut most = 0;
    let stalled_hosts: Vec<_> = (0..STALLED_HOSTS)
        .map(|number| {
            let mut client =
                Client::connect(theirs, &nqn(SUBSYSTEM), &options(10 + number, false)).unwrap();
            let mut queue = client.queues(1, 64).unwrap().remove(0);
            for token in 0..UNTAKEN {
                let payload = payload(Buffer::zeroed(1 << 20), 1 << 20);
                queue
                    .submit(transfer(kind, 1, 0, 256), payload, token)
                    .unwrap();
            }
            queue.poll(&mut Vec::new()).unwrap();
            // The first may be closed before the last has come, on a slow machine.
            most = most.max(server.shared().data_bytes());
            (client, queue)
        })
        .collect();
    for seed in 0..20 {
        other_hosts_are_served(ours, first_seed + seed);
        most = most.max(server.shared().data_bytes());
    }
    assert!((1 << 20..=BUDGET).contains(&most), "{most}");
    all_are_closed(&server, stalled_hosts.len());
    other_hosts_are_served(theirs, first_seed + 30);
}

/// Commands without a buffer wait, and are executed when other connections have returned memory.
#[test]
fn commands_that_wait_for_memory_are_all_carried_out() {
    let (server, ours, theirs) = small_server();
    std::thread::scope(|scope| {
        for (number, address) in [ours, theirs, ours, theirs].into_iter().enumerate() {
            scope.spawn(move || {
                let host = options(10 + number as u8, false);
                let mut client = Client::connect(address, &nqn(SUBSYSTEM), &host).unwrap();
                let mut queue = client.queues(1, 64).unwrap().remove(0);
                let mut done = Vec::new();
                for token in 0..2 * UNTAKEN {
                    let payload = match token % 2 {
                        0 => Payload::In(Buffer::zeroed(1 << 20), 1 << 20),
                        _ => Payload::Out(Buffer::zeroed(1 << 20), 1 << 20),
                    };
                    let kind = if token % 2 == 0 { Io::Read } else { Io::Write };
                    queue
                        .submit(
                            transfer(kind, 1, 256 * (1 + number as u64), 256),
                            payload,
                            token,
                        )
                        .unwrap();
                }
                while queue.outstanding() > 0 {
                    queue.wait(&mut done).unwrap();
                }
                let succeeded = done
                    .iter()
                    .filter(|done| done.completion.status().is_success());
                assert_eq!(succeeded.count() as u64, 2 * UNTAKEN);
            });
        }
    });
    until("the memory", || server.shared().data_bytes() == 0);
    assert_eq!(server.shared().ended_so_far(End::Stalled), 0);
}

/// Bytes of a request of an NBD client that reads no replies.
const NBD_LENGTH: u32 = 4 << 20;

/// Exports a disk over NBD to a client that has negotiated and sent `requests` reads.
fn nbd_client(
    address: SocketAddr,
    requests: usize,
    stall_timeout: Duration,
) -> (UnixStream, JoinHandle<Result<(), nbd::NbdError>>) {
    let (mut client, mut stream) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    let exporting = std::thread::spawn(move || {
        let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
        let namespace = client.namespace(1).unwrap();
        let (writes, stop) = (std::sync::Arc::default(), nbd::Stop::new().unwrap());
        let target = nbd::Target {
            client,
            namespace,
            writes,
            read_only: true,
            stop,
            stall_timeout,
        };
        nbd::serve(&mut stream, target, "disk")
    });
    // Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME with an empty name.
    client.read_exact(&mut [0; 18]).unwrap();
    let choice = [
        &3_u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &1_u32.to_be_bytes(),
        &0_u32.to_be_bytes(),
    ];
    client.write_all(&choice.concat()).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    let request = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &[0; 20],
        &NBD_LENGTH.to_be_bytes(),
    ]
    .concat();
    client.write_all(&request.repeat(requests)).unwrap();
    (client, exporting)
}

/// An NBD client with many requests that reads no replies: the server reads no more requests than its limit.
/// When the client reads, it gets all replies.
#[test]
fn nbd_clients_that_read_no_replies_are_not_read_from() {
    const COUNT: usize = 50;
    let (server, address) = server();
    let (mut client, exporting) = nbd_client(address, COUNT, STALL_TIMEOUT);
    let disk = server
        .target()
        .subsystem(&nqn(SUBSYSTEM))
        .unwrap()
        .namespace(1)
        .unwrap();
    let read = || disk.counters.read_bytes.load(Ordering::Relaxed);
    until("the requests that the server reads", || {
        read() >= NBD_CLIENT_BYTES as u64
    });
    for _ in 0..25 {
        // One request beyond the limit, one in the socket buffer, and parts of both.
        assert!(
            read() <= NBD_CLIENT_BYTES as u64 + 3 * u64::from(NBD_LENGTH),
            "{}",
            read()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut answer = vec![0; 16 + NBD_LENGTH as usize];
    for _ in 0..COUNT {
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    }
    drop(client);
    _ = exporting.join().unwrap();
}

/// An NBD client that reads no replies is disconnected, and its queues at the target end.
#[test]
fn nbd_clients_that_read_no_replies_are_disconnected() {
    let (server, address) = server();
    let (mut client, exporting) = nbd_client(address, 5, Duration::from_millis(300));
    let ended = exporting.join().unwrap();
    assert!(matches!(ended, Err(nbd::NbdError::Stalled(_))), "{ended:?}");
    until("the end of its queues", || {
        server.shared().connections() == 0
    });
    // The rest of the socket's buffer, then the end of the connection.
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 5 * NBD_LENGTH as usize, "{}", rest.len());
}

/// Stops the other threads even if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// 64 hosts clear and verify most of a shared disk, and another host still gets its turns.
#[test]
fn long_commands_do_not_delay_other_hosts() {
    let (server, address) = server();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for number in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                let host = options(10 + number, false);
                let mut client = Client::connect(address, &nqn(SUBSYSTEM), &host).unwrap();
                let mut queue = client.queues(1, 64).unwrap().remove(0);
                while !stop.load(Ordering::Relaxed) {
                    for token in 0..64 {
                        let kind = if token % 2 == 0 {
                            Io::WriteZeroes
                        } else {
                            Io::Verify
                        };
                        queue
                            .submit(transfer(kind, 1, 1024, 3072), Payload::None, token)
                            .unwrap();
                    }
                    while queue.outstanding() > 0 {
                        queue.wait(&mut Vec::new()).unwrap();
                    }
                    client.namespaces().unwrap();
                }
            });
        }
        until("their work", || server.shared().connections() == 8);
        for seed in 0..5 {
            other_hosts_are_served(address, seed);
        }
    });
}

/// Random bytes, repeatedly: each time only that connection ends.
#[test]
fn random_bytes_close_their_connection() {
    let (server, address) = server();
    for seed in 0..50 {
        let mut stream = from_elsewhere(address);
        _ = stream.write_all(&pattern(seed, 300));
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        _ = stream.read_to_end(&mut Vec::new());
    }
    until("their faults", || {
        server.shared().ended_so_far(End::Fault) >= 45
    });
    other_hosts_are_served(address, 1);
}
