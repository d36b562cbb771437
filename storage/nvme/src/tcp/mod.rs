//! NVMe/TCP on the side of the controller: bytes become commands and data, and completions and data become
//! bytes.
//!
//! [`Connection`] is independent of sockets. Bytes have to be read into [`Connection::room`] and announced by
//! [`Connection::received`]; each [`Connection::task`] has to be executed by an engine, and its result passed
//! back; the output of [`Connection::pieces`] has to be written and confirmed by [`Connection::sent`]. When
//! [`Connection::is_over`], the connection can be closed.

mod connection;
mod inbound;
mod outbound;

pub use connection::{Closing, Connection};
