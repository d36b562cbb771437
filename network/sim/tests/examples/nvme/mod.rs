//! NVMe over RDMA and over TCP, against a published comparison, within 20 %: "RDMA's influence on server
//! storage: NVMe-oF against TCP/IP", a cloud provider's developer forum, 3 September 2025.

mod calibration;
mod prediction;
mod timeouts;

use super::{Ran, run};
use sim::report::WorkloadReport;

fn storage(ran: &Ran) -> &WorkloadReport {
    &ran.report.workloads[0]
}

#[track_caller]
fn near(value: f64, published: f64) {
    assert!(
        (value / published - 1.0).abs() <= 0.2,
        "{value}, and {published} is published"
    );
}

fn throughput(file: &str, operation: &str) -> f64 {
    let sets = [
        ("storage.0.block", "1MiB"),
        ("storage.0.operation", operation),
        ("storage.0.jobs", "16"),
        ("storage.0.ios", "20"),
    ];
    storage(&run(file, &sets)).goodput_bps / 8e9
}
