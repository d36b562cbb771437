//! Queries of a device and its port.

use crate::address::PORT;
use crate::context::{Context, ContextArg};
use crate::device::GIDS;
use crate::dm;
use abi::{
    ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_odp_caps, ibv_port_attr,
    ibv_values_ex,
};
use core::ffi::c_int;
use core::mem::size_of;
use ffi::{Errno, In, InOut, Out, exports};
use host::PortState;
use rnic::{Gid, Mtu, SubnetPort};

/// A locally administered OUI, since a software device has none assigned. SPDK takes 0 and all ones for
/// devices that do not support SEND with Invalidate.
const VENDOR_ID: u32 = 0x02_5a_1e;
/// A port's rate. Memory and the network below limit the real rate, but programs choose protocols and devices
/// by this figure.
struct Rate {
    width: u8,
    speed: u8,
    /// Port speed in units of 100 Mb/s.
    total: u64,
}

/// 100 Gb/s: 4 lanes of EDR (25 Gb/s each).
const INTERFACE_RATE: Rate = Rate {
    width: 2,
    speed: 32,
    total: 1000,
};
/// 10 Gb/s: 1 lane of FDR10. UCX assumes that every device of one host reaches every device of another, and
/// uses all devices that have at least a quarter of the fastest one's rate. The loopback device has to stay
/// below that.
const LOOPBACK_RATE: Rate = Rate {
    width: 1,
    speed: 8,
    total: 100,
};

fn rate(owner: &Context) -> &'static Rate {
    if owner.device.info().is_loopback {
        &LOOPBACK_RATE
    } else {
        &INTERFACE_RATE
    }
}

const PHYSICAL_LINK_UP: u8 = 5;
const PHYSICAL_DISABLED: u8 = 3;
/// `IBV_PORT_CM_SUP` (`enum ibv_port_cap_flags`): the port supports connection management.
const CONNECTION_MANAGEMENT: u32 = 1 << 16;
/// Longest message in bytes, of all transports with messages (IBTA 9.7.8).
const MESSAGE_BYTES_MAX: u32 = 1 << 31;
/// Size of `ibv_port_attr` before rdma-core 21: all that the exported `ibv_query_port` may write.
const OLD_PORT_ATTR_BYTES: usize = 48;
/// `enum ibv_gid_type_sysfs`: InfiniBand, and RoCE v1.
const SYSFS_INFINIBAND: u32 = 0;
/// `enum ibv_gid_type_sysfs`: RoCE v2.
const SYSFS_ROCE_V2: u32 = 1;
/// The key of the default partition.
const DEFAULT_PKEY: u16 = 0xffff;

/// Converts a limit to C's signed type.
fn count(limit: u32) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

fn capabilities() -> u32 {
    abi::IBV_DEVICE_BAD_QKEY_CNTR
        | abi::IBV_DEVICE_RC_RNR_NAK_GEN
        | abi::IBV_DEVICE_SRQ_RESIZE
        | abi::IBV_DEVICE_MEM_WINDOW
        | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B
        | abi::IBV_DEVICE_MEM_MGT_EXTENSIONS
        | abi::IBV_DEVICE_XRC
}

fn device_attr(owner: &Context) -> ibv_device_attr {
    let limits = owner.device.with(|rnic, _| rnic.config().clone());
    let guid = owner.device.info().guid;
    let max_pkeys = partitions(owner).len() as u16;
    let mut fw_ver = [0; 64];
    fw_ver[..env!("CARGO_PKG_VERSION").len()].copy_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    let max_rd_atom = c_int::from(limits.max_rd_atomic);
    ibv_device_attr {
        fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        // Page sizes: any power of two from 4 KiB on, since no translation table is built.
        page_size_cap: !0xfff,
        vendor_id: VENDOR_ID,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: count(limits.max_qp),
        max_qp_wr: count(limits.max_qp_wr),
        device_cap_flags: capabilities(),
        max_sge: count(limits.max_sge),
        max_sge_rd: count(limits.max_sge),
        max_cq: count(limits.max_cq),
        max_cqe: count(limits.max_cqe),
        max_mr: count(limits.max_mr),
        max_pd: count(limits.max_pd),
        max_qp_rd_atom: max_rd_atom,
        max_ee_rd_atom: 0,
        max_res_rd_atom: max_rd_atom.saturating_mul(count(limits.max_qp)),
        max_qp_init_rd_atom: max_rd_atom,
        max_ee_init_rd_atom: 0,
        // The weaker guarantee, as adapters and rxe report it: UCX 1.13 supports no other. `pci_atomic_caps`
        // reports that atomics are the processor's own.
        atomic_cap: abi::IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: count(limits.max_mr),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: count(limits.max_mcast_groups),
        max_mcast_qp_attach: count(limits.max_mcast_attach),
        max_total_mcast_qp_attach: count(
            limits
                .max_mcast_groups
                .saturating_mul(limits.max_mcast_attach),
        ),
        max_ah: c_int::MAX,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: count(limits.max_srq),
        max_srq_wr: count(limits.max_srq_wr),
        max_srq_sge: count(limits.max_sge),
        max_pkeys,
        local_ca_ack_delay: 15,
        phys_port_cnt: PORT,
    }
}

