//! Address handles, and address vectors from completions.

use crate::context::{Context, ContextArg, ContextRef};
use crate::device::GIDS;
use crate::pd::{PdArg, pd};
use crate::traced;
use abi::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_wc};
use ffi::{BeginsWith, Errno, GivenUp, In, Out, Subject, exports};
use rnic::{AddressVector, Gid, LocalRoute};
use std::sync::atomic::Ordering;

/// An address handle. C sees the first field.
#[repr(C)]
pub(crate) struct Ah {
    abi: ibv_ah,
    pub(crate) vector: AddressVector,
    _context: ContextRef,
}

// SAFETY: C sees the first field; `boxed` makes the pointers.
unsafe impl BeginsWith<ibv_ah> for Ah {
    fn describe(&self, subject: &mut Subject) {
        self._context.describe(subject);
    }
}

/// Number of the device's only port.
pub(crate) const PORT: u8 = 1;
/// TTL when a program sets none (0 would not leave the host).
const DEFAULT_HOP_LIMIT: u8 = 64;

/// The address vector in C's attributes, for a port of RoCE or of an InfiniBand subnet.
pub(crate) fn vector(attr: &ibv_ah_attr, is_subnet: bool) -> Result<AddressVector, Errno> {
    if attr.port_num != PORT {
        return Err(Errno::INVALID);
    }
    if is_subnet {
        return Ok(subnet_vector(attr));
    }
    // RoCE requires a global route header (IBTA A16.4.3).
    if attr.is_global == 0 {
        host::note(
            "rockery: RoCE needs a GID at both ends: give the program an index that `rockery devices` lists \
             (ibv_rc_pingpong -g, ib_write_bw -x)",
        );
        return Err(Errno::INVALID);
    }
    let hop_limit = if attr.grh.hop_limit == 0 {
        DEFAULT_HOP_LIMIT
    } else {
        attr.grh.hop_limit
    };
    Ok(AddressVector {
        destination: Gid(attr.grh.dgid.raw),
        source_index: attr.grh.sgid_index,
        traffic_class: attr.grh.traffic_class,
        hop_limit,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        service_level: attr.sl,
        local: None,
    })
}

/// The address vector of a port in a subnet: the LID decides, and the global route header is optional.
fn subnet_vector(attr: &ibv_ah_attr) -> AddressVector {
    let route = AddressVector {
        service_level: attr.sl & 0xf,
        local: Some(LocalRoute {
            lid: attr.dlid,
            path_bits: attr.src_path_bits,
            is_global: attr.is_global != 0,
            static_rate: attr.static_rate,
        }),
        ..AddressVector::default()
    };
    if attr.is_global == 0 {
        return route;
    }
    AddressVector {
        destination: Gid(attr.grh.dgid.raw),
        source_index: attr.grh.sgid_index,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        ..route
    }
}

/// The address vector with the hop limit of the route to its peer, as Linux replaces it for queue pairs and
/// address handles.
///
/// # Errors
/// `ENETUNREACH` or `EINVAL` if there is no route: the call fails, not the first request.
pub(crate) fn with_route(
    device: &host::Device,
    vector: AddressVector,
) -> Result<AddressVector, Errno> {
    // A subnet routes by LID, and no network interface of the host has to have a route.
    if vector.local.is_some() {
        return Ok(vector);
    }
    let found = device.hop_limit_to(vector.source_index, vector.destination)?;
    Ok(AddressVector {
        hop_limit: found.unwrap_or(vector.hop_limit),
        ..vector
    })
}

/// An address vector as C's attributes.
pub(crate) fn ah_attr(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: vector.destination.0,
            },
            flow_label: vector.flow_label,
            sgid_index: vector.source_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        sl: vector.service_level,
        is_global: vector.local.is_none_or(|route| route.is_global).into(),
        dlid: vector.local.map_or(0, |route| route.lid),
        src_path_bits: vector.local.map_or(0, |route| route.path_bits),
        static_rate: vector.local.map_or(0, |route| route.static_rate),
        port_num: PORT,
    }
}

