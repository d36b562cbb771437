//! Limits of relayed connections, each with its reason.

use std::time::Duration;

/// The longest message of a connection without a session that is collected as a whole: a SESSION_SETUP with
/// a Kerberos ticket has up to 64 KiB, and it is not collected.
pub const UNAUTHENTICATED_MESSAGE_MAX: u32 = 64 << 10;
/// The longest compound that is collected as a whole, which is the longest message that a connection takes.
pub const MESSAGE_MAX: u32 = (8 << 20) + (64 << 10);
/// The most bytes of one READ or WRITE with buffer descriptors (MaxReadWriteSize).
pub const READ_WRITE_MAX: u32 = 8 << 20;
/// The most bytes of a READ that are moved together: these go to the client while the next ones come, and
/// stay in the processor's cache meanwhile.
pub const PART_BYTES: u32 = 128 << 10;
/// Unanswered requests with buffer descriptors: Samba grants 8192 credits at most.
pub const REQUESTS_MAX: usize = 8192;
/// Buffer descriptors of all unanswered requests of a connection: 4 MiB. Windows sends up to 31 in one.
pub const DESCRIPTORS_MAX: usize = 1 << 18;
/// Bytes that wait for the TCP peer, from which on no more receives are posted.
pub const TO_TCP_MAX: usize = 1 << 20;
/// Bytes that wait to be sent as fragments, from which on the TCP connection is not read.
pub const TO_DIRECT_MAX: usize = 256 << 10;
/// Registered data buffers of all connections together, in bytes.
pub const DATA_BYTES: usize = 512 << 20;
/// Memory of all clients together that have not proved who they are: connections without a session, and those
/// with the session of a guest or an anonymous user. Half-open connections are part of it.
pub const UNAUTHENTICATED_BYTES: usize = 64 << 20;
/// What a connection costs without its receives, sends and data: queue pair, completion queue, the stack of
/// its thread, the staging area of TCP. Measured with 512 connections: 155 KiB each.
pub const CONNECTION_BYTES: usize = 160 << 10;
/// Receives that are posted, and send buffers that are used, before a session is set up.
pub const RECEIVES_BEFORE_TRUST: u16 = 8;
/// Bytes that wait for the TCP peer or for the SMB Direct peer of an unauthenticated client, from which on no
/// more are taken.
pub const UNAUTHENTICATED_QUEUE_MAX: usize = 64 << 10;
/// Connections of all clients. An address, or the /64 of an IPv6 address, gets no more than are left, so that
/// clients of one machine cannot keep another one out.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections of one address without a session, or with one of a guest.
pub const ADDRESS_UNAUTHENTICATED_MAX: usize = 128;
/// Half-open connections of all listeners, which their peers have not confirmed (RTU).
pub const HALF_OPEN_MAX: usize = 128;
/// How long a peer may take to confirm its connection.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to set up a session.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connecting to the TCP server may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is taken for granted that a server which took a connection takes the next one.
pub const REACHABLE_TIME: Duration = Duration::from_secs(1);
/// How long clients are refused after the server took no connection, before it is asked again.
pub const UNREACHABLE_TIME: Duration = Duration::from_millis(200);
/// Connection requests that the connection manager queues: fewer than [`HALF_OPEN_MAX`], so that an RTU
/// behind them still finds its connection.
pub const BACKLOG: i32 = 64;
