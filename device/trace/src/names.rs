//! Names of bits and of error numbers in records; those of other values are in the crate `abi`.

/// Bits of `enum ibv_access_flags` and their names.
const ACCESS: [(u64, &str); 7] = [
    (1, "LOCAL_WRITE"),
    (2, "REMOTE_WRITE"),
    (4, "REMOTE_READ"),
    (8, "REMOTE_ATOMIC"),
    (16, "MW_BIND"),
    (32, "ZERO_BASED"),
    (64, "ON_DEMAND"),
];

/// The names of access flags, with `|` between them; `none` for none.
pub fn access_names(bits: u64) -> String {
    let named = ACCESS.iter().filter(|(bit, _)| bits & bit != 0);
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join("|"),
    }
}

/// Bits of `enum ibv_qp_attr_mask` and their names.
const MASK: [(u64, &str); 20] = [
    (1 << 0, "STATE"),
    (1 << 1, "CUR_STATE"),
    (1 << 2, "EN_SQD_ASYNC_NOTIFY"),
    (1 << 3, "ACCESS_FLAGS"),
    (1 << 4, "PKEY_INDEX"),
    (1 << 5, "PORT"),
    (1 << 6, "QKEY"),
    (1 << 7, "AV"),
    (1 << 8, "PATH_MTU"),
    (1 << 9, "TIMEOUT"),
    (1 << 10, "RETRY_CNT"),
    (1 << 11, "RNR_RETRY"),
    (1 << 12, "RQ_PSN"),
    (1 << 13, "MAX_QP_RD_ATOMIC"),
    (1 << 14, "ALT_PATH"),
    (1 << 15, "MIN_RNR_TIMER"),
    (1 << 16, "SQ_PSN"),
    (1 << 17, "MAX_DEST_RD_ATOMIC"),
    (1 << 18, "PATH_MIG_STATE"),
    (1 << 20, "DEST_QPN"),
];

/// The names of the bits of a mask, as a program writes them.
pub(crate) fn mask_names(bits: u64) -> String {
    let named = MASK.iter().filter(|(bit, _)| bits & bit != 0);
    let names: Vec<String> = named.map(|(_, name)| format!("IBV_QP_{name}")).collect();
    names.join(" | ")
}

/// The name of an error number, where RDMA calls return it.
pub(crate) fn errno_name(errno: u64) -> String {
    let name = match errno {
        1 => "EPERM",
        2 => "ENOENT",
        4 => "EINTR",
        5 => "EIO",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        19 => "ENODEV",
        22 => "EINVAL",
        24 => "EMFILE",
        28 => "ENOSPC",
        95 => "EOPNOTSUPP",
        98 => "EADDRINUSE",
        99 => "EADDRNOTAVAIL",
        101 => "ENETUNREACH",
        104 => "ECONNRESET",
        106 => "EISCONN",
        107 => "ENOTCONN",
        110 => "ETIMEDOUT",
        111 => "ECONNREFUSED",
        113 => "EHOSTUNREACH",
        _ => return format!("errno {errno}"),
    };
    name.to_owned()
}