/// Source, destination and traffic class from the 40 bytes before a UD payload: an IPv6 header, or an IPv4
/// header in the last 20 bytes (IBTA A17.4.5.2).
fn route(header: &[u8; 40]) -> Result<(Gid, Gid, u8, u8), Errno> {
    let at = |from: usize| -> [u8; 4] {
        [
            header[from],
            header[from + 1],
            header[from + 2],
            header[from + 3],
        ]
    };
    if header[0] >> 4 == 6 {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&header[8..24]);
        destination.copy_from_slice(&header[24..40]);
        return Ok((
            Gid(source),
            Gid(destination),
            header[0] << 4 | header[1] >> 4,
            header[7],
        ));
    }
    if header[20] >> 4 != 4 {
        return Err(Errno::INVALID);
    }
    Ok((
        Gid::from_ipv4(at(32)),
        Gid::from_ipv4(at(36)),
        header[21],
        header[28],
    ))
}

/// Address vector towards the sender of a received datagram. The reply to a multicast datagram has the port's
/// first GID as its source.
fn back(owner: &Context, header: &[u8; 40]) -> Result<AddressVector, Errno> {
    let (source, destination, traffic_class, hop_limit) = route(header)?;
    let ours = owner.device.with(|rnic, _| {
        let same_family = |gid: Gid| gid.ipv4().is_some() == source.ipv4().is_some();
        (0..GIDS)
            .find(|index| rnic.port().gid(*index) == Some(destination))
            .or_else(|| (0..GIDS).find(|index| rnic.port().gid(*index).is_some_and(same_family)))
    });
    let source_index = ours.ok_or(Errno::INVALID)?;
    Ok(AddressVector {
        destination: source,
        source_index,
        traffic_class,
        hop_limit: if hop_limit == 0 {
            DEFAULT_HOP_LIMIT
        } else {
            hop_limit
        },
        ..AddressVector::default()
    })
}

/// The global route back to the sender of a datagram in a subnet.
fn back_in_subnet(header: &[u8; 40]) -> Result<AddressVector, Errno> {
    let (source, _, traffic_class, _) = route(header)?;
    Ok(AddressVector {
        destination: source,
        traffic_class,
        hop_limit: u8::MAX,
        ..AddressVector::default()
    })
}

/// An address handle as C's struct. It counts as a user of its domain, as in the kernel.
fn boxed(domain: &PdArg<'_>, vector: AddressVector) -> Result<*mut ibv_ah, Errno> {
    let of = domain.get()?;
    let context = of.context.clone();
    let abi = ibv_ah {
        context: context.raw(),
        pd: domain.raw(),
        handle: 0,
    };
    of.users.fetch_add(1, Ordering::Relaxed);
    Ok(Box::into_raw(Box::new(Ah {
        abi,
        vector,
        _context: context,
    }))
    .cast())
}

/// As [`boxed`], and in the trace.
fn made(domain: &PdArg<'_>, vector: AddressVector) -> Result<*mut ibv_ah, Errno> {
    let made = boxed(domain, vector)?;
    if traced::is_on() {
        traced::address_handle(&domain.get()?.context.device, made, &vector);
    }
    Ok(made)
}

/// C's `struct ibv_grh`: the 40 bytes before a datagram in its receive buffer, at any address. They are a
/// GRH, or an IPv4 header in the last 20 bytes.
type Header = [u8; 40];

