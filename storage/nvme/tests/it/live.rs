//! Host and target over real sockets on loopback, with files and memory below.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use buffer::Buffer;
use nvme::host::{
    Client, HostError, Job, KEEP_ALIVE_TIMEOUT, Options, Payload, Queue, Transport, bench,
    bench_threads, discover, transfer,
};
use nvme::serve::{
    BackendConfig, Bytes, Config, NamespaceConfig, PortConfig, Server, SubsystemConfig,
    TransportConfig, Tuning,
};
use wire::nvme::tcp::Digests;
use wire::nvme::{Io, Status};

use crate::support::{SUBSYSTEM, host_name, nqn, pattern};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1024;

pub(crate) fn namespace(id: u32, backend: BackendConfig) -> NamespaceConfig {
    NamespaceConfig::new(id, backend)
}

fn file(path: &Path) -> BackendConfig {
    let size = Some(Bytes(BLOCKS * BLOCK as u64));
    BackendConfig::File {
        path: path.to_owned(),
        size,
        direct: true,
    }
}

pub(crate) fn config(namespaces: Vec<NamespaceConfig>) -> Config {
    let subsystem = SubsystemConfig {
        namespaces,
        ..SubsystemConfig::new(nqn(SUBSYSTEM))
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = PortConfig {
        id: None,
        transport: TransportConfig::Tcp,
        tls: false,
        shared_receives: None,
        address,
        subsystems: None,
    };
    Config {
        subsystems: vec![subsystem],
        ports: vec![port],
        referrals: Vec::new(),
    }
}

pub(crate) fn start(
    namespaces: Vec<NamespaceConfig>,
    state: Option<&Path>,
) -> (Server, SocketAddr) {
    let state = state.map(Path::to_owned);
    let server = Server::start(config(namespaces), state, Tuning::default()).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

pub(crate) fn options(number: u8, digests: bool) -> Options {
    let host = nqn(&host_name(number));
    let host_id = host.to_host_id();
    let digests = Digests {
        header: digests,
        data: digests,
    };
    Options {
        transport: Transport::Tcp,
        host,
        host_id,
        digests,
        congestion: None,
        secrets: None,
        tls: None,
        keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
    }
}

fn client(address: SocketAddr, digests: bool) -> Client {
    Client::connect(address, &nqn(SUBSYSTEM), &options(1, digests)).unwrap()
}

pub(crate) fn write(queue: &mut Queue, nsid: u32, start: u64, data: &[u8]) {
    let mut buffer = Buffer::zeroed(data.len());
    buffer[..data.len()].copy_from_slice(data);
    let command = transfer(Io::Write, nsid, start, (data.len() / BLOCK) as u32);
    queue
        .call("Write", command, Payload::Out(buffer, data.len()))
        .unwrap();
}

pub(crate) fn read(
    queue: &mut Queue,
    nsid: u32,
    start: u64,
    length: usize,
) -> Result<Vec<u8>, HostError> {
    let command = transfer(Io::Read, nsid, start, (length / BLOCK) as u32);
    let done = queue.call("Read", command, Payload::In(Buffer::zeroed(length), length))?;
    Ok(done.buffer.unwrap()[..length].to_vec())
}

#[test]
fn our_host_reads_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let namespaces = vec![
        namespace(1, BackendConfig::Memory(Bytes(BLOCKS * BLOCK as u64))),
        namespace(2, file(&folder.path().join("disk"))),
    ];
    let (_server, address) = start(namespaces, None);
    for digests in [false, true] {
        let mut client = client(address, digests);
        let found: Vec<u64> = client
            .namespaces()
            .unwrap()
            .iter()
            .map(|it| it.blocks)
            .collect();
        assert_eq!(found, [BLOCKS, BLOCKS]);
        let mut queues = client.queues(2, 16).unwrap();
        for nsid in [1, 2] {
            for (index, blocks) in [1, 4, 5, 100, 256].into_iter().enumerate() {
                let data = pattern(index as u64 + u64::from(nsid), blocks * BLOCK);
                write(&mut queues[0], nsid, 3 + index as u64, &data);
                assert!(read(&mut queues[1], nsid, 3 + index as u64, data.len()).unwrap() == data);
            }
        }
    }
}

/// Long reads are sent by reference to the pages of the disk: writes while the host has not received them do
/// not change them.
#[test]
fn a_write_does_not_change_what_was_read_before() {
    const LENGTH: usize = 1 << 20;
    const COUNT: usize = 4;
    let bytes = (COUNT * LENGTH) as u64;
    let (_server, address) = start(
        vec![namespace(1, BackendConfig::Memory(Bytes(bytes)))],
        None,
    );
    let mut client = client(address, false);
    let mut queues = client.queues(2, 16).unwrap();
    let blocks = LENGTH / BLOCK;
    let fill = |queue: &mut Queue, round: u8, pieces: usize| {
        for piece in 0..COUNT * pieces {
            let data = vec![round; LENGTH / pieces];
            write(queue, 1, (piece * blocks / pieces) as u64, &data);
        }
    };
    for (round, pieces) in [(1_u8, 1), (2, 1), (3, 8), (4, 256)] {
        for _ in 0..nvme::limits::REFERRED_AFTER_READS {
            read(&mut queues[0], 1, 0, nvme::limits::REFERRED_BYTES_MIN).unwrap();
        }
        let mut done = Vec::new();
        for number in 0..COUNT {
            let payload = Payload::In(Buffer::zeroed(LENGTH), LENGTH);
            let command = transfer(Io::Read, 1, (number * blocks) as u64, blocks as u32);
            queues[0].submit(command, payload, number as u64).unwrap();
        }
        queues[0].poll(&mut done).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        fill(&mut queues[1], round, pieces);
        while queues[0].outstanding() > 0 {
            queues[0].wait(&mut done).unwrap();
        }
        assert_eq!(done.len(), COUNT);
        for done in done {
            // The target may have executed the command after a write, but not in the middle of a page.
            let data = done.buffer.unwrap();
            let is_known = |page: &[u8]| {
                [round - 1, round]
                    .iter()
                    .any(|it| page.iter().all(|byte| byte == it))
            };
            assert!(data.chunks(LENGTH / pieces).all(is_known), "round {round}");
        }
    }
}

/// A null disk accepts every write within its size.
#[test]
fn a_null_disk_discards_writes() {
    let (_server, address) = start(
        vec![namespace(1, BackendConfig::Null(Bytes(1 << 40)))],
        None,
    );
    let mut client = client(address, false);
    assert_eq!(
        client.namespace(1).unwrap().blocks,
        (1 << 40) / BLOCK as u64
    );
    let mut queue = client.queues(1, 8).unwrap().remove(0);
    write(&mut queue, 1, (1 << 28) - 1, &pattern(1, BLOCK));
    assert!(
        read(&mut queue, 1, (1 << 28) - 1, BLOCK)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(read(&mut queue, 1, 1 << 28, BLOCK).is_err());
}

/// A store in a file and one in memory: the same concurrent commands leave the same bytes.
#[test]
fn many_commands_at_once_leave_what_they_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = start(vec![namespace(1, file(&folder.path().join("disk")))], None);
    let mut client = client(address, false);
    let mut queue = client.queues(1, 64).unwrap().remove(0);
    let (mut done, mut next) = (Vec::new(), 0_u64);
    let mut finished = 0;
    while finished < 400 {
        while next < 400 && queue.outstanding() < 64 {
            // No two outstanding commands use the same blocks.
            let (start, blocks) = (next % 200 * 5, 1 + next % 5);
            let data = pattern(next, blocks as usize * BLOCK);
            let mut buffer = Buffer::zeroed(data.len());
            buffer[..data.len()].copy_from_slice(&data);
            let command = transfer(Io::Write, 1, start, blocks as u32);
            queue
                .submit(command, Payload::Out(buffer, data.len()), next)
                .unwrap();
            next += 1;
        }
        queue.wait(&mut done).unwrap();
        for done in done.drain(..) {
            assert_eq!(done.completion.status(), Status::SUCCESS);
            finished += 1;
        }
    }
    queue
        .call("Flush", transfer(Io::Flush, 1, 0, 1), Payload::None)
        .unwrap();
    for number in 200..400_u64 {
        let (start, blocks) = (number % 200 * 5, 1 + number % 5);
        let expected = pattern(number, blocks as usize * BLOCK);
        assert!(
            read(&mut queue, 1, start, expected.len()).unwrap() == expected,
            "write {number}"
        );
    }
}

#[test]
fn what_is_changed_at_run_time_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.toml");
    let (server, address) = start(
        vec![namespace(1, file(&folder.path().join("one")))],
        Some(&state),
    );
    let mut first = client(address, false);
    let mut queue = first.queues(1, 4).unwrap().remove(0);
    write(&mut queue, 1, 0, &pattern(1, BLOCK));
    server
        .add_namespace(
            &nqn(SUBSYSTEM),
            namespace(7, file(&folder.path().join("seven"))),
        )
        .unwrap();
    server
        .resize_namespace(&nqn(SUBSYSTEM), 1, Bytes(2 * BLOCKS * BLOCK as u64))
        .unwrap();
    let before = server
        .target()
        .subsystem(&nqn(SUBSYSTEM))
        .unwrap()
        .namespace(7)
        .unwrap()
        .identity();
    write(&mut queue, 7, 9, &pattern(7, BLOCK));
    write(&mut queue, 1, 2 * BLOCKS - 1, &pattern(2, BLOCK));
    server.remove_namespace(&nqn(SUBSYSTEM), 7).unwrap();
    assert!(
        matches!(read(&mut queue, 7, 9, BLOCK), Err(HostError::Status { status, .. })
        if status.plain() == Status::INVALID_NAMESPACE)
    );
    server
        .add_namespace(
            &nqn(SUBSYSTEM),
            namespace(7, file(&folder.path().join("seven"))),
        )
        .unwrap();
    drop(server);

    let server = Server::start(Config::default(), Some(state), Tuning::default()).unwrap();
    let mut again = client(server.addresses()[0], false);
    let found: Vec<_> = again
        .namespaces()
        .unwrap()
        .iter()
        .map(|it| (it.nsid, it.blocks))
        .collect();
    assert_eq!(found, [(1, 2 * BLOCKS), (7, BLOCKS)]);
    let after = server
        .target()
        .subsystem(&nqn(SUBSYSTEM))
        .unwrap()
        .namespace(7)
        .unwrap()
        .identity();
    assert_eq!(before, after);
    let mut queue = again.queues(1, 4).unwrap().remove(0);
    assert_eq!(read(&mut queue, 1, 0, BLOCK).unwrap(), pattern(1, BLOCK));
    assert_eq!(
        read(&mut queue, 1, 2 * BLOCKS - 1, BLOCK).unwrap(),
        pattern(2, BLOCK)
    );
    assert_eq!(read(&mut queue, 7, 9, BLOCK).unwrap(), pattern(7, BLOCK));
}