/// On-demand paging is always there, since the device accesses memory as the processor does.
const ODP: u64 = 1;
/// A region of the whole address space (`IBV_ODP_SUPPORT_IMPLICIT`).
const ODP_IMPLICIT: u64 = 2;
/// Capabilities for messages: SEND, RECV and SRQ_RECV.
const ODP_MESSAGES: u32 = 1 | 2 | 32;
const ODP_WRITE: u32 = 4;
/// Capabilities of RC: the messages, and READ, WRITE and ATOMIC.
const ODP_RELIABLE: u32 = ODP_MESSAGES | ODP_WRITE | 8 | 16;

/// `IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP`: fetch and add, and compare and swap, are atomic towards the
/// processors too.
const EIGHT_BYTES: u16 = 2;

fn device_attr_ex(owner: &Context) -> ibv_device_attr_ex {
    // SAFETY: the struct is plain numbers, for which zero is "none".
    let none: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
    ibv_device_attr_ex {
        orig_attr: device_attr(owner),
        odp_caps: ibv_odp_caps {
            general_caps: ODP | ODP_IMPLICIT,
            rc_odp_caps: ODP_RELIABLE,
            uc_odp_caps: ODP_MESSAGES | ODP_WRITE,
            ud_odp_caps: ODP_MESSAGES,
        },
        xrc_odp_caps: ODP_RELIABLE,
        completion_timestamp_mask: u64::MAX,
        // Time stamps of completions count nanoseconds.
        hca_core_clock: 1_000_000,
        device_cap_flags_ex: capabilities().into(),
        phys_port_cnt_ex: PORT.into(),
        cq_mod_caps: [u16::MAX; 2],
        max_dm_size: dm::BYTES_MAX as u64,
        pci_atomic_caps: [EIGHT_BYTES, 0, EIGHT_BYTES],
        ..none
    }
}

/// Signalling of a lane in units of 100 Mb/s, from SDR to XDR.
const LANE_SPEEDS: [u64; 9] = [25, 50, 100, 100, 140, 250, 500, 1000, 2000];

/// The speed of a port in a subnet, in units of 100 Mb/s, as Linux reports it.
fn subnet_speed(state: &PortState) -> u64 {
    let lanes = match state.width {
        1 => 1,
        16 => 2,
        4 => 8,
        8 => 12,
        _ => 4,
    };
    let speed = LANE_SPEEDS.get(state.speed.trailing_zeros() as usize);
    speed.map_or(0, |speed| speed * lanes)
}

/// The attributes of a port of an InfiniBand subnet, as its agent has them.
fn subnet_port_attr(state: &PortState) -> ibv_port_attr {
    ibv_port_attr {
        state: state.state.into(),
        max_mtu: state.max_mtu.into(),
        active_mtu: state.active_mtu.into(),
        gid_tbl_len: GIDS.into(),
        port_cap_flags: state.capabilities,
        max_msg_sz: MESSAGE_BYTES_MAX,
        pkey_tbl_len: state.partitions.len() as u16,
        lid: state.lid,
        sm_lid: state.manager_lid,
        lmc: state.lmc,
        max_vl_num: state.virtual_lanes,
        sm_sl: state.manager_level,
        subnet_timeout: state.subnet_timeout,
        active_width: state.width,
        active_speed: u8::try_from(state.speed).unwrap_or(0),
        phys_state: state.physical,
        link_layer: abi::IBV_LINK_LAYER_INFINIBAND as u8,
        ..ibv_port_attr::default()
    }
}

