//! Hosts that want to keep others from their disks, over real sockets: others read and write meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nvme::host::{Client, Payload, transfer};
use nvme::limits::STRANGERS_MAX;
use nvme::serve::{BackendConfig, Bytes, End, Server};
use rdma::Buffer;
use socket2::{Domain, Socket, Type};
use wire::nvme::tcp::{Digests, ENCODED_MAX, Header, Initialize};
use wire::nvme::{Command, Io};

use crate::live::{namespace, options, start};
use crate::support::{SUBSYSTEM, nqn, pattern};

const BLOCK: usize = 4096;

fn server() -> (Server, SocketAddr) {
    start(vec![namespace(1, BackendConfig::Memory(Bytes(16 << 20)))], None)
}

/// A connection from another machine, as far as the target can see.
fn from_elsewhere(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// A host that behaves writes and reads what it wrote.
#[track_caller]
fn others_are_served(address: SocketAddr, seed: u64) {
    let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
    let mut queue = client.queues(1, 8).unwrap().remove(0);
    let data = pattern(seed, BLOCK);
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer[..BLOCK].copy_from_slice(&data);
    queue.call("Write", transfer(Io::Write, 1, seed, 1), Payload::Out(buffer, BLOCK)).unwrap();
    let payload = Payload::In(Buffer::zeroed(BLOCK), BLOCK);
    let done = queue.call("Read", transfer(Io::Read, 1, seed, 1), payload).unwrap();
    assert!(done.buffer.unwrap()[..BLOCK] == data);
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = [0; ENCODED_MAX];
    let end = header.encode(0, Digests::default(), 0, 4, &mut bytes);
    bytes[..end].to_vec()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come");
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_else_out() {
    let (server, address) = server();
    let crowd: Vec<TcpStream> = (0..STRANGERS_MAX).map(|_| from_elsewhere(address)).collect();
    until("the crowd", || server.shared().connections() == STRANGERS_MAX);
    let mut one_more = from_elsewhere(address);
    assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    until("its end", || server.shared().ended_so_far(End::Strangers) == 1);
    others_are_served(address, 1);
    drop(crowd);
    until("their end", || server.shared().ended_so_far(End::Host) >= STRANGERS_MAX as u64);
    others_are_served(address, 2);
}

/// One byte at a time, and never a whole capsule: each holds a connection, and no more.
#[test]
fn half_capsules_and_single_bytes_hold_up_nobody() {
    let (_server, address) = server();
    let initialize = encoded(&Header::InitializeRequest(Initialize::default()));
    let capsule = encoded(&Header::Command(Command::default()));
    let mut slow: Vec<TcpStream> = (0..32).map(|_| from_elsewhere(address)).collect();
    let said = [initialize, capsule[..capsule.len() - 1].to_vec()].concat();
    for (round, byte) in said.iter().enumerate() {
        slow.iter_mut().for_each(|stream| stream.write_all(&[*byte]).unwrap());
        if round % 64 == 0 {
            others_are_served(address, round as u64);
        }
    }
    others_are_served(address, 3);
}

/// Hosts that ask for all they can and take nothing: what they asked for waits with them.
#[test]
fn hosts_that_do_not_read_their_answers_hold_up_nobody() {
    let (server, address) = server();
    let greedy: Vec<_> = (0..4)
        .map(|number| {
            let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(10 + number, false)).unwrap();
            let mut queue = client.queues(1, 512).unwrap().remove(0);
            for token in 0..512 {
                let payload = Payload::In(Buffer::zeroed(1 << 20), 1 << 20);
                queue.submit(transfer(Io::Read, 1, 0, 256), payload, token).unwrap();
            }
            queue.poll(&mut Vec::new()).unwrap();
            (client, queue)
        })
        .collect();
    for seed in 0..20 {
        others_are_served(address, seed);
    }
    drop(greedy);
    until("their end", || server.shared().connections() == 0);
}

/// Tells others to stop, however it ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Hosts that have the target clear and verify most of a disk that is not theirs alone, 64 times at once, and
/// ask what there is in between: others take their turns.
#[test]
fn commands_that_work_for_long_hold_up_nobody() {
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
                        let kind = if token % 2 == 0 { Io::WriteZeroes } else { Io::Verify };
                        queue.submit(transfer(kind, 1, 1024, 3072), Payload::None, token).unwrap();
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
            others_are_served(address, seed);
        }
    });
}

/// Bytes that are no protocol, again and again: each time the end of that connection alone.
#[test]
fn noise_ends_the_connection_that_makes_it() {
    let (server, address) = server();
    for seed in 0..50 {
        let mut stream = from_elsewhere(address);
        _ = stream.write_all(&pattern(seed, 300));
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        _ = stream.read_to_end(&mut Vec::new());
    }
    until("their faults", || server.shared().ended_so_far(End::Fault) >= 45);
    others_are_served(address, 1);
}
