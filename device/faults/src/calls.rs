//! The calls of libibverbs and librdmacm at which faults can happen.

/// Calls that can fail, under one name for all their variants: `reg_mr` is also what the header's macro makes
/// of it (`ibv_reg_mr_iova2`), and `post_send` also `ibv_wr_complete`.
pub const CALLS: &[&str] = &[
    "advise_mr",
    "alloc_buf",
    "alloc_dm",
    "alloc_mw",
    "alloc_null_mr",
    "alloc_parent_domain",
    "alloc_pd",
    "alloc_td",
    "attach_mcast",
    "bind_mw",
    "close_device",
    "close_xrcd",
    "create_ah",
    "create_ah_from_wc",
    "create_comp_channel",
    "create_cq",
    "create_qp",
    "create_srq",
    "dealloc_mw",
    "dealloc_pd",
    "dealloc_td",
    "dereg_mr",
    "destroy_ah",
    "destroy_comp_channel",
    "destroy_cq",
    "destroy_qp",
    "destroy_srq",
    "detach_mcast",
    "export_buf_dmabuf_fd",
    "free_dm",
    "get_async_event",
    "get_cq_event",
    "get_device_list",
    "get_pkey_index",
    "get_srq_num",
    "import_device",
    "import_dm",
    "import_mr",
    "import_pd",
    "init_ah_from_wc",
    "memcpy_from_dm",
    "memcpy_to_dm",
    "modify_cq",
    "modify_qp",
    "modify_srq",
    "open_device",
    "open_qp",
    "open_xrcd",
    "poll_cq",
    "post_recv",
    "post_send",
    "post_srq_recv",
    "query_device",
    "query_ece",
    "query_gid",
    "query_gid_type",
    "query_pkey",
    "query_port",
    "query_port_speed",
    "query_qp",
    "query_rt_values",
    "query_srq",
    "rdma_accept",
    "rdma_ack_cm_event",
    "rdma_bind_addr",
    "rdma_connect",
    "rdma_create_ep",
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_create_qp",
    "rdma_create_srq",
    "rdma_destroy_id",
    "rdma_disconnect",
    "rdma_establish",
    "rdma_get_cm_event",
    "rdma_get_devices",
    "rdma_get_remote_ece",
    "rdma_get_request",
    "rdma_init_qp_attr",
    "rdma_join_multicast",
    "rdma_leave_multicast",
    "rdma_listen",
    "rdma_migrate_id",
    "rdma_notify",
    "rdma_query_addrinfo",
    "rdma_reject",
    "rdma_resolve_addr",
    "rdma_resolve_addrinfo",
    "rdma_resolve_route",
    "rdma_set_local_ece",
    "rdma_set_option",
    "rdma_write_cm_event",
    "read_sysfs_file",
    "reg_buf_mr",
    "reg_dm_mr",
    "reg_dmabuf_mr",
    "reg_mr",
    "reg_mr_ex",
    "req_notify_cq",
    "rereg_mr",
    "resize_cq",
    "set_ece",
];

/// Calls that report no error number, so that no rule names them.
pub const NO_ERRNO: &[&str] = &[
    "ack_async_event",
    "ack_cq_events",
    "event_type_str",
    "fork_init",
    "free_buf",
    "free_device_list",
    "get_device_guid",
    "get_device_index",
    "get_device_name",
    "get_sysfs_path",
    "is_fork_initialized",
    "node_type_str",
    "port_state_str",
    "qp_to_qp_ex",
    "query_gid_table",
    "query_qp_data_in_order",
    "rate_to_mbps",
    "rate_to_mult",
    "mbps_to_rate",
    "mult_to_rate",
    "rdma_destroy_ep",
    "rdma_destroy_event_channel",
    "rdma_destroy_qp",
    "rdma_destroy_srq",
    "rdma_event_str",
    "rdma_free_devices",
    "rdma_freeaddrinfo",
    "rdma_get_dst_port",
    "rdma_get_src_port",
    "rdma_getaddrinfo",
    "unimport_dm",
    "unimport_mr",
    "unimport_pd",
    "wc_status_str",
    "wr_opcode_str",
];

/// The name of a call in [`CALLS`], for a function of the libraries or a name in a rule.
pub fn canonical_call(function: &str) -> &str {
    let plain = function.trim_start_matches('_');
    let plain = plain.strip_prefix("ibv_").unwrap_or(plain);
    match plain {
        "reg_mr_iova" | "reg_mr_iova2" => "reg_mr",
        "wr_complete" => "post_send",
        "start_poll" | "next_poll" => "poll_cq",
        "rdma_reject_ece" => "rdma_reject",
        "reg_mr_ex" | "qp_to_qp_ex" => plain,
        _ => plain.strip_suffix("_ex").unwrap_or(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Names of functions that the libraries implement, from the tables of their symbols.
    fn implemented(table: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/symbols");
        let text = std::fs::read_to_string(folder.join(table)).unwrap();
        let rows = text.lines().map(|row| row.split('\t').collect::<Vec<_>>());
        rows.filter(|row| matches!(row[2], "here" | "waits"))
            .map(|row| row[0].to_owned())
            .collect()
    }

    #[test]
    fn every_function_of_the_libraries_can_fail_or_is_known_not_to() {
        let is_rsocket = |name: &str| name.starts_with('r') && !name.starts_with("rdma_");
        for table in ["libibverbs.tsv", "librdmacm.tsv"] {
            let functions = implemented(table);
            assert!(functions.len() > 30, "{table}");
            for function in functions {
                // Rates are not of verbs alone: `mult_to_ibv_rate`.
                let plain = function.replace("_ibv_", "_");
                let name = canonical_call(&plain);
                let known = CALLS.contains(&name) ^ NO_ERRNO.contains(&name);
                let ours =
                    function.starts_with("rockery_") || is_rsocket(name) && name != "rate_to_mbps";
                assert!(known || ours, "{function}: {name}");
            }
        }
    }

    #[test]
    fn calls_are_sorted_and_canonical() {
        assert!(CALLS.is_sorted());
        for name in CALLS {
            assert_eq!(canonical_call(name), *name);
        }
        for (function, name) in [
            ("ibv_reg_mr_iova2", "reg_mr"),
            ("_ibv_query_gid_ex", "query_gid"),
            ("create_qp_ex", "create_qp"),
            ("wr_complete", "post_send"),
            ("rdma_connect", "rdma_connect"),
        ] {
            assert_eq!(canonical_call(function), name);
        }
    }
}