fn from_completion(
    context: &Context,
    port: u8,
    completion: &ibv_wc,
    header: In<'_, *mut Header>,
) -> Result<AddressVector, Errno> {
    let has_header = completion.wc_flags & abi::IBV_WC_GRH != 0;
    if port != PORT {
        return Err(Errno::INVALID);
    }
    if context.device.info().subnet.is_some() {
        let global = has_header
            .then(|| back_in_subnet(header.get()?))
            .transpose()?;
        return Ok(AddressVector {
            service_level: completion.sl,
            local: Some(LocalRoute {
                lid: completion.slid,
                path_bits: completion.dlid_path_bits,
                is_global: has_header,
                static_rate: 0,
            }),
            ..global.unwrap_or_default()
        });
    }
    if !has_header {
        return Err(Errno::INVALID);
    }
    back(context, header.get()?)
}

/// Checks that the GID table has an entry at an index. If not, the reason goes to standard error, because
/// programs print only `EINVAL`.
pub(crate) fn report_missing_gid(device: &host::Device, index: u8) -> bool {
    let is_empty = device.with(|rnic, _| rnic.port().gid(index)).is_none();
    if is_empty {
        let name = &device.info().name;
        host::note(format_args!(
            "rockery: {name}: there is no GID at index {index}: `rockery devices` lists those that are"
        ));
    }
    is_empty
}

exports! {
    fn ibv_create_ah(domain: PdArg<'_>, attr: In<'_, *mut ibv_ah_attr>) -> pointer(*mut ibv_ah) {
        let context = &domain.get()?.context;
        let vector = vector(attr.get()?, context.device.info().subnet.is_some())?;
        if report_missing_gid(&context.device, vector.source_index) {
            return Err(Errno::INVALID);
        }
        let vector = with_route(&context.device, vector)?;
        made(&domain, vector)
    }

    fn ibv_init_ah_from_wc(
        context: ContextArg<'_>, port: u8, completion: In<'_, *mut ibv_wc>, header: In<'_, *mut Header>,
        attr: Out<'_, ibv_ah_attr>,
    ) -> number(i32) {
        attr.write(ah_attr(&from_completion(&context, port, completion.get()?, header)?))?;
        Ok(0)
    }

    fn ibv_create_ah_from_wc(
        domain: PdArg<'_>, completion: In<'_, *mut ibv_wc>, header: In<'_, *mut Header>, port: u8,
    ) -> pointer(*mut ibv_ah) {
        let context = &domain.get()?.context;
        let vector = from_completion(context, port, completion.get()?, header)?;
        let vector = with_route(&context.device, vector)?;
        made(&domain, vector)
    }

    fn ibv_destroy_ah(given_up: GivenUp<Ah, ibv_ah>) -> code(i32) {
        // SAFETY: a domain with users is not freed.
        unsafe { pd(given_up.get()?.abi.pd) }?.users.fetch_sub(1, Ordering::Release);
        given_up.free();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_address_is_read_from_ipv4_and_ipv6_headers() {
        let mut header = [0_u8; 40];
        header[20] = 0x45;
        header[21] = 0x68;
        header[28] = 63;
        header[32..36].copy_from_slice(&[10, 0, 0, 1]);
        header[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let expected = (
            Gid::from_ipv4([10, 0, 0, 1]),
            Gid::from_ipv4([10, 0, 0, 2]),
            0x68,
            63,
        );
        assert_eq!(route(&header), Ok(expected));
        header[20] = 0;
        assert_eq!(route(&header), Err(Errno::INVALID));
        header[0] = 0x66;
        header[1] = 0x80;
        assert_eq!(route(&header).map(|(_, _, class, _)| class), Ok(0x68));
    }

    #[test]
    fn roce_needs_a_global_route() {
        assert_eq!(
            vector(
                &ibv_ah_attr {
                    port_num: 1,
                    ..ibv_ah_attr::default()
                },
                false
            ),
            Err(Errno::INVALID)
        );
        let attr = ibv_ah_attr {
            port_num: 1,
            is_global: 1,
            ..ibv_ah_attr::default()
        };
        assert_eq!(
            vector(&attr, false).map(|vector| vector.hop_limit),
            Ok(DEFAULT_HOP_LIMIT)
        );
    }
}
