//! `librdmacm.so.1`: every name that programs import, so that they load. Connection management is not
//! there yet: each call fails with `ENOSYS`, the way its callers expect a failure.

mod absent;
mod exports;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
