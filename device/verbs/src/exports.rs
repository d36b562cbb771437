//! All functions that the table of symbols marks as `here`.

pub(crate) use crate::address::{
    ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc,
};
pub(crate) use crate::buffer::{
    ibv_alloc_buf, ibv_export_buf_dmabuf_fd, ibv_free_buf, ibv_reg_buf_mr, ibv_reg_mr_ex,
};
pub(crate) use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
pub(crate) use crate::completion_events::{ibv_ack_cq_events, ibv_get_cq_event};
pub(crate) use crate::cq::{ibv_destroy_cq, ibv_resize_cq, rockery_await_cq};
pub(crate) use crate::cq_create::ibv_create_cq;
pub(crate) use crate::device::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name,
};
pub(crate) use crate::dmabuf::ibv_reg_dmabuf_mr;
pub(crate) use crate::events::{ibv_ack_async_event, ibv_get_async_event};
pub(crate) use crate::import::{
    ibv_import_device, ibv_import_dm, ibv_import_mr, ibv_import_pd, ibv_unimport_dm,
    ibv_unimport_mr, ibv_unimport_pd,
};
pub(crate) use crate::memory::{
    ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2, ibv_rereg_mr,
};
pub(crate) use crate::multicast::{ibv_attach_mcast, ibv_detach_mcast};
pub(crate) use crate::open::{ibv_close_device, ibv_open_device};
pub(crate) use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
pub(crate) use crate::qp::{
    ibv_destroy_qp, ibv_modify_qp, ibv_qp_to_qp_ex, ibv_query_ece, ibv_query_qp,
    ibv_query_qp_data_in_order, ibv_set_ece, rockery_take_arrived,
};
pub(crate) use crate::qp_create::ibv_create_qp;
pub(crate) use crate::query::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_get_pkey_index, ibv_query_device, ibv_query_gid,
    ibv_query_gid_type, ibv_query_pkey, ibv_query_port, ibv_query_port_speed,
};
pub(crate) use crate::rates::{
    ibv_rate_to_mbps, ibv_rate_to_mult, mbps_to_ibv_rate, mult_to_ibv_rate,
};
pub(crate) use crate::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub(crate) use crate::strings::{
    ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str, ibv_wr_opcode_str,
};
pub(crate) use crate::sysfs::{
    ibv_fork_init, ibv_get_sysfs_path, ibv_is_fork_initialized, ibv_read_sysfs_file,
};
