//! A small RDMA program in Rust, with the crate `sideway`: two queue pairs of one device, a message from one
//! to the other, every byte checked.

use std::sync::Arc;

use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidEntry};
use sideway::ibverbs::completion::{
    ExtendedCompletionQueue, GenericCompletionQueue, WorkCompletionStatus,
};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry,
    WorkRequestFlags,
};
use sideway::ibverbs::AccessFlags;

type Failure = Box<dyn std::error::Error>;

const PORT: u8 = 1;
const BYTES: usize = 100_000;

fn connect(qp: &mut impl QueuePair, peer: u32, gid: &Gid, index: u8) -> Result<(), Failure> {
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(PORT);
    attr.setup_access_flags(AccessFlags::LocalWrite);
    qp.modify(&attr)?;

    let mut route = AddressHandleAttribute::new();
    route
        .setup_port(PORT)
        .setup_grh_src_gid_index(index)
        .setup_grh_dest_gid(gid)
        .setup_grh_hop_limit(64);
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024);
    attr.setup_dest_qp_num(peer)
        .setup_rq_psn(0)
        .setup_max_dest_read_atomic(0)
        .setup_min_rnr_timer(12);
    attr.setup_address_vector(&route);
    qp.modify(&attr)?;

    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(0)
        .setup_timeout(14);
    attr.setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(0);
    qp.modify(&attr)?;
    Ok(())
}

/// The entry of the GID table that an IPv4 address has, as RoCE needs it: GID and index.
fn roce_gid(context: &DeviceContext) -> Result<(Gid, u8), Failure> {
    let table = context.query_gid_table()?;
    let has_ipv4 = |entry: &&GidEntry| {
        std::net::Ipv6Addr::from(entry.gid())
            .to_ipv4_mapped()
            .is_some()
    };
    let entry = table
        .iter()
        .find(has_ipv4)
        .ok_or("the first device has no IPv4 address")?;
    Ok((entry.gid(), u8::try_from(entry.gid_index())?))
}

/// Polls until this many requests have completed.
fn wait_for(count: usize, cq: &ExtendedCompletionQueue) -> Result<(), Failure> {
    let mut completions = 0;
    while completions < count {
        let Ok(mut poller) = cq.start_poll() else {
            continue;
        };
        while let Some(done) = poller.next() {
            if done.status() != WorkCompletionStatus::Success as u32 {
                return Err(format!("status {}", done.status()).into());
            }
            completions += 1;
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let devices = DeviceList::new()?;
    let device = devices.iter().next().ok_or("there is no device")?;
    let context = device.open()?;
    println!("device {}", device.name());
    let (gid, index) = roce_gid(&context)?;

    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().setup_cqe(16).build_ex()?;
    let queue = GenericCompletionQueue::from(Arc::clone(&cq));
    let mut builder = pd.create_qp_builder();
    builder
        .setup_send_cq(queue.clone())
        .setup_recv_cq(queue)
        .setup_max_send_wr(4)
        .setup_max_recv_wr(4);
    let (mut one, mut two) = (builder.build_ex()?, builder.build_ex()?);
    let numbers = (one.qp_number(), two.qp_number());
    connect(&mut one, numbers.1, &gid, index)?;
    connect(&mut two, numbers.0, &gid, index)?;

    let from: Vec<u8> = (0..BYTES).map(|at| (at * 31 + (at >> 8)) as u8).collect();
    let mut to = vec![0_u8; BYTES];
    // SAFETY: both outlive their regions, and nothing touches them while the message is on its way.
    let (from_mr, to_mr) = unsafe {
        (
            pd.reg_mr(from.as_ptr() as usize, BYTES, AccessFlags::LocalWrite)?,
            pd.reg_mr(to.as_mut_ptr() as usize, BYTES, AccessFlags::LocalWrite)?,
        )
    };
    let mut receive = two.start_post_recv();
    // SAFETY: the region covers it.
    unsafe {
        receive
            .construct_wr(1)
            .setup_sge(to_mr.lkey(), to.as_mut_ptr() as u64, BYTES as u32)
    };
    receive.post()?;
    let mut send = one.start_post_send();
    let request = send
        .construct_wr(2, WorkRequestFlags::Signaled)
        .setup_send();
    // SAFETY: the region covers the bytes of `from`.
    unsafe { request.setup_sge(from_mr.lkey(), from.as_ptr() as u64, BYTES as u32) };
    send.post()?;

    wait_for(2, &cq)?;
    if from != to {
        return Err("what arrived is not what was sent".into());
    }
    println!("{BYTES} bytes sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_arrives() {
        super::main().unwrap();
    }
}
