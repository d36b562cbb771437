//! Every limit of the target, and why it is what it is. What a host asks beyond one is refused with the
//! status or the error named here; nothing else a host does makes the target grow.

use std::time::Duration;

/// Entries of a queue: CAP.MQES says one less. A Connect with more gets "invalid parameters".
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// Entries of an admin queue, as the discovery log says; Base 6.3 wants 32 at least.
pub const ADMIN_ENTRIES: u16 = 32;
/// I/O queues of a controller. "Number of Queues" grants no more.
pub const IO_QUEUES_MAX: u16 = 128;
/// Controllers of a target: Connect gets "controller busy".
pub const CONTROLLERS_MAX: usize = 4096;
/// Connections of a target: the next is closed as soon as it is accepted.
pub const CONNECTIONS_MAX: usize = 8192;
/// Connections from one address that have not said Connect yet, or not proved who they are: the next is
/// closed. Other addresses are not concerned.
pub const STRANGERS_MAX: usize = 256;
/// Connections from one address, so that one machine leaves room for three more: the next is closed.
pub const ADDRESS_CONNECTIONS_MAX: usize = CONNECTIONS_MAX / 4;
/// How long a connection may take until its Connect is complete, unless a server is told otherwise. It is
/// then closed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Data of one command, as a power of two of 4 KiB pages: Identify's MDTS. Longer gets "invalid field".
pub const TRANSFER_PAGES_LOG2: u8 = 8;
/// The same in bytes: 1 MiB.
pub const TRANSFER_BYTES_MAX: usize = 4096 << TRANSFER_PAGES_LOG2;
/// Reads of a disk in memory from here on are sent from where the disk lies: what is lent costs a copy of all
/// around it if it is written meanwhile.
pub const LENT_BYTES_MIN: usize = 64 << 10;
/// Data of all commands of one queue that are being worked on. Further commands wait.
pub const QUEUE_DATA_BYTES: usize = 16 << 20;
/// Data in a command capsule over TCP: what nvmet takes as well. Longer gets a termination.
pub const TCP_IN_CAPSULE: usize = 16 << 10;
/// The same on the admin queue, where the host cannot know: TCP transport 1.0, 3.4.2 gives 8 KiB.
pub const TCP_IN_CAPSULE_ADMIN: usize = 8 << 10;
/// Data in a command capsule over RDMA.
pub const RDMA_IN_CAPSULE: usize = 4096;
/// Receives that connections of one RDMA device may share: 256 MiB of memory.
pub const SHARED_RECEIVES_MAX: u32 = 32_768;
/// The fewest: fewer, and hosts would do nothing but try again.
pub const SHARED_RECEIVES_MIN: u32 = 64;
/// Asynchronous event requests of a controller: Identify's AERL says one less.
pub const EVENT_REQUESTS_MAX: usize = 4;
/// Events that wait for a request; one more of a kind that waits is the same event.
pub const EVENTS_MAX: usize = 64;
/// Aborts at once: Identify's ACL says one less.
pub const ABORTS_MAX: u8 = 4;
/// Entries of the error log, the oldest go first.
pub const ERRORS_MAX: usize = 64;
/// Namespaces of a subsystem.
pub const NAMESPACES_MAX: u32 = 1024;
/// Subsystems of a target.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Hosts that may be registered with a namespace: "Reservation Register" gets "capacity exceeded".
pub const REGISTRANTS_MAX: usize = 256;
/// Reservation notices that wait to be read, the oldest go first.
pub const RESERVATION_NOTICES_MAX: usize = 64;
/// The highest group of asymmetric access.
pub const ANA_GROUPS_MAX: u32 = 128;
/// Keep alive is counted in units of this: Identify's KAS, in units of 100 ms.
pub const KEEP_ALIVE_UNITS: u16 = 10;
/// A discovery connection that gave no keep alive timeout gets this one (Base 3.1.2.5 wants two minutes).
pub const DISCOVERY_KEEP_ALIVE_MS: u32 = 120_000;
/// Source ranges of a Copy, and blocks of one and of all: what fits into one buffer.
pub const COPY_RANGES_MAX: u8 = 128;
/// Bytes that one Write Zeroes, Verify or Copy may cover. It bounds how long others wait for a thread.
pub const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a memory namespace: its table of chunks stays below 100 MB.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Namespaces whose commands a queue counts apart at once; with one more it begins anew.
pub const QUEUE_NAMESPACES_OBSERVED_MAX: usize = 64;
/// Clients that read metrics at once: the next is closed.
pub const METRICS_CLIENTS_MAX: usize = 8;
/// Bytes of one message of authentication, and of the room for one: the longest, a reply with the largest
/// group, has 1168.
pub const AUTHENTICATION_BYTES_MAX: u32 = 4096;
