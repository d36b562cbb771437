//! The path record of an identifier (`route.path_rec`), which C sees.

use crate::device::OpenDevice;
use crate::id::Id;
use abi::{ibv_gid, ibv_sa_path_rec};
use link::path_request::ResolvedPath;
use rnic::Path;

/// Packet lifetime of RoCE paths, as an exponent: 4.096 us times 2^16, 0.27 s. Linux has 18 up to 6.1, and 16
/// since.
const PACKET_LIFETIME: u8 = 16;
/// The default P_Key.
pub(crate) const PARTITION: u16 = 0xffff;
/// `IB_SA_EQ` (`enum ibv_sa_selector`): the field of the path record has exactly this value.
const SELECTOR_EQUAL: u8 = 2;
/// `IBV_RATE_100_GBPS` (`enum ibv_rate`).
const RATE: u8 = 16;

/// Writes the path record that C sees.
///
/// # Safety
/// No other thread uses the identifier.
pub(crate) unsafe fn fill_path_record(this: &Id, path: Path) {
    let found = this.state().subnet_path;
    if let Some(found) = found {
        // SAFETY: by this function's contract, no other thread uses the identifier.
        return unsafe { place(this, subnet_record(&found)) };
    }
    let (mtu, lifetime) = {
        let state = this.state();
        let timeout = state
            .options
            .ack_timeout
            .map(|timeout| timeout.saturating_sub(1));
        (
            state.device.map_or(0, OpenDevice::active_mtu),
            timeout.unwrap_or(PACKET_LIFETIME),
        )
    };
    let record = ibv_sa_path_rec {
        dgid: ibv_gid {
            raw: path.destination.0,
        },
        sgid: ibv_gid { raw: path.source.0 },
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: PARTITION.to_be(),
        sl: path.service_level,
        mtu_selector: SELECTOR_EQUAL,
        mtu,
        rate_selector: SELECTOR_EQUAL,
        rate: RATE,
        packet_life_time_selector: SELECTOR_EQUAL,
        packet_life_time: lifetime,
        ..ibv_sa_path_rec::default()
    };
    // SAFETY: by this function's contract, no other thread uses the identifier.
    unsafe { place(this, record) };
}

/// The record of a path in a subnet.
fn subnet_record(path: &ResolvedPath) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid: ibv_gid { raw: path.gid },
        sgid: ibv_gid {
            raw: path.source_gid,
        },
        dlid: path.lid.to_be(),
        slid: path.source_lid.to_be(),
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: path.p_key.to_be(),
        sl: path.service_level,
        mtu_selector: SELECTOR_EQUAL,
        mtu: path.mtu,
        rate_selector: SELECTOR_EQUAL,
        rate: path.rate,
        packet_life_time_selector: SELECTOR_EQUAL,
        packet_life_time: path.life_time,
        ..ibv_sa_path_rec::default()
    }
}

/// Puts a record where C sees it.
///
/// # Safety
/// No other thread uses the identifier.
unsafe fn place(this: &Id, record: ibv_sa_path_rec) {
    // SAFETY: by this function's contract, no other thread uses the identifier; the record is NULL or ours.
    unsafe {
        let raw = this.raw();
        let known = &mut (*raw).route.addr.ibaddr;
        (known.sgid, known.dgid, known.pkey) = (record.sgid, record.dgid, record.pkey);
        match (*raw).route.path_rec.as_mut() {
            Some(place) => *place = record,
            None => (*raw).route.path_rec = Box::into_raw(Box::new(record)),
        }
        (*raw).route.num_paths = 1;
    }
}
