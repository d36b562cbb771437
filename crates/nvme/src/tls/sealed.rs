//! TLS over a socket that does not block.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode, SslVersion,
};

use super::Psk;
use crate::auth::Hash;
use crate::sys::{tls, wait};

/// Bytes of the longest record (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Settings of a side: TLS 1.3 with the two ciphers that the TCP transport names (3.6.1.4), and no
/// resumption.
fn settings(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    let names = [Hash::Sha384, Hash::Sha256].map(|hash| tls::cipher(hash).0).join(":");
    context.set_ciphersuites(&names)?;
    context.set_options(SslOptions::NO_TICKET | SslOptions::IGNORE_UNEXPECTED_EOF);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(context)
}

/// The side that is connected to.
#[derive(Clone, Debug)]
pub struct Acceptor(SslContext);

impl Acceptor {
    /// One that knows no keys yet.
    ///
    /// # Errors
    /// When OpenSSL cannot do what is needed.
    pub fn new() -> io::Result<Self> {
        let mut context = settings(SslMethod::tls_server())?;
        context.set_num_tickets(0)?;
        tls::ask(&mut context);
        Ok(Self(context.build()))
    }

    /// Agrees on keys with whoever connected, whose key `find` gives by its identity.
    ///
    /// # Errors
    /// When that is not done in time, or the other side has no key that `find` knows.
    pub fn accept(
        &self,
        stream: TcpStream,
        find: impl Fn(&str) -> Option<Psk> + Send + Sync + 'static,
        patience: Duration,
    ) -> io::Result<(Sealed, Psk)> {
        let mut ssl = Ssl::new(&self.0)?;
        tls::look_for_key(&mut ssl, Box::new(find));
        ssl.set_accept_state();
        let sealed = Sealed::new(ssl, stream, patience)?;
        let psk = tls::key_of(sealed.stream.ssl()).cloned();
        Ok((sealed, psk.ok_or(ErrorKind::PermissionDenied)?))
    }
}

/// The side that connects.
#[derive(Clone, Debug)]
pub struct Connector(SslContext);

impl Connector {
    /// One for any key.
    ///
    /// # Errors
    /// When OpenSSL cannot do what is needed.
    pub fn new() -> io::Result<Self> {
        let mut context = settings(SslMethod::tls_client())?;
        // Nobody signs certificates that would be believed: it is the key, or nothing.
        context.set_verify(SslVerifyMode::PEER);
        tls::offer(&mut context);
        Ok(Self(context.build()))
    }

    /// Agrees on keys with whom it connected to.
    ///
    /// # Errors
    /// When that is not done in time, or the other side does not have the key.
    pub fn connect(&self, stream: TcpStream, psk: Psk, patience: Duration) -> io::Result<Sealed> {
        let mut ssl = Ssl::new(&self.0)?;
        ssl.set_ciphersuites(tls::cipher(psk.hash).0)?;
        tls::use_key(&mut ssl, psk);
        ssl.set_connect_state();
        Sealed::new(ssl, stream, patience)
    }
}

/// A socket with TLS, after the handshake.
#[derive(Debug)]
pub struct Sealed {
    stream: SslStream<TcpStream>,
    /// What is being sent, from its beginning until all of it was taken: a record that was begun is finished.
    record: Vec<u8>,
}

impl Sealed {
    fn new(ssl: Ssl, stream: TcpStream, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        let mut stream = SslStream::new(ssl, stream)?;
        while let Err(error) = stream.do_handshake() {
            let writes = match error.code() {
                ErrorCode::WANT_READ => false,
                ErrorCode::WANT_WRITE => true,
                _ => return Err(error.into_io_error().unwrap_or_else(io::Error::other)),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait::wait([(stream.get_ref().as_raw_fd(), writes)], left)? {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        // That is what a handshake with such a key is.
        if !stream.ssl().session_reused() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Self { stream, record: Vec::with_capacity(RECORD_BYTES_MAX) })
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The socket, to be registered.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// Receives; 0 is the end.
    ///
    /// # Errors
    /// As the socket, and when what came was not sent by whom the key belongs to.
    pub fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self.stream.ssl_read(place) {
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(0),
            result => result.map_err(plain),
        }
    }

    /// Sends from the beginning of `pieces`; returns how many bytes. Until then the same pieces have to come
    /// again, more behind them or not.
    ///
    /// # Errors
    /// As the socket.
    pub fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.record.is_empty() {
            for piece in pieces {
                let room = RECORD_BYTES_MAX - self.record.len();
                self.record.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        let bytes = self.stream.ssl_write(&self.record).map_err(plain)?;
        self.record.clear();
        Ok(bytes)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // The other side then knows that nobody cut this short.
        _ = self.stream.shutdown();
    }
}

fn plain(error: openssl::ssl::Error) -> io::Error {
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => ErrorKind::WouldBlock.into(),
        ErrorCode::ZERO_RETURN => ErrorKind::UnexpectedEof.into(),
        _ => error.into_io_error().unwrap_or_else(io::Error::other),
    }
}
