//! All functions that the table of symbols marks as `here`.

pub(crate) use rdma_cm::rdma_event_str;
pub(crate) use rdma_cm::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
pub(crate) use rdma_cm::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
pub(crate) use rdma_cm::{
    rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port, rdma_resolve_addr, rdma_resolve_route,
};
pub(crate) use rdma_cm::{rdma_create_ep, rdma_destroy_ep};
pub(crate) use rdma_cm::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
pub(crate) use rdma_cm::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp, rdma_init_qp_attr};
pub(crate) use rdma_cm::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
pub(crate) use rdma_cm::{rdma_free_devices, rdma_get_devices};
pub(crate) use rdma_cm::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub(crate) use rdma_cm::{rdma_get_remote_ece, rdma_set_local_ece, rdma_set_option};
pub(crate) use rdma_cm::{rdma_get_request, rdma_listen};
pub(crate) use rdma_cm::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub(crate) use rdma_cm::{rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event};
pub(crate) use rsocket::{
    raccept, rbind, rclose, rconnect, repoll_create, repoll_ctl, repoll_wait, rfcntl, rgetpeername,
    rgetsockname, rgetsockopt, riomap, riounmap, riowrite, rlisten, rpoll, rread, rreadv, rrecv,
    rrecvfrom, rrecvmsg, rselect, rsend, rsendmsg, rsendto, rsetsockopt, rshutdown, rsocket,
    rwrite, rwritev,
};
