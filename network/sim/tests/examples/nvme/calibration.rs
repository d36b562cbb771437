//! Figures to which constants of the model are fitted: they show that the fit holds, not that the model is
//! right.

use super::{near, run, storage, throughput};

/// Fitted: the tail of the drive's latency, by RDMA's 99th percentile; how often and how long cores are late,
/// by TCP's 99th percentile and maximum.
#[test]
fn tails_of_small_reads_are_as_published() {
    let latency = |file: &str| storage(&run(file, &[])).latency_us.unwrap();
    let (rdma, tcp) = (latency("nvme/rdma.toml"), latency("nvme/tcp.toml"));
    near(rdma.p99, 12.5);
    near(tcp.p99, 120.0);
    near(tcp.max, 200.0);
}

/// Fitted: a PCIe link of 2.0 x8 in the hosts that use TCP.
#[test]
fn large_reads_over_tcp_have_the_published_rate() {
    near(throughput("nvme/tcp.toml", "read"), 3.8);
}