fn port_attr(owner: &Context) -> ibv_port_attr {
    if let Some(state) = owner.device.port_state() {
        return subnet_port_attr(&state);
    }
    let (active_mtu, is_active) = owner
        .device
        .with(|rnic, _| (rnic.port().active_mtu(), rnic.port().is_active()));
    let rate = rate(owner);
    ibv_port_attr {
        state: if is_active {
            abi::IBV_PORT_ACTIVE
        } else {
            abi::IBV_PORT_DOWN
        },
        max_mtu: Mtu::B4096 as u32,
        active_mtu: active_mtu as u32,
        gid_tbl_len: GIDS.into(),
        port_cap_flags: CONNECTION_MANAGEMENT,
        max_msg_sz: MESSAGE_BYTES_MAX,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: rate.width,
        active_speed: rate.speed,
        phys_state: if is_active {
            PHYSICAL_LINK_UP
        } else {
            PHYSICAL_DISABLED
        },
        link_layer: abi::IBV_LINK_LAYER_ETHERNET as u8,
        ..ibv_port_attr::default()
    }
}

/// Writes as many bytes of `from` as the caller has room for, and zeroes the rest of that room.
///
/// # Safety
/// `room` bytes are writable at `to`.
unsafe fn write_prefix<T: Copy>(to: *mut T, from: &T, room: usize) {
    let length = room.min(size_of::<T>());
    // SAFETY: by this function's contract, `room` bytes are writable at `to`.
    unsafe {
        core::ptr::write_bytes(to.cast::<u8>(), 0, room);
        core::ptr::copy_nonoverlapping(
            core::ptr::from_ref(from).cast::<u8>(),
            to.cast::<u8>(),
            length,
        );
    }
}

/// The entry of the GID table; `None` when the slot is empty.
fn gid(owner: &Context, index: u32) -> Result<Option<Gid>, Errno> {
    let index = u8::try_from(index)
        .ok()
        .filter(|index| *index < GIDS)
        .ok_or(Errno::INVALID)?;
    Ok(owner.device.with(|rnic, _| rnic.port().gid(index)))
}

fn entry(raw_index: u32, gid: Gid, owner: &Context) -> ibv_gid_entry {
    let info = owner.device.info();
    let (gid_type, ndev_ifindex) = match info.subnet {
        // GIDs of a subnet belong to no network interface.
        Some(_) => (abi::IBV_GID_TYPE_IB, 0),
        None => (abi::IBV_GID_TYPE_ROCE_V2, info.ifindex),
    };
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.0 },
        gid_index: raw_index,
        port_num: PORT.into(),
        gid_type,
        ndev_ifindex,
    }
}

/// The table of partition keys. RoCE has the default partition alone.
fn partitions(owner: &Context) -> Vec<u16> {
    let of_subnet = |port: &SubnetPort| port.partitions.to_vec();
    let found = owner
        .device
        .with(|rnic, _| rnic.port().subnet().map(of_subnet));
    found.unwrap_or_else(|| vec![DEFAULT_PKEY])
}

fn check_port(port: u32) -> Result<(), Errno> {
    if port == u32::from(PORT) {
        Ok(())
    } else {
        Err(Errno::INVALID)
    }
}

