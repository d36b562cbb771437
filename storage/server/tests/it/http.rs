//! The HTTP server: requests of every form, and clients beyond its limits.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use server::http::{Admission, Client, HttpServer, Limits, Request, Response, Users};
use server::metrics;
use socket2::{Domain, Socket, Type};

const LIMITS: Limits = Limits {
    users: Users::All,
    admission: Admission::AtMost(4),
    head_bytes: 200,
    body_bytes: 100,
    exchange_time: Duration::from_secs(20),
};

/// A server that says what it was asked.
fn start(limits: Limits) -> SocketAddr {
    let server = HttpServer::bind(([127, 0, 0, 1], 0).into(), limits).unwrap();
    let address = server.address();
    let echo = |request: &Request, _: &Client<'_>| {
        let said = format!(
            "{} {} {:?}",
            request.method(),
            request.path(),
            request.body()
        );
        Response::new("text/plain", said)
    };
    std::thread::spawn(move || server.run("echo", echo));
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// All that the server sends until it closes the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8(said).unwrap()
}

fn asked(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    rest(&mut stream)
}

#[test]
fn a_request_may_come_in_pieces_and_with_more_behind_it() {
    let address = start(LIMITS);
    let mut stream = connect(address);
    for piece in [
        "POST /a?b=c HTTP/1.1\r\nContent-",
        "Length: 3\r\n\r\n\u{1}",
        "\u{2}\u{3}GET /",
    ] {
        stream.write_all(piece.as_bytes()).unwrap();
        stream.flush().unwrap();
    }
    let said = rest(&mut stream);
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    assert!(
        said.contains("\r\nConnection: close\r\n") && said.contains("\r\nContent-Length: 17\r\n")
    );
    assert!(said.ends_with("\r\n\r\nPOST /a [1, 2, 3]"), "{said}");
}

#[test]
fn what_is_no_request_within_the_limits_is_refused() {
    // The place of a client is free again some time after its answer: each request has one of its own.
    let address = start(Limits {
        admission: Admission::AtMost(16),
        ..LIMITS
    });
    let long_head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200));
    let endless = "GET /".to_owned() + &"a".repeat(5000);
    for (request, why) in [
        ("GET / HTTP/2\r\n\r\n", "no request of HTTP/1.1"),
        ("GET /\r\n\r\n", "no request of HTTP/1.1"),
        ("GET / HTTP/1.1\r\nx\r\n\r\n", "no request of HTTP/1.1"),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "needs Content-Length",
        ),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "no number"),
        (
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "more than one",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n",
            "the body has more than 100 bytes",
        ),
        (&long_head, "the head has more than 200 bytes"),
        (&endless, "the head has more than 200 bytes"),
    ] {
        let said = asked(address, request.as_bytes());
        assert!(
            said.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{request:?}: {said}"
        );
        assert!(said.contains(why), "{request:?}: {said}");
    }
}

/// A client that sends a byte now and then does not pass the deadline, and half a request gets no answer.
#[test]
fn slow_clients_are_closed_and_their_places_are_free_again() {
    let address = start(Limits {
        exchange_time: Duration::from_millis(200),
        ..LIMITS
    });
    let mut slow: Vec<TcpStream> = (0..4).map(|_| connect(address)).collect();
    slow.iter_mut()
        .for_each(|it| it.write_all(b"GET /").unwrap());
    let mut feeder = slow[0].try_clone().unwrap();
    std::thread::spawn(move || {
        while feeder.write_all(b"T").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    for stream in &mut slow {
        assert_eq!(rest(stream), "");
    }
    let mut half = connect(address);
    half.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut half), "");
    while !asked(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_beyond_the_limit_is_closed() {
    let limits = Limits {
        exchange_time: Duration::from_secs(600),
        ..LIMITS
    };
    let address = start(limits);
    let mut waiting: Vec<TcpStream> = (0..4).map(|_| connect(address)).collect();
    assert_eq!(asked_if_open(address), "");
    for stream in &mut waiting {
        stream.write_all(b"GET /kept HTTP/1.1\r\n\r\n").unwrap();
        assert!(rest(stream).contains("GET /kept"));
    }
}

/// As [`asked`], where the connection may be closed before the request is sent.
fn asked_if_open(address: SocketAddr) -> String {
    let mut stream = connect(address);
    _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
    rest(&mut stream)
}

#[test]
fn a_long_computation_learns_that_its_client_is_gone() {
    let server = HttpServer::bind(([127, 0, 0, 1], 0).into(), LIMITS).unwrap();
    let address = server.address();
    let (began, has_begun) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    let compute = move |_: &Request, client: &Client<'_>| {
        began.send(client.is_gone()).unwrap();
        while !client.is_gone() {
            std::thread::sleep(Duration::from_millis(1));
        }
        ended.send(()).unwrap();
        Response::new("text/plain", "too late")
    };
    std::thread::spawn(move || server.run("compute", compute));
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(!has_begun.recv().unwrap(), "the client is there");
    drop(stream);
    has_ended.recv().unwrap();
}

/// A connection from 127.0.0.`host`.
fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let own = SocketAddr::from(([127, 0, 0, host], 0));
    socket.bind(&own.into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// Clients that send no request, of four addresses, give way to one of a fifth address.
#[test]
fn slow_clients_of_the_metrics_port_keep_no_other_client_out() {
    let server = metrics::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = server.address();
    metrics::start(server, || "up 1\n".to_owned()).unwrap();
    let slow: Vec<_> = (0..100)
        .map(|number| connect_from(2 + number % 4, address))
        .collect();
    assert_eq!(slow.len(), 100);
    let mut client = connect_from(9, address);
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let said = rest(&mut client);
    assert!(
        said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\nup 1\n"),
        "{said}"
    );
    drop(slow);
    assert!(asked(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(asked(address, b"PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
}

proptest! {
    /// Whatever a client sends, the server answers in the form of HTTP/1.1 or closes the connection.
    #[test]
    fn any_bytes_are_answered_or_refused(
        line in "(GET|POST|)( /[a-z?]{0,9})?( HTTP/1\\.[01])?",
        headers in prop::collection::vec("(Content-Length|Host|[!-~]{0,9}):? ?[ -~]{0,9}", 0..4),
        behind in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let address = *ADDRESS;
        let mut stream = connect(address);
        let head = format!("{line}\r\n{}\r\n\r\n", headers.join("\r\n"));
        _ = stream.write_all(head.as_bytes());
        _ = stream.write_all(&behind);
        _ = stream.shutdown(Shutdown::Write);
        let said = rest(&mut stream);
        let is_answer = ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 400 Bad Request\r\n"]
            .iter()
            .any(|status| said.starts_with(status));
        prop_assert!(said.is_empty() || is_answer, "{}", said);
    }
}

static ADDRESS: std::sync::LazyLock<SocketAddr> = std::sync::LazyLock::new(|| start(LIMITS));

/// Other users are tried in `testing/programs/tests/documents/web.rs`.
#[test]
fn a_server_for_its_own_user_answers_processes_of_that_user() {
    let limits = Limits {
        users: Users::Own,
        ..LIMITS
    };
    let said = asked(start(limits), b"GET /own HTTP/1.1\r\n\r\n");
    assert!(said.contains("GET /own"), "{said}");
}
