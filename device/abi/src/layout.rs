//! Sizes and offsets, compared at compile time with those of rdma-core 44; tests compare the same list with
//! the installed headers, and with those of 64-bit ARM by the compiler for it.

use crate::*;
use core::mem::{offset_of, size_of};

/// The offsets of a struct's fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the struct in C.
    pub name: &'static str,
    /// Size in bytes; 0 where rockery's struct is longer than C's on purpose.
    pub size: usize,
    /// Field name in C, and its offset in bytes.
    pub fields: &'static [(&'static str, usize)],
}

macro_rules! layouts {
    ($($name:ident: $size:tt { $($($field:ident).+ $(as $c:literal)?: $offset:tt),* $(,)? })*) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size, stringify!($name));
            $(const _: () = assert!(offset_of!($name, $($field).+) == $offset, stringify!($($field).+));)*
        )*
        impl<const M: usize> Layouts<M> {
            const ALL: &[Layout] = &[$(Layout {
                name: stringify!($name),
                size: $size,
                fields: &[$((name_in_c!($($field).+ $(as $c)?), $offset)),*],
            }),*];
        }
    };
}

macro_rules! name_in_c {
    ($($field:ident).+ as $c:literal) => {
        $c
    };
    ($field:ident) => {
        stringify!($field)
    };
}

/// The layouts where what lies behind a `pthread_mutex_t` is so much further from the start of a struct than
/// on x86-64.
struct Layouts<const M: usize>;
/// How much longer `pthread_mutex_t` is on this processor than on x86-64, where it has 40 bytes.
const M: usize = size_of::<pthread_mutex_t>() - 40;

/// The layouts of all structs in the list.
pub const LAYOUTS: &[Layout] = Layouts::<M>::ALL;
/// Layouts on 64-bit ARM.
pub const LAYOUTS_OF_ARM: &[Layout] = Layouts::<8>::ALL;

