//! TLS over a non-blocking socket.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};

use super::{Psk, Refusal};
use crate::auth::Hash;
use crate::sys::tls;

/// The longest plaintext of a record in bytes (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// The settings of both sides: TLS 1.3 with the two cipher suites of TCP transport 3.6.1.4, without
/// resumption.
fn settings(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    let names = [Hash::Sha384, Hash::Sha256]
        .map(|hash| tls::cipher(hash).0)
        .join(":");
    context.set_ciphersuites(&names)?;
    context.set_options(SslOptions::NO_TICKET | SslOptions::IGNORE_UNEXPECTED_EOF);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(context)
}

/// The server side of TLS.
#[derive(Clone, Debug)]
pub struct Acceptor(SslContext);

impl Acceptor {
    /// A server without PSKs.
    ///
    /// # Errors
    /// When OpenSSL reports an error.
    pub fn new() -> io::Result<Self> {
        let mut context = settings(SslMethod::tls_server())?;
        context.set_num_tickets(0)?;
        tls::ask(&mut context);
        Ok(Self(context.build()))
    }

    /// Performs the handshake as the server; `find` returns the PSKs of an identity, of which the client has
    /// to have one.
    ///
    /// # Errors
    /// When the handshake is not done in time, the socket is shut down, or `find` knows no PSK of the client.
    pub fn accept(
        &self,
        stream: TcpStream,
        find: impl Fn(&str) -> Vec<Psk> + Send + Sync + 'static,
        connect_timeout: Duration,
    ) -> io::Result<(TlsStream, Psk)> {
        let mut ssl = Ssl::new(&self.0)?;
        tls::look_for_key(&mut ssl, Box::new(find));
        ssl.set_accept_state();
        let tls_stream = TlsStream::new(ssl, stream, connect_timeout)?;
        let psk = tls::key_of(tls_stream.stream.ssl()).cloned();
        Ok((tls_stream, psk.ok_or(ErrorKind::PermissionDenied)?))
    }
}

/// The client side of TLS.
#[derive(Clone, Debug)]
pub struct Connector(SslContext);

impl Connector {
    /// A client for any PSK.
    ///
    /// # Errors
    /// When OpenSSL reports an error.
    pub fn new() -> io::Result<Self> {
        let mut context = settings(SslMethod::tls_client())?;
        // Without a trusted certificate authority no certificate is accepted: only the PSK is.
        context.set_verify(SslVerifyMode::PEER);
        tls::offer(&mut context);
        Ok(Self(context.build()))
    }

    /// Performs the handshake as the client.
    ///
    /// # Errors
    /// When the handshake is not done in time, or the server does not have the PSK.
    pub fn connect(
        &self,
        stream: TcpStream,
        psk: Psk,
        connect_timeout: Duration,
    ) -> io::Result<TlsStream> {
        let mut ssl = Ssl::new(&self.0)?;
        ssl.set_ciphersuites(tls::cipher(psk.hash).0)?;
        tls::use_key(&mut ssl, psk);
        ssl.set_connect_state();
        TlsStream::new(ssl, stream, connect_timeout)
    }
}

/// A TLS connection after its handshake.
#[derive(Debug)]
pub struct TlsStream {
    stream: SslStream<TcpStream>,
    /// The record that is being sent, from its first byte until OpenSSL has taken all of it: a record that
    /// was begun has to be repeated unchanged.
    record: Vec<u8>,
}

impl TlsStream {
    fn new(ssl: Ssl, stream: TcpStream, connect_timeout: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + connect_timeout;
        let mut stream = SslStream::new(ssl, stream)?;
        while let Err(error) = stream.do_handshake() {
            let writes = match error.code() {
                ErrorCode::WANT_READ => false,
                ErrorCode::WANT_WRITE => true,
                _ => {
                    let refusal = tls::refusal_of(stream.ssl()).map(Refusal::to_string);
                    return Err(refused(error, refusal));
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            os::wait::wait([(stream.get_ref().as_raw_fd(), writes)], left)?;
        }
        // A handshake with an external PSK counts as a resumption.
        if !stream.ssl().session_reused() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Self {
            stream,
            record: Vec::with_capacity(RECORD_BYTES_MAX),
        })
    }

    /// The TCP socket below.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The TCP socket, for registration with a poll.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// Receives plaintext; 0 at the end of the stream.
    ///
    /// # Errors
    /// The error of the socket, or a record that fails authentication.
    pub fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self.stream.ssl_read(place) {
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(0),
            result => result.map_err(plain),
        }
    }

    /// Sends from the beginning of `pieces`; returns how many bytes were taken. Until then the same bytes
    /// have to be passed again, possibly with more behind them.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.record.is_empty() {
            for piece in pieces {
                let room = RECORD_BYTES_MAX - self.record.len();
                self.record
                    .extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        let bytes = self.stream.ssl_write(&self.record).map_err(plain)?;
        self.record.clear();
        Ok(bytes)
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // close_notify tells the peer that the stream was not truncated.
        _ = self.stream.shutdown();
    }
}

/// The error of a handshake, with the reason of the server if it refused the PSKs of the client.
fn refused(error: openssl::ssl::Error, refusal: Option<String>) -> io::Error {
    match refusal {
        Some(refusal) => io::Error::new(ErrorKind::PermissionDenied, refusal),
        None => error.into_io_error().unwrap_or_else(io::Error::other),
    }
}

fn plain(error: openssl::ssl::Error) -> io::Error {
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => ErrorKind::WouldBlock.into(),
        ErrorCode::ZERO_RETURN => ErrorKind::UnexpectedEof.into(),
        _ => error.into_io_error().unwrap_or_else(io::Error::other),
    }
}
