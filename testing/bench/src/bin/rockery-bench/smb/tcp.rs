//! SMB 2 over TCP: each message with its length before it (MS-SMB2 2.1).

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::client::Carrier;

/// How long a server may take to answer.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest message that the length field has room for.
const LENGTH_MAX: usize = 0x00ff_ffff;

/// A connection over TCP.
#[derive(Debug)]
pub(super) struct Tcp(TcpStream);

impl Tcp {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, SILENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self(stream))
    }
}

impl Carrier for Tcp {
    fn send(&mut self, message: &[u8], data: &[u8]) -> io::Result<()> {
        let length = message.len() + data.len();
        if length > LENGTH_MAX {
            return Err(io::Error::other(
                "a message is longer than SMB over TCP allows",
            ));
        }
        let length = (length as u32).to_be_bytes();
        let mut parts = &mut [
            IoSlice::new(&length),
            IoSlice::new(message),
            IoSlice::new(data),
        ][..];
        while !parts.is_empty() {
            let sent = self.0.write_vectored(parts)?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut parts, sent);
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> io::Result<()> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        message.resize(u32::from_be_bytes(length) as usize & LENGTH_MAX, 0);
        self.0.read_exact(message)
    }
}
