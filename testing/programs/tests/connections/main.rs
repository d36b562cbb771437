//! Connections: RDMA-CM, librdmacm's programs and sockets over RDMA, also with the Linux kernel.

mod kernel;
mod libfabric;
mod librdmacm;
mod life;
mod places;
mod pyverbs;
mod rsocket;
mod wire;
