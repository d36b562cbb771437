//! Address handles, where a completion came from, and multicast.

use crate::context::{Context, context};
use crate::device::GIDS;
use crate::pd::pd;
use crate::qp::qp;
use abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_qp, ibv_wc};
use door::{Errno, door};
use rnic::{AddressVector, Gid};

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    abi: ibv_ah,
    pub(crate) vector: AddressVector,
}

/// The only port.
pub(crate) const PORT: u8 = 1;
/// TTL when a program asks for none: it would not leave the host.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// A way to a peer from C. On RoCE there is no way without a global route (IBTA A16.4.3).
pub(crate) fn vector(attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attr.port_num != PORT {
        return Err(Errno::INVALID);
    }
    if attr.is_global == 0 {
        eprintln!(
            "rockery: RoCE needs a GID at both ends: give the program an index that `rockery devices` lists \
             (ibv_rc_pingpong -g, ib_write_bw -x)"
        );
        return Err(Errno::INVALID);
    }
    let hop_limit = if attr.grh.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { attr.grh.hop_limit };
    Ok(AddressVector {
        destination: Gid(attr.grh.dgid.raw),
        source_index: attr.grh.sgid_index,
        traffic_class: attr.grh.traffic_class,
        hop_limit,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        service_level: attr.sl,
    })
}

/// A way to a peer, for C.
pub(crate) fn ah_attr(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: vector.destination.0 },
            flow_label: vector.flow_label,
            sgid_index: vector.source_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        sl: vector.service_level,
        is_global: 1,
        port_num: PORT,
        ..ibv_ah_attr::default()
    }
}

/// Source, destination and traffic class in the 40 bytes before a UD payload: an IPv6 header, or an IPv4
/// header in the last 20 (IBTA A17.4.5.2).
fn route(header: &[u8; 40]) -> Result<(Gid, Gid, u8, u8), Errno> {
    let at =
        |from: usize| -> [u8; 4] { [header[from], header[from + 1], header[from + 2], header[from + 3]] };
    if header[0] >> 4 == 6 {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&header[8..24]);
        destination.copy_from_slice(&header[24..40]);
        return Ok((Gid(source), Gid(destination), header[0] << 4 | header[1] >> 4, header[7]));
    }
    if header[20] >> 4 != 4 {
        return Err(Errno::INVALID);
    }
    Ok((Gid::from_ipv4(at(32)), Gid::from_ipv4(at(36)), header[21], header[28]))
}

/// The way back to where a datagram came from. One that came to a group goes back from our first address.
fn back(owner: &Context, header: &[u8; 40]) -> Result<AddressVector, Errno> {
    let (source, destination, traffic_class, hop_limit) = route(header)?;
    let ours = owner.device.with(|rnic, _| {
        let same_family = |gid: Gid| gid.ipv4().is_some() == source.ipv4().is_some();
        (0..GIDS)
            .find(|index| rnic.gid(*index) == Some(destination))
            .or_else(|| (0..GIDS).find(|index| rnic.gid(*index).is_some_and(same_family)))
    });
    let source_index = ours.ok_or(Errno::INVALID)?;
    Ok(AddressVector {
        destination: source,
        source_index,
        traffic_class,
        hop_limit: if hop_limit == 0 { DEFAULT_HOP_LIMIT } else { hop_limit },
        ..AddressVector::default()
    })
}

fn boxed(raw: *mut ibv_context, domain: *mut ibv_pd, vector: AddressVector) -> *mut ibv_ah {
    Box::into_raw(Box::new(Ah { abi: ibv_ah { context: raw, pd: domain, handle: 0 }, vector })).cast()
}