/// More responses than fit the staging buffer of the host, repeatedly.
#[test]
fn many_small_answers_at_once_are_all_read() {
    let (_server, address) = start(
        vec![namespace(1, BackendConfig::Memory(Bytes(4 << 20)))],
        None,
    );
    let mut client = client(address, false);
    let mut queue = client.queues(1, 512).unwrap().remove(0);
    let mut done = Vec::new();
    for _ in 0..20 {
        for token in 0..512 {
            let payload = Payload::In(Buffer::zeroed(BLOCK), BLOCK);
            queue
                .submit(transfer(Io::Read, 1, token, 1), payload, token)
                .unwrap();
        }
        while queue.outstanding() > 0 {
            queue.wait(&mut done).unwrap();
        }
        assert_eq!(
            done.drain(..)
                .filter(|done| done.completion.status().is_success())
                .count(),
            512
        );
    }
}

#[test]
fn discovery_is_understood() {
    let (_server, address) = start(
        vec![namespace(1, BackendConfig::Null(Bytes(1 << 20)))],
        None,
    );
    let found = discover(address, &options(1, false)).unwrap();
    let disk = found.iter().find(|it| it.kind == "nvm").unwrap();
    assert_eq!(
        (disk.subsystem.as_str(), disk.transport),
        (SUBSYSTEM, "tcp")
    );
    assert_eq!(disk.service, address.port().to_string());
}

