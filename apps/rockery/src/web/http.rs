//! HTTP/1.1 (RFC 9112), as far as one page needs it: one request per connection, with a length.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bytes of the request line and headers at most.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a body at most: a fabric file has 16 MiB at most, and JSON escapes some of its characters.
const BODY_BYTES_MAX: usize = 32 << 20;
/// How long a client may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A request of a browser: its first line, headers and body.
pub(super) struct Request {
    pub(super) method: String,
    target: String,
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Reads a whole request, the body included.
    ///
    /// # Errors
    /// `InvalidData` with the reason for what is not such a request; others of the connection.
    pub(super) fn read(stream: &TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        let mut limited = (&mut reader).take(HEAD_BYTES_MAX);
        while !head.ends_with(b"\r\n\r\n") {
            if limited.read_until(b'\n', &mut head)? == 0 {
                return Err(invalid("the headers are incomplete, or too long"));
            }
        }
        let mut request = Self::parse(&String::from_utf8_lossy(&head))?;
        let length = match request.header("content-length") {
            None => 0,
            Some(length) => length
                .parse()
                .map_err(|_| invalid("Content-Length is no number"))?,
        };
        if length > BODY_BYTES_MAX {
            return Err(invalid("the body has more than 32 MiB"));
        }
        request.body = vec![0; length];
        reader.read_exact(&mut request.body)?;
        Ok(request)
    }

    fn parse(head: &str) -> io::Result<Self> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(invalid("the first line is no request of HTTP/1.1"));
        };
        let headers = lines.take_while(|line| !line.is_empty()).map(|line| {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| invalid("a header has no colon"))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let headers = headers.collect::<io::Result<Vec<_>>>()?;
        if headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Err(invalid("a body needs Content-Length"));
        }
        Ok(Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body: Vec::new(),
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The path of the target, without the query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether the body is JSON. Pages of other sites cannot send this type without asking first.
    pub(super) fn is_json(&self) -> bool {
        self.header("content-type")
            .is_some_and(|media| media.split(';').next() == Some("application/json"))
    }

    /// Whether the client meant this server, and comes from one of its own pages.
    pub(super) fn is_for(&self, address: SocketAddr) -> bool {
        let names = [address.to_string(), format!("localhost:{}", address.port())];
        let is_ours = |host: &str| names.iter().any(|name| name == host);
        let origin = self
            .header("origin")
            .is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_ours));
        self.header("host").is_some_and(is_ours) && origin
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Whether the client has closed the connection.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let closed = match stream.peek(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).is_err() || closed
}

/// A response, after which the connection is closed.
pub(super) struct Reply {
    status: &'static str,
    media: &'static str,
    body: Vec<u8>,
}

impl Reply {
    pub(super) fn new(media: &'static str, body: Vec<u8>) -> Self {
        Self {
            status: "200 OK",
            media,
            body,
        }
    }

    pub(super) fn refusal(status: &'static str, why: &str) -> Self {
        Self {
            status,
            media: "text/plain; charset=utf-8",
            body: format!("{why}\n").into_bytes(),
        }
    }

    /// Writes the response with its length.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let Self {
            status,
            media,
            body,
        } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Request {
        Request::parse(head).unwrap()
    }

    #[test]
    fn a_request_for_another_name_is_not_ours() {
        let address: SocketAddr = "127.0.0.1:8470".parse().unwrap();
        assert!(parsed("GET / HTTP/1.1\r\nHost: localhost:8470\r\n\r\n").is_for(address));
        assert!(parsed("GET / HTTP/1.1\r\nhost:127.0.0.1:8470\r\n\r\n").is_for(address));
        assert!(!parsed("GET / HTTP/1.1\r\nHost: evil.example:8470\r\n\r\n").is_for(address));
        assert!(!parsed("GET / HTTP/1.1\r\n\r\n").is_for(address));
        let other =
            "POST /api/sim HTTP/1.1\r\nHost: localhost:8470\r\nOrigin: http://evil.example\r\n\r\n";
        assert!(!parsed(other).is_for(address));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in [
            "",
            "GET /\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nx\r\n\r\n",
        ] {
            assert!(Request::parse(head).is_err(), "{head:?}");
        }
        assert!(Request::parse("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        let request =
            parsed("GET /a.js?x HTTP/1.1\r\nContent-Type: application/json; charset=utf-8\r\n\r\n");
        assert_eq!((request.path(), request.is_json()), ("/a.js", true));
    }
}
