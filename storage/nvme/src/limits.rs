//! Every limit of the target, with its reason. A request beyond a limit is refused with the status or error
//! named here; a host can make the target use no memory beyond these limits.

use std::time::Duration;

/// Entries of a queue: CAP.MQES + 1. A Connect with more gets "invalid parameters".
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// Entries of an admin queue, as the discovery log reports; Base 6.3 requires at least 32.
pub const ADMIN_ENTRIES: u16 = 32;
/// I/O queues of a controller. "Number of Queues" grants no more.
pub const IO_QUEUES_MAX: u16 = 128;
/// Controllers of a target: Connect gets "controller busy".
pub const CONTROLLERS_MAX: usize = 4096;
/// Connections of a target: a further connection is closed when it is accepted.
pub const CONNECTIONS_MAX: usize = 8192;
/// Unauthenticated connections from one address (before Connect or before its authentication): a further one
/// is closed. Other addresses are not affected.
pub const UNAUTHENTICATED_MAX: usize = 256;
/// Memory of all unauthenticated hosts of a server together: connections before Connect, TLS handshakes,
/// authentication, discovery, and hosts that need no secret where others need one. When it runs short, the
/// oldest connection of the address, or /64 of IPv6, with the most memory is closed.
pub const UNAUTHENTICATED_BYTES: usize = 64 << 20;
/// What a connection costs the server before its host is authenticated, in bytes, without its data buffers:
/// its thread, its sockets and its staging buffer.
pub const CONNECTION_BYTES: usize = 64 << 10;
/// What a TLS session costs in addition: the buffers of OpenSSL.
pub const TLS_BYTES: usize = 64 << 10;
/// What an entry of a queue costs over RDMA in addition, in bytes: its work requests, without buffers.
pub const RDMA_ENTRY_BYTES: usize = 512;
/// Commands that an unauthenticated host may have outstanding: it authenticates with one at a time.
pub const DEPTH_BEFORE_TRUST: u16 = 4;
/// Receive buffers of the RDMA connections of all authenticated hosts, and of all hosts of a server that asks
/// for no secret, shared fairly by hosts. A connection that gets fewer than it has queue entries still works:
/// further messages wait at their sender (RNR).
pub const RECEIVE_BYTES: usize = 512 << 20;
/// Receives of an RDMA connection whose host is connected and not authenticated, as for discovery.
pub const RECEIVES_OF_GUESTS: usize = 8;
/// RDMA connections of all addresses that their peers have not confirmed (RTU). They are limited because the
/// source address of a request may be spoofed. A new one replaces the oldest of the address with the most.
pub const HALF_OPEN_MAX: usize = 128;
/// The backlog of RDMA requests; further ones are dropped, and their hosts repeat them. It is shorter than
/// [`HALF_OPEN_MAX`], so that an RTU that is queued behind them still finds its connection.
pub const RDMA_BACKLOG: i32 = 64;
/// Receives of an RDMA connection until Connect and authentication are complete. Further messages wait at
/// their sender (RNR).
pub const RECEIVES_BEFORE_TRUST: usize = 2;
/// Connections from one address: a quarter of all, so that one machine cannot use up all of them. An address,
/// or the /64 of an IPv6 address, also gets no more than are left, so that several cannot either. A further
/// one is closed.
pub const ADDRESS_CONNECTIONS_MAX: usize = CONNECTIONS_MAX / 4;
/// The time from accepting a connection until its Connect and authentication are complete, unless the server
/// is configured otherwise. The connection is then closed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest transfer of one command, as a power of two of 4 KiB pages: MDTS of Identify. A longer one gets
/// "invalid field".
pub const TRANSFER_PAGES_LOG2: u8 = 8;
/// The longest transfer in bytes: 1 MiB.
pub const TRANSFER_BYTES_MAX: usize = 4096 << TRANSFER_PAGES_LOG2;
/// Reads of a memory namespace from this length on are sent from the memory of the store. A shorter read
/// that is sent from there is charged as many bytes, because a chunk that is written while it is lent exists
/// twice.
pub const LENT_BYTES_MIN: usize = 64 << 10;
/// Reads from this length on are sent from the memory of the store as well while the namespace is not
/// written. Shorter reads are copied.
pub const LENT_SHORT_BYTES_MIN: usize = 4096;
/// Short reads without a write between them after which the namespace counts as not being written: that many
/// save more time than the writes after them lose by copying lent chunks.
pub const LENT_SHORT_AFTER_READS: u32 = 16_384;
/// Reads from this length on are sent over TCP by reference while the namespace is not written: the socket
/// gets the pages of the store, and only the receiver copies them. For shorter reads that is no faster.
pub const REFERRED_BYTES_MIN: usize = 256 << 10;
/// Such reads without a write between them after which the namespace counts as not being written: a write of
/// a page to which a socket may still refer replaces the page, which costs about what a reference saves.
pub const REFERRED_AFTER_READS: u32 = 256;
/// Data of all commands of one queue that are being executed. Further commands wait.
pub const QUEUE_DATA_BYTES: usize = 16 << 20;
/// Data buffers of all connections of a server, free ones included, which hosts share fairly. Commands that
/// get no buffer wait.
pub const SERVER_DATA_BYTES: usize = 512 << 20;
/// The time in which a host has to accept at least [`STALL_BYTES`] of its responses, or send as much of the
/// data that it was asked for, because other hosts need the memory. The connection is then closed.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a change of rights waits for the commands that began before it. A disk that takes longer is
/// reported as an error.
pub const BARRIER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that have to move within [`STALL_TIMEOUT`].
pub const STALL_BYTES: usize = 64 << 10;
/// In-capsule data over TCP: as in nvmet. A longer capsule ends the connection.
pub const TCP_IN_CAPSULE: usize = 16 << 10;
/// In-capsule data on the admin queue over TCP, where the host cannot know the limit: TCP transport 1.0,
/// 3.4.2 gives 8 KiB.
pub const TCP_IN_CAPSULE_ADMIN: usize = 8 << 10;
/// In-capsule data over RDMA.
pub const RDMA_IN_CAPSULE: usize = 4096;
/// The longest shared receive queue of an RDMA device: 256 MiB of memory.
pub const SHARED_RECEIVES_MAX: u32 = 32_768;
/// The smallest shared receive queue: with fewer receives hosts would spend their time on RNR retries.
pub const SHARED_RECEIVES_MIN: u32 = 64;
/// Asynchronous event requests of a controller: AERL + 1 of Identify.
pub const EVENT_REQUESTS_MAX: usize = 4;
/// Events that wait for a request; a further event of a kind that waits is merged with it.
pub const EVENTS_MAX: usize = 64;
/// Abort commands at once: Identify reports one less in ACL.
pub const ABORTS_MAX: u8 = 4;
/// Entries of the error log; the oldest are discarded.
pub const ERRORS_MAX: usize = 64;
/// Namespaces of a subsystem.
pub const NAMESPACES_MAX: u32 = 1024;
/// Subsystems of a target.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Hosts that may be registered with a namespace: "Reservation Register" gets "capacity exceeded".
pub const REGISTRANTS_MAX: usize = 256;
/// Reservation notifications that wait to be read; the oldest are discarded.
pub const RESERVATION_NOTICES_MAX: usize = 64;
/// The highest ANA group identifier.
pub const ANA_GROUPS_MAX: u32 = 128;
/// The granularity of the keep alive timer: KAS of Identify, in units of 100 ms.
pub const KEEP_ALIVE_UNITS: u16 = 10;
/// The keep alive timeout of a discovery connection that requested none (Base 3.1.2.5 recommends two
/// minutes).
pub const DISCOVERY_KEEP_ALIVE_MS: u32 = 120_000;
/// Source ranges of a Copy (MSRC + 1); MSSRL and MCL follow from the size of a buffer.
pub const COPY_RANGES_MAX: u8 = 128;
/// Bytes that one Write Zeroes, Verify or Copy may cover, which bounds how long it occupies a thread.
pub const RANGE_BYTES_MAX: u64 = 1 << 30;
/// The largest memory namespace in bytes: its table of chunks stays below 100 MB.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Namespaces for which a queue has separate latency histograms; with a further one it starts with new
/// histograms.
pub const QUEUE_NAMESPACES_OBSERVED_MAX: usize = 64;
/// Data of the requests of one NBD client that are being executed: no further request is read then.
pub const NBD_CLIENT_BYTES: usize = 16 << 20;
/// What an NBD client costs at most before it has negotiated, in bytes, without its controller.
pub const NBD_NEGOTIATION_BYTES: usize = 1 << 20;
/// Data of the requests of all NBD clients of a process; a client without requests may always begin one.
pub const NBD_BYTES: usize = 256 << 20;
/// DH-HMAC-CHAP negotiations of one address that did not end in authentication, before further ones have to
/// wait.
pub const NEGOTIATIONS_MAX: u32 = 64;
/// Further such negotiations that an address may begin each second.
pub const NEGOTIATIONS_PER_SECOND: u32 = 2;
/// The longest authentication message in bytes, and the largest buffer for one; the longest in use, a Reply
/// with the largest group, has 1168.
pub const AUTHENTICATION_BYTES_MAX: u32 = 4096;
