//! NVMe over RDMA and TCP: rockery as the target and as the host.

mod auth;
mod blktests;
mod crash;
mod ends;
mod faults;
mod flood;
mod host;
mod identity;
mod kernel;
mod media;
mod nbd;
mod nvme_cli;
mod observed;
mod protocol_violations;
mod rdma;
mod tls;
mod users;