layouts! {
    ibv_gid_entry: 32 { gid: 0, gid_index: 16, port_num: 20, gid_type: 24, ndev_ifindex: 28 }
    ibv_device_attr: 232 {
        fw_ver: 0, node_guid: 64, max_mr_size: 80, vendor_id: 96, max_qp: 108, device_cap_flags: 116,
        max_cqe: 132, atomic_cap: 164, max_srq_sge: 220, max_pkeys: 224, phys_port_cnt: 227,
    }
    ibv_device_attr_ex: 400 {
        comp_mask: 232, odp_caps: 240, completion_timestamp_mask: 264, hca_core_clock: 272,
        device_cap_flags_ex: 280, tso_caps: 288, rss_caps: 296, max_wq_type_rq: 328, packet_pacing_caps: 332,
        raw_packet_caps: 344, tm_caps: 348, cq_mod_caps: 368, max_dm_size: 376, pci_atomic_caps: 384,
        xrc_odp_caps: 392, phys_port_cnt_ex: 396,
    }
    ibv_port_attr: 52 {
        state: 0, gid_tbl_len: 12, max_msg_sz: 20, pkey_tbl_len: 32, lid: 34, sm_lid: 36, lmc: 38,
        active_width: 43, active_speed: 44, phys_state: 45, link_layer: 46, flags: 47, port_cap_flags2: 48,
    }
    ibv_global_route: 24 { flow_label: 16, sgid_index: 20, hop_limit: 21, traffic_class: 22 }
    ibv_ah_attr: 32 { grh: 0, dlid: 24, sl: 26, is_global: 29, port_num: 30 }
    ibv_qp_cap: 20 { max_send_wr: 0, max_inline_data: 16 }
    ibv_qp_attr: 144 {
        qkey: 16, qp_access_flags: 32, cap: 36, ah_attr: 56, alt_ah_attr: 88, pkey_index: 120,
        en_sqd_async_notify: 124, max_rd_atomic: 126, min_rnr_timer: 128, timeout: 130, rnr_retry: 132,
        rate_limit: 136,
    }
    ibv_qp_init_attr: 64 {
        qp_context: 0, send_cq: 8, recv_cq: 16, srq: 24, cap: 32, qp_type: 52, sq_sig_all: 56,
    }
    ibv_qp_init_attr_ex: 136 {
        comp_mask: 60, pd: 64, xrcd: 72, create_flags: 80, max_tso_header: 84, rwq_ind_tbl: 88,
        rx_hash_conf: 96, source_qpn: 120, send_ops_flags: 128,
    }
    ibv_qp_open_attr: 32 { qp_num: 4, xrcd: 8, qp_context: 16, qp_type: 24 }
    ibv_srq_init_attr: 24 { srq_context: 0, attr: 8 }
    ibv_srq_init_attr_ex: 64 { attr: 8, comp_mask: 20, srq_type: 24, pd: 32, xrcd: 40, cq: 48, tm_cap: 56 }
    ibv_cq_init_attr_ex: 56 {
        cqe: 0, cq_context: 8, channel: 16, comp_vector: 24, wc_flags: 32, comp_mask: 40, flags: 44,
        parent_domain: 48,
    }
    ibv_xrcd_init_attr: 12 { comp_mask: 0, fd: 4, oflags: 8 }
    ibv_parent_domain_init_attr: 48 { pd: 0, td: 8, comp_mask: 16, alloc: 24, free: 32, pd_context: 40 }
    ibv_values_ex: 24 { comp_mask: 0, raw_clock: 8 }
    ibv_mw_bind_info: 32 { mr: 0, addr: 8, length: 16, mw_access_flags: 24 }
    ibv_mw_bind: 48 { wr_id: 0, send_flags: 8, bind_info: 16 }

    ibv_device: 664 {
        node_type: 16, transport_type: 20, name: 24, dev_name: 88, dev_path: 152, ibdev_path: 408,
    }
    ibv_pd: 16 { context: 0, handle: 8 }
    ibv_xrcd: 8 { context: 0 }
    ibv_td: 8 { context: 0 }
    ibv_ah: 24 { context: 0, pd: 8, handle: 16 }
    ibv_mr: 48 { context: 0, pd: 8, addr: 16, length: 24, handle: 32, lkey: 36, rkey: 40 }
    ibv_alloc_dm_attr: 16 { length: 0, log_align_req: 8, comp_mask: 12 }
    ibv_dm: 32 { context: 0, memcpy_to_dm: 8, memcpy_from_dm: 16, comp_mask: 24, handle: 28 }
    ibv_mw: 32 { context: 0, pd: 8, rkey: 16, handle: 20, mw_type as "type": 24 }
    ibv_comp_channel: 16 { context: 0, fd: 8, refcnt: 12 }
    ibv_cq: (128 + M) {
        context: 0, channel: 8, cq_context: 16, handle: 24, cqe: 28, mutex: 32, cond: (72 + M),
        comp_events_completed: (120 + M), async_events_completed: (124 + M),
    }
    ibv_cq_ex: (288 + M) {
        comp_mask: (128 + M), status: (132 + M), wr_id: (136 + M), start_poll: (144 + M),
        next_poll: (152 + M), end_poll: (160 + M), read_opcode: (168 + M), read_vendor_err: (176 + M),
        read_byte_len: (184 + M), read_imm_data: (192 + M), read_qp_num: (200 + M), read_src_qp: (208 + M),
        read_wc_flags: (216 + M), read_slid: (224 + M), read_sl: (232 + M), read_dlid_path_bits: (240 + M),
        read_completion_ts: (248 + M), read_cvlan: (256 + M), read_flow_tag: (264 + M),
        read_tm_info: (272 + M), read_completion_wallclock_ns: (280 + M),
    }
    ibv_srq: (128 + M) {
        srq_context: 8, pd: 16, handle: 24, mutex: 32, cond: (72 + M), events_completed: (120 + M),
    }
    ibv_qp: (160 + M) {
        qp_context: 8, pd: 16, send_cq: 24, recv_cq: 32, srq: 40, handle: 48, qp_num: 52, state: 56,
        qp_type: 60, mutex: 64, cond: (104 + M), events_completed: (152 + M),
    }
    ibv_async_event: 16 { element: 0, event_type: 8 }

    ibv_sge: 16 { addr: 0, length: 8, lkey: 12 }
    ibv_data_buf: 16 { addr: 0, length: 8 }
    ibv_send_wr: 128 {
        wr_id: 0, next: 8, sg_list: 16, num_sge: 24, opcode: 28, send_flags: 32, imm_data: 36, wr: 40,
        xrc_remote_srqn as "qp_type.xrc.remote_srqn": 72, bind_mw: 80,
        bind_mw.rkey as "bind_mw.rkey": 88, bind_mw.bind_info as "bind_mw.bind_info": 96,
    }
    ibv_recv_wr: 32 { wr_id: 0, next: 8, sg_list: 16, num_sge: 24 }
    ibv_wc: 48 {
        wr_id: 0, status: 8, opcode: 12, vendor_err: 16, byte_len: 20, imm_data: 24, qp_num: 28, src_qp: 32,
        wc_flags: 36, pkey_index: 40, slid: 42, sl: 44, dlid_path_bits: 45,
    }
    ibv_modify_cq_attr: 8 { attr_mask: 0, moderate: 4 }
    ibv_grh: 40 { paylen: 4, next_hdr: 6, hop_limit: 7, sgid: 8, dgid: 24 }

    ibv_context_ops: 256 {
        alloc_mw: 56, bind_mw: 64, dealloc_mw: 72, poll_cq: 88, req_notify_cq: 96, post_srq_recv: 160,
        post_send: 200, post_recv: 208,
    }
    ibv_context: (328 + M) {
        device: 0, ops: 8, cmd_fd: 264, async_fd: 268, num_comp_vectors: 272, mutex: 280,
        abi_compat: (320 + M),
    }
    verbs_context: (648 + M) {
        query_port: 0, advise_mr: 8, alloc_null_mr: 16, reg_dm_mr: 56, alloc_dm: 64, free_dm: 72,
        modify_qp_rate_limit: 104, alloc_parent_domain: 112, dealloc_td: 120, alloc_td: 128, modify_cq: 136,
        post_srq_ops: 144, query_rt_values: 192, create_cq_ex: 200, private as "priv": 208,
        query_device_ex: 216, open_qp: 256, create_qp_ex: 264, get_srq_num: 272, create_srq_ex: 280,
        open_xrcd: 288, close_xrcd: 296, sz: 312, context: 320,
    }

    rdma_ib_addr: 40 { sgid: 0, dgid: 16, pkey: 32 }
    rdma_addr: 296 { src_storage: 0, dst_storage: 128, ibaddr as "addr.ibaddr": 256 }
    ibv_sa_path_rec: 64 {
        dgid: 0, sgid: 16, dlid: 32, slid: 34, raw_traffic: 36, flow_label: 40, hop_limit: 44,
        traffic_class: 45, reversible: 48, numb_path: 52, pkey: 54, sl: 56, mtu_selector: 57, mtu: 58,
        rate_selector: 59, rate: 60, packet_life_time_selector: 61, packet_life_time: 62, preference: 63,
    }
    rdma_route: 312 { addr: 0, path_rec: 296, num_paths: 304 }
    rdma_event_channel: 4 { fd: 0 }
    rdma_cm_id: 416 {
        verbs: 0, channel: 8, context: 16, qp: 24, route: 32, ps: 344, port_num: 348, event: 352,
        send_cq_channel: 360, send_cq: 368, recv_cq_channel: 376, recv_cq: 384, srq: 392, pd: 400,
        qp_type: 408,
    }
    rdma_conn_param: 24 {
        private_data: 0, private_data_len: 8, responder_resources: 9, initiator_depth: 10, flow_control: 11,
        retry_count: 12, rnr_retry_count: 13, srq: 14, qp_num: 16,
    }
    rdma_ud_param: 56 { private_data: 0, private_data_len: 8, ah_attr: 16, qp_num: 48, qkey: 52 }
    rdma_cm_event: 80 { id: 0, listen_id: 8, event: 16, status: 20, param: 24 }
    rdma_addrinfo: 96 {
        ai_flags: 0, ai_family: 4, ai_qp_type: 8, ai_port_space: 12, ai_src_len: 16, ai_dst_len: 20,
        ai_src_addr: 24, ai_dst_addr: 32, ai_src_canonname: 40, ai_dst_canonname: 48, ai_route_len: 56,
        ai_route: 64, ai_connect_len: 72, ai_connect: 80, ai_next: 88,
    }
    rdma_cm_join_mc_attr_ex: 16 { comp_mask: 0, join_flags: 4, addr: 8 }
    ibv_ece: 12 { vendor_id: 0, options: 4, comp_mask: 8 }
}

// One pointer longer than in rdma-core 44: the field that rdma-core 64 has added.
const _: () = assert!(size_of::<ibv_qp_ex>() == 360 + M);
const _: () = assert!(offset_of!(ibv_qp_ex, wr_id) == 168 + M);
const _: () = assert!(offset_of!(ibv_qp_ex, wr_atomic_cmp_swp) == 184 + M);
const _: () = assert!(offset_of!(ibv_qp_ex, wr_atomic_write) == 344 + M);