#[test]
fn silent_and_vanished_hosts_do_not_disturb_others() {
    let (server, address) = start(
        vec![namespace(1, BackendConfig::Memory(Bytes(64 << 20)))],
        None,
    );
    let silent: Vec<_> = (0..20)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    for _ in 0..3 {
        let mut client = client(address, false);
        let mut queue = client.queues(1, 64).unwrap().remove(0);
        for token in 0..64 {
            let payload = Payload::In(Buffer::zeroed(1 << 20), 1 << 20);
            queue
                .submit(transfer(Io::Read, 1, 0, 256), payload, token)
                .unwrap();
        }
        // The connection is closed in the middle of 64 MiB of responses.
        queue.poll(&mut Vec::new()).unwrap();
    }
    let mut client = client(address, false);
    let mut queue = client.queues(1, 4).unwrap().remove(0);
    write(&mut queue, 1, 0, &pattern(3, BLOCK));
    assert_eq!(read(&mut queue, 1, 0, BLOCK).unwrap(), pattern(3, BLOCK));
    drop((silent, queue, client));
    // Every thread and every controller ends.
    for _ in 0..500 {
        if server.shared().connections() == 0 && server.target().controllers().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} connections are left", server.shared().connections());
}

#[test]
fn a_measurement_counts_what_it_did() {
    let (server, address) = start(
        vec![namespace(1, BackendConfig::Memory(Bytes(4 << 20)))],
        None,
    );
    let mut client = client(address, false);
    let disk = client.namespace(1).unwrap();
    let mut queues = client.queues(2, 16).unwrap();
    for (write, block, run) in [
        (false, true, bench as fn(&mut _, &_, &_) -> _),
        (true, false, bench_threads),
    ] {
        let time = Duration::from_millis(500);
        let (random, bytes, depth, warm_up) = (true, BLOCK, 8, Duration::ZERO);
        let target = Some(std::process::id());
        let job = Job {
            write,
            random,
            bytes,
            depth,
            warm_up,
            time,
            block,
            target,
        };
        let figures = run(&mut queues, &disk, &job).unwrap();
        assert!(figures.target_processor.is_some() && figures.over_time.iter().sum::<f64>() > 0.0);
        assert_eq!(figures.errors_over_time, [0; nvme::host::MOMENTS]);
        assert_eq!(figures.errors, 0);
        assert!(figures.latency.total() > 0);
        let disk = server
            .target()
            .subsystem(&nqn(SUBSYSTEM))
            .unwrap()
            .namespace(1)
            .unwrap();
        let counter = if write {
            &disk.counters.writes
        } else {
            &disk.counters.reads
        };
        let counted = counter.load(std::sync::atomic::Ordering::Relaxed);
        // Commands that are outstanding at the end are finished, and not counted by the benchmark.
        assert!((figures.latency.total()..=figures.latency.total() + 16).contains(&counted));
    }
}

