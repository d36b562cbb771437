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
/// Receives that are posted before a session is set up. A connection without one costs 128 KiB.
pub const RECEIVES_BEFORE_TRUST: u16 = 16;
/// Connections of all clients.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections of all clients without a session: with their receives they take at most 64 MiB.
pub const UNAUTHENTICATED_MAX: usize = 512;
/// Connections of one address without a session.
pub const ADDRESS_UNAUTHENTICATED_MAX: usize = 128;
/// Half-open connections, which their peers have not confirmed (RTU).
pub const HALF_OPEN_MAX: usize = 128;
/// How long a peer may take to confirm its connection.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to set up a session.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connecting to the TCP server may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connection requests that the connection manager queues.
pub const BACKLOG: i32 = 128;
