//! Tests of SMB Direct and of the relay to TCP: the transport against itself, by seed, and against hostile
//! peers; gateway and dial between a scripted client and a scripted server.

mod cases;
mod dial;
mod gateway;
mod hostile;
mod request;
mod simulation;
mod transfers;
mod world;