exports! {
    fn ibv_query_device(context: ContextArg<'_>, attr: Out<'_, ibv_device_attr>) -> code(i32) {
        attr.write(device_attr(&context))
    }

    fn query_device_ex(
        context: ContextArg<'_>, input: In<'_, *const u32>, attr: *mut ibv_device_attr_ex, room: usize,
    ) -> code(i32) {
        if input.optional().is_some_and(|mask| *mask != 0) || room < size_of::<ibv_device_attr>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program has so much room.
        unsafe { write_prefix(attr, &device_attr_ex(&context), room) };
        Ok(())
    }

    fn query_port(context: ContextArg<'_>, port: u8, attr: *mut ibv_port_attr, room: usize) -> code(i32) {
        check_port(port.into())?;
        // SAFETY: the program has so much room.
        unsafe { write_prefix(attr, &port_attr(&context), room) };
        Ok(())
    }

    fn ibv_query_port(context: ContextArg<'_>, port: u8, attr: *mut ibv_port_attr) -> code(i32) {
        check_port(port.into())?;
        // SAFETY: the struct had so many bytes at first.
        unsafe { write_prefix(attr, &port_attr(&context), OLD_PORT_ATTR_BYTES) };
        Ok(())
    }

    /// Port speed in units of 100 Mb/s.
    fn ibv_query_port_speed(context: ContextArg<'_>, port: u32, speed: Out<'_, u64>) -> code(i32) {
        check_port(port)?;
        if let Some(state) = context.device.port_state() {
            return speed.write(subnet_speed(&state));
        }
        speed.write(rate(&context).total)
    }

    /// An empty slot is returned as zeros, without an error: programs walk the whole table.
    fn ibv_query_gid(context: ContextArg<'_>, port: u8, index: i32, to: Out<'_, ibv_gid>) -> number(i32) {
        check_port(port.into())?;
        let found = gid(&context, u32::try_from(index).map_err(|_| Errno::INVALID)?)?;
        to.write(ibv_gid { raw: found.unwrap_or_default().0 })?;
        Ok(0)
    }

    fn ibv_query_gid_type(context: ContextArg<'_>, port: u8, index: u32, kind: Out<'_, u32>) -> number(i32) {
        check_port(port.into())?;
        gid(&context, index)?;
        kind.write(match context.device.info().subnet {
            Some(_) => SYSFS_INFINIBAND,
            None => SYSFS_ROCE_V2,
        })?;
        Ok(0)
    }

    fn _ibv_query_gid_ex(
        context: ContextArg<'_>, port: u32, index: u32, to: *mut ibv_gid_entry, flags: u32, room: usize,
    ) -> code(i32) {
        check_port(port)?;
        if flags != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let found = gid(&context, index)?.ok_or(Errno(libc::ENODATA))?;
        // SAFETY: the program has so much room.
        unsafe { write_prefix(to, &entry(index, found, &context), room) };
        Ok(())
    }

    /// Returns the number of entries, or a negative error number.
    fn _ibv_query_gid_table(
        context: ContextArg<'_>, to: *mut ibv_gid_entry, most: usize, flags: u32, room: usize,
    ) -> plain(isize) {
        if flags != 0 {
            return -(libc::EOPNOTSUPP as isize);
        }
        let mut written = 0;
        for index in 0..u32::from(GIDS) {
            let Ok(Some(found)) = gid(&context, index) else { continue };
            if written == most {
                return -(libc::EINVAL as isize);
            }
            // SAFETY: the program has room for `most` entries, and fewer are written.
            let place = unsafe { to.byte_add(written * room) };
            // SAFETY: each entry has so much room.
            unsafe { write_prefix(place, &entry(index, found, &context), room) };
            written += 1;
        }
        written as isize
    }

    /// A key in network byte order; an empty entry of the table is 0.
    fn ibv_query_pkey(context: ContextArg<'_>, port: u8, index: i32, pkey: Out<'_, u16>) -> number(i32) {
        check_port(port.into())?;
        let index = usize::try_from(index).map_err(|_| Errno::INVALID)?;
        let key = partitions(&context).get(index).copied().ok_or(Errno::INVALID)?;
        pkey.write(key.to_be())?;
        Ok(0)
    }

    /// The index of a key in network byte order.
    fn ibv_get_pkey_index(context: ContextArg<'_>, port: u8, pkey: u16) -> number(i32) {
        check_port(port.into())?;
        let key = u16::from_be(pkey);
        let found = partitions(&context).iter().position(|own| *own == key);
        found.map(|index| index as i32).ok_or(Errno(libc::ENOENT))
    }

    fn query_rt_values(context: ContextArg<'_>, values: InOut<'_, ibv_values_ex>) -> code(i32) {
        let values = values.get()?;
        if values.comp_mask & !abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let now_ns = context.device.now().0;
        values.raw_clock = [(now_ns / 1_000_000_000) as i64, (now_ns % 1_000_000_000) as i64];
        Ok(())
    }
}
