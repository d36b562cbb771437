//! Tests of the server crate over sockets.

mod http;
