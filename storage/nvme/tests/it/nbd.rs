//! NBD clients on a disk of a target: requests that are no multiples of its blocks, of several clients.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nvme::host::{Client, HostError};
use nvme::limits::STALL_TIMEOUT;
use nvme::nbd::{NbdError, Stop, Target, Writes, serve};
use nvme::serve::{BackendConfig, Bytes, Server};

use crate::live::{namespace, options, start};
use crate::peer::{self, Behaviour, Peer};
use crate::support::{SUBSYSTEM, nqn};

/// Bytes of the disk, whose blocks have 4096 bytes.
const SIZE: usize = 1 << 20;
const BLOCK: usize = 4096;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;

fn server() -> (Server, SocketAddr) {
    start(
        vec![namespace(1, BackendConfig::Memory(Bytes(SIZE as u64)))],
        None,
    )
}

/// An NBD client that knows nothing of block sizes (NBD_OPT_EXPORT_NAME).
struct Nbd(UnixStream);

impl Nbd {
    fn connect(address: SocketAddr, writes: &Arc<Writes>) -> Self {
        Self::with_end(address, writes, SIZE, Stop::new().unwrap()).0
    }

    /// As [`Nbd::connect`] to a disk of `size` bytes; returns the thread that serves too.
    fn with_end(
        address: SocketAddr,
        writes: &Arc<Writes>,
        size: usize,
        stop: Arc<Stop>,
    ) -> (Self, JoinHandle<Result<(), NbdError>>) {
        let (mut client, mut stream) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let writes = Arc::clone(writes);
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options(1, false)).unwrap();
            let namespace = client.namespace(1).unwrap();
            let (read_only, stop, stall_timeout) = (false, stop, STALL_TIMEOUT);
            let target = Target {
                client,
                namespace,
                writes,
                read_only,
                stop,
                stall_timeout,
            };
            serve(&mut stream, target, "disk")
        });
        client.read_exact(&mut [0; 18]).unwrap();
        let choice = [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &1_u32.to_be_bytes(),
            &4_u32.to_be_bytes(),
        ];
        client
            .write_all(&[&choice.concat()[..], b"disk"].concat())
            .unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], (size as u64).to_be_bytes());
        (Self(client), thread)
    }

    fn ask(&mut self, kind: u16, flags: u16, offset: usize, length: usize, data: &[u8]) {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&7_u64.to_be_bytes());
        request.extend_from_slice(&(offset as u64).to_be_bytes());
        request.extend_from_slice(&(length as u32).to_be_bytes());
        self.0.write_all(&[&request, data].concat()).unwrap();
    }

    /// The error value of the next simple reply.
    fn replied(&mut self) -> u32 {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
        u32::from_be_bytes([head[4], head[5], head[6], head[7]])
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        self.ask(WRITE, 0, offset, data.len(), data);
        assert_eq!(self.replied(), 0);
    }

    fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        self.ask(READ, FUA, offset, length, &[]);
        assert_eq!(self.replied(), 0);
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

#[test]
fn writes_zeros_and_trims_may_begin_and_end_within_blocks() {
    let (_server, address) = server();
    let mut nbd = Nbd::connect(address, &Arc::default());
    let mut model = vec![0; SIZE];
    let mut random = 1_u64;
    let mut below = move |limit: usize| -> usize {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    for round in 0..400 {
        // Lengths within one block, over two, and over many; some of them whole blocks.
        let unit = [1, 1, 512, BLOCK][below(4)];
        let most = [100, 2 * BLOCK, 20 * BLOCK][below(3)];
        let length = (1 + below(most)).next_multiple_of(unit);
        let offset = below(SIZE - length) / unit * unit;
        let (range, flags) = (
            offset..offset + length,
            if round % 3 == 0 { FUA } else { 0 },
        );
        match below(3) {
            0 => {
                nbd.ask(WRITE_ZEROES, flags, offset, length, &[]);
                assert_eq!(nbd.replied(), 0);
                model[range.clone()].fill(0);
            }
            1 => {
                nbd.ask(TRIM, flags, offset, length, &[]);
                assert_eq!(nbd.replied(), 0);
                // Whole blocks only; a part of a block keeps its data.
                let (start, end) = (offset.next_multiple_of(BLOCK), range.end / BLOCK * BLOCK);
                if start < end {
                    model[start..end].copy_from_slice(&nbd.read(start, end - start));
                }
            }
            _ => {
                let data: Vec<u8> = (0..length).map(|at| (at * 31 + round) as u8).collect();
                nbd.ask(WRITE, flags, offset, length, &data);
                assert_eq!(nbd.replied(), 0);
                model[range.clone()].copy_from_slice(&data);
            }
        }
        let start = offset / BLOCK * BLOCK;
        let end = range.end.next_multiple_of(BLOCK);
        assert!(
            nbd.read(start, end - start) == model[start..end],
            "round {round}: {range:?}"
        );
    }
    assert!(nbd.read(0, SIZE) == model);
    nbd.ask(FLUSH, FUA, 0, 0, &[]);
    assert_eq!(nbd.replied(), 0);
}

/// Eight clients each write the eighths of the same blocks that are theirs, several at once: none of them
/// undoes what another one wrote.
#[test]
fn clients_that_share_blocks_lose_no_write() {
    const CLIENTS: usize = 8;
    const PART: usize = BLOCK / CLIENTS;
    const BLOCKS: usize = 8;
    const ROUNDS: usize = 60;
    let (_server, address) = server();
    let writes = Arc::default();
    let mut all: Vec<Nbd> = (0..CLIENTS)
        .map(|_| Nbd::connect(address, &writes))
        .collect();
    std::thread::scope(|scope| {
        for (number, nbd) in all.iter_mut().enumerate() {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let data = [(round * CLIENTS + number) as u8; PART];
                    for block in 0..BLOCKS {
                        nbd.ask(WRITE, 0, block * BLOCK + number * PART, PART, &data);
                    }
                    for _ in 0..BLOCKS {
                        assert_eq!(nbd.replied(), 0);
                    }
                    for block in 0..BLOCKS {
                        assert_eq!(
                            nbd.read(block * BLOCK + number * PART, PART),
                            data,
                            "round {round}"
                        );
                    }
                }
            });
        }
    });
    // Writes of whole blocks beside writes of parts: the part is written before or after the whole.
    let [whole, part, ..] = &mut all[..] else {
        panic!("eight clients")
    };
    for round in 0..ROUNDS {
        whole.ask(WRITE, 0, 0, BLOCK, &[round as u8; BLOCK]);
        part.ask(WRITE, 0, 512, 512, &[0xff; 512]);
        assert_eq!((whole.replied(), part.replied()), (0, 0));
        let found = whole.read(0, BLOCK);
        assert!(
            found[..512]
                .iter()
                .chain(&found[1024..])
                .all(|byte| *byte == round as u8),
            "round {round}"
        );
    }
    whole.write(0, &[0; BLOCK]);
}

