//! Multicast groups of queue pairs.

use crate::qp::QpArg;
use abi::ibv_gid;
use ffi::{In, exports};
use rnic::Gid;

exports! {
    fn ibv_attach_mcast(queue: QpArg<'_>, group: In<'_, *const ibv_gid>, _lid: u16) -> code(i32) {
        let (queue, group) = (queue.get()?, Gid(group.get()?.raw));
        Ok(queue.context.device.attach_multicast(queue.qpn, group)?)
    }

    fn ibv_detach_mcast(queue: QpArg<'_>, group: In<'_, *const ibv_gid>, _lid: u16) -> code(i32) {
        let (queue, group) = (queue.get()?, Gid(group.get()?.raw));
        Ok(queue.context.device.detach_multicast(queue.qpn, group)?)
    }
}
