//! Lists the RDMA-CM listeners of this host.

use crate::agent::connect_existing;
use crate::agent::protocol::{ANSWER_BYTES, Answer, Ask, REQUEST_BYTES, Request};
use crate::error::OpenError;
use link::unix;
use rnic::cm::ListenAddress;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use wire::cm::PortSpace;

/// Time that the agent may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A listener of a program, by its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listening {
    /// Port space: connections or datagrams.
    pub space: PortSpace,
    /// Port number in its port space.
    pub port: u16,
    /// Local address that the listener is bound to.
    pub address: ListenAddress,
}

/// All listeners of this user's programs in this network namespace.
///
/// # Errors
/// [`OpenError`] names the reason why the agent cannot be queried, and the remedy.
pub fn listeners() -> Result<Vec<Listening>, OpenError> {
    let Some(lease) = connect_existing()? else {
        return Ok(Vec::new());
    };
    let fd = lease.connection.as_raw_fd();
    unix::set_timeouts(fd, TIMEOUT).map_err(OpenError::Agent)?;
    let mut found = Vec::new();
    for count in 0..u16::MAX {
        let address = ListenAddress::Any;
        let request = Request {
            ask: Ask::List,
            space: PortSpace::Tcp,
            port: 0,
            count,
            address,
            shared: false,
        };
        unix::send(fd, &request.to_bytes(), None).map_err(OpenError::Agent)?;
        let mut bytes = [0; REQUEST_BYTES];
        match unix::receive_next(fd, &mut bytes).map_err(OpenError::Agent)? {
            REQUEST_BYTES => {}
            ANSWER_BYTES => {
                let answer = bytes
                    .first_chunk()
                    .map_or(Ok(0), |answer| Answer::parse(*answer));
                return match answer {
                    Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                        Err(OpenError::Agent(error))
                    }
                    _ => Ok(found),
                };
            }
            _ => {
                return Err(OpenError::Agent(io::Error::from(
                    io::ErrorKind::UnexpectedEof,
                )));
            }
        }
        let listener = Request::parse(&bytes);
        found.extend(listener.map(
            |Request {
                 space,
                 port,
                 address,
                 ..
             }| Listening {
                space,
                port,
                address,
            },
        ));
    }
    Ok(found)
}