/// "Persist through power loss": a reservation is there after a restart, and other hosts cannot write.
#[test]
fn reservations_survive_a_restart_when_hosts_ask_for_it() {
    const PERSIST: u32 = 3 << 30;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.toml");
    let disk = || vec![namespace(1, file(&folder.path().join("one")))];
    let reserve = |queue: &mut Queue, kind: Io, cdw10: u32, data: &[u8]| {
        let mut buffer = Buffer::zeroed(data.len());
        buffer[..data.len()].copy_from_slice(data);
        let command = wire::nvme::Command {
            opcode: kind as u8,
            nsid: 1,
            cdw10,
            ..Default::default()
        };
        queue
            .call("a reservation", command, Payload::Out(buffer, data.len()))
            .map(drop)
    };
    let register = |queue: &mut Queue, persist: u32| {
        let keys = [0_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
        reserve(queue, Io::ReservationRegister, persist, &keys)
    };
    let conflicts = |queue: &mut Queue| {
        let command = transfer(Io::Write, 1, 0, 1);
        let done = queue.call("Write", command, Payload::Out(Buffer::zeroed(BLOCK), BLOCK));
        let conflict = Status::RESERVATION_CONFLICT;
        matches!(done, Err(HostError::Status { status, .. }) if status.plain() == conflict)
    };
    let of = |address, number| {
        let mut client =
            Client::connect(address, &nqn(SUBSYSTEM), &options(number, false)).unwrap();
        let queue = client.queues(1, 4).unwrap().remove(0);
        (client, queue)
    };
    {
        let (_server, address) = start(disk(), Some(&state));
        let (_client, mut queue) = of(address, 1);
        register(&mut queue, PERSIST).unwrap();
        let keys = [5_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        reserve(&mut queue, Io::ReservationAcquire, 1 << 8, &keys).unwrap();
        assert!(conflicts(&mut of(address, 2).1));
    }
    {
        let server =
            Server::start(Config::default(), Some(state.clone()), Tuning::default()).unwrap();
        let (_client, mut queue) = of(server.addresses()[0], 1);
        assert!(!conflicts(&mut queue));
        let (_other, mut other) = of(server.addresses()[0], 2);
        assert!(conflicts(&mut other));
        // Without PTPL the next restart clears the reservation.
        let keys = [5_u64.to_le_bytes(), 6_u64.to_le_bytes()].concat();
        reserve(&mut queue, Io::ReservationRegister, 2 | 2 << 30, &keys).unwrap();
        assert!(conflicts(&mut other));
    }
    let server = Server::start(Config::default(), Some(state), Tuning::default()).unwrap();
    assert!(!conflicts(&mut of(server.addresses()[0], 2).1));
    // Linux requests PTPL with every registration: without a state file the host is registered, and nothing
    // persists.
    {
        let (_server, address) = start(disk(), None);
        let (_client, mut queue) = of(address, 1);
        register(&mut queue, PERSIST).unwrap();
        let keys = [5_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        reserve(&mut queue, Io::ReservationAcquire, 1 << 8, &keys).unwrap();
        assert!(conflicts(&mut of(address, 2).1));
    }
    let (_server, address) = start(disk(), None);
    assert!(!conflicts(&mut of(address, 2).1));
}