/// A client that disconnects gets the replies to the requests that it sent before.
#[test]
fn requests_before_a_disconnect_are_replied_to() {
    let (_server, address) = server();
    let mut nbd = Nbd::connect(address, &Arc::default());
    for number in 0..50 {
        nbd.ask(WRITE, 0, 100 * number, 100, &[number as u8; 100]);
    }
    nbd.ask(2, 0, 0, 0, &[]);
    for _ in 0..50 {
        assert_eq!(nbd.replied(), 0);
    }
    assert_eq!(nbd.0.read(&mut [0]).unwrap(), 0, "the connection ends");
    let mut again = Nbd::connect(address, &Arc::default());
    for number in 0..50 {
        assert_eq!(again.read(100 * number, 100), [number as u8; 100]);
    }
}

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Stop,
    Disconnect,
    ClientGone,
    Fault,
}

/// However a session ends, the target has executed its outstanding write when the controller is shut down,
/// and nothing afterwards.
#[test]
fn every_end_waits_for_outstanding_writes_and_shuts_down_the_controller() {
    const DISCONNECT: u16 = 2;
    let size = peer::BLOCKS as usize * peer::BLOCK;
    for ending in [
        Ending::Stop,
        Ending::Disconnect,
        Ending::ClientGone,
        Ending::Fault,
    ] {
        let peer = Peer::start(Behaviour {
            holds_writes: true,
            ..Behaviour::default()
        });
        let stop = Stop::new().unwrap();
        let (mut nbd, thread) =
            Nbd::with_end(peer.address, &Arc::default(), size, Arc::clone(&stop));
        nbd.ask(WRITE, 0, 0, BLOCK, &[7; BLOCK]);
        while peer.seen().commands.get(&1) != Some(&1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut nbd = Some(nbd);
        match ending {
            Ending::Stop => {
                stop.request();
                // This request comes too late: it is neither executed nor answered.
                nbd.as_mut()
                    .unwrap()
                    .ask(WRITE, 0, BLOCK, BLOCK, &[8; BLOCK]);
            }
            Ending::Disconnect => nbd.as_mut().unwrap().ask(DISCONNECT, 0, 0, 0, &[]),
            Ending::ClientGone => nbd = None,
            Ending::Fault => nbd.as_mut().unwrap().0.write_all(&[0; 28]).unwrap(),
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(
            !thread.is_finished() && !peer.is_shut_down(),
            "{ending:?} does not wait for the write"
        );
        peer.release_writes();
        let ended = thread.join().unwrap();
        assert!(peer.is_shut_down(), "{ending:?}: {ended:?}");
        let seen = peer.seen();
        assert_eq!(
            (seen.commands[&1], seen.written, seen.written_after_shutdown),
            (1, 1, 0),
            "{ending:?}"
        );
        match ending {
            Ending::Stop | Ending::Disconnect => {
                ended.unwrap();
                let mut nbd = nbd.unwrap();
                assert_eq!(nbd.replied(), 0, "{ending:?}: the write is answered");
                // On a socket with unread data of the client the end is a reset.
                assert!(matches!(nbd.0.read(&mut [0; 1]), Ok(0) | Err(_)));
            }
            Ending::ClientGone => assert!(matches!(ended, Err(NbdError::Stream(_))), "{ended:?}"),
            Ending::Fault => assert!(matches!(ended, Err(NbdError::Fault(_))), "{ended:?}"),
        }
    }
}

#[test]
fn a_controller_that_is_not_shut_down_is_an_error_after_a_limited_time() {
    let size = peer::BLOCKS as usize * peer::BLOCK;
    let peer = Peer::start(Behaviour {
        shuts_down: false,
        ..Behaviour::default()
    });
    let stop = Stop::new().unwrap();
    let (_nbd, thread) = Nbd::with_end(peer.address, &Arc::default(), size, Arc::clone(&stop));
    stop.request();
    let ended = thread.join().unwrap();
    assert!(
        matches!(ended, Err(NbdError::NotShutDown(HostError::NotShutDown(_)))),
        "{ended:?}"
    );
}