/// # Safety
/// The arguments are as the manual page of `ibv_init_ah_from_wc` asks.
unsafe fn from_completion(
    raw: *mut ibv_context,
    port: u8,
    completion: *mut ibv_wc,
    header: *mut ibv_grh,
) -> Result<AddressVector, Errno> {
    // SAFETY: as above.
    let completion = unsafe { completion.as_ref() }.ok_or(Errno::INVALID)?;
    if port != PORT || completion.wc_flags & abi::IBV_WC_GRH == 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above: with the flag set, 40 bytes are there.
    let header = unsafe { header.cast::<[u8; 40]>().as_ref() }.ok_or(Errno::INVALID)?;
    // SAFETY: as above.
    back(unsafe { context(raw) }, header)
}

/// Whether there is no address at an index of the GID table; then it says so on standard error, for programs
/// print only that something is invalid.
pub(crate) fn complain_of_gid(device: &host::Device, index: u8) -> bool {
    let is_empty = device.with(|rnic, _| rnic.gid(index)).is_none();
    if is_empty {
        let name = &device.info().name;
        eprintln!(
            "rockery: {name}: there is no GID at index {index}: `rockery devices` lists those that are"
        );
    }
    is_empty
}

door! {
    fn ibv_create_ah(domain: *mut ibv_pd, attr: *mut ibv_ah_attr) -> pointer(*mut ibv_ah) {
        pd(domain)?;
        let vector = vector(attr.as_ref().ok_or(Errno::INVALID)?)?;
        let raw = (*domain).context;
        if complain_of_gid(&context(raw).device, vector.source_index) {
            return Err(Errno::INVALID);
        }
        Ok(boxed(raw, domain, vector))
    }

    fn ibv_init_ah_from_wc(
        raw: *mut ibv_context, port: u8, completion: *mut ibv_wc, header: *mut ibv_grh,
        attr: *mut ibv_ah_attr,
    ) -> number(i32) {
        *attr = ah_attr(&from_completion(raw, port, completion, header)?);
        Ok(0)
    }

    fn ibv_create_ah_from_wc(domain: *mut ibv_pd, completion: *mut ibv_wc, header: *mut ibv_grh, port: u8)
        -> pointer(*mut ibv_ah) {
        pd(domain)?;
        let raw = (*domain).context;
        Ok(boxed(raw, domain, from_completion(raw, port, completion, header)?))
    }

    fn ibv_destroy_ah(raw: *mut ibv_ah) -> code(i32) {
        if raw.is_null() {
            return Err(Errno::INVALID);
        }
        drop(Box::from_raw(raw.cast::<Ah>()));
        Ok(())
    }

    fn ibv_attach_mcast(raw: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> code(i32) {
        let (queue, group) = (qp(raw)?, Gid(group.as_ref().ok_or(Errno::INVALID)?.raw));
        Ok(context((*raw).context).device.attach_multicast(queue.qpn, group)?)
    }

    fn ibv_detach_mcast(raw: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> code(i32) {
        let (queue, group) = (qp(raw)?, Gid(group.as_ref().ok_or(Errno::INVALID)?.raw));
        Ok(context((*raw).context).device.detach_multicast(queue.qpn, group)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_read_from_either_header() {
        let mut header = [0_u8; 40];
        header[20] = 0x45;
        header[21] = 0x68;
        header[28] = 63;
        header[32..36].copy_from_slice(&[10, 0, 0, 1]);
        header[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let expected = (Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2]), 0x68, 63);
        assert_eq!(route(&header), Ok(expected));
        header[20] = 0;
        assert_eq!(route(&header), Err(Errno::INVALID));
        header[0] = 0x66;
        header[1] = 0x80;
        assert_eq!(route(&header).map(|(_, _, class, _)| class), Ok(0x68));
    }

    #[test]
    fn roce_needs_a_global_route() {
        assert_eq!(vector(&ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() }), Err(Errno::INVALID));
        let attr = ibv_ah_attr { port_num: 1, is_global: 1, ..ibv_ah_attr::default() };
        assert_eq!(vector(&attr).map(|vector| vector.hop_limit), Ok(DEFAULT_HOP_LIMIT));
    }
}
