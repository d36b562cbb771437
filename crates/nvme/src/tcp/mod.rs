//! NVMe/TCP, the controller's side: bytes become commands and data, and completions and data become bytes.
//!
//! [`Connection`] knows no socket. Read from one into [`Connection::room`], say so with
//! [`Connection::received`]; hand [`Connection::task`]s to an engine and give back what it finished; write
//! [`Connection::pieces`], say so with [`Connection::sent`]. A connection that [`Connection::is_over`] is
//! closed
//! when everything has been written.

mod connection;
mod inbound;
mod outbound;

pub use connection::{Closing, Connection};
