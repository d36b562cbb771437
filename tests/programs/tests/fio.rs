//! fio's engine for RDMA: its connections, and its WRITEs, READs and SENDs.

use programs::{Machine, Pair, Rockery, connection};

const SECONDS: u64 = 60;
const JOB: &str = "--ioengine=rdma --port=7710 --bs=64k --size=32m";

#[test]
fn fio_moves_its_blocks_by_every_verb() {
    let pair = Pair::new(9000).expect("a pair").with(&Rockery::built());
    let address = pair.left.address();
    for verb in ["write", "read", "send"] {
        // It does not wait for a receiver that is not ready: the server has more receives than SENDs come.
        let server = format!("fio --name=server {JOB} --rw=read --iodepth=64");
        let client =
            format!("fio --name=client {JOB} --rw=write --iodepth=8 --hostname={address} --verb={verb}");
        let exchange = connection::expect((&pair.left, &server), (&pair.right, &client), SECONDS);
        assert!(exchange.client.output.contains("io=32.0MiB"), "{verb}: {}", exchange.client.output);
    }
}
