//! Paths on an InfiniBand port. The lab resolves the IP address of a peer to its GID, as IP over InfiniBand
//! does, and asks the subnet's administrator for the path (IBTA 15.2.5.16).

use crate::device::PORT;
use abi::{ibv_ah_attr, ibv_gid, ibv_global_route};
use ffi::Errno;
use link::management::{begin_resolving, finish_resolving};
use link::path_request::{PathRequest, PathTarget, ResolvedPath};
use link::unix;
use rnic::Gid;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// How long a path may take that a call waits for: that to a peer whose request has just arrived is known.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The hop limit of a path that stays in its subnet. One with more needs a global route header, as in Linux
/// (`ib_init_ah_attr_from_path`).
const WITHIN_SUBNET: u8 = 1;

/// Most low bits of a LID that are for paths (IBTA 4.1.1).
const LMC_MAX: u8 = 7;

/// A path that was asked for.
#[derive(Debug)]
pub(crate) struct PathQuery(OwnedFd);

impl PathQuery {
    /// Asks for the path to an IP address.
    ///
    /// # Errors
    /// Those of the lab, where it has ended.
    pub(crate) fn begin(destination: IpAddr, timeout: Duration) -> io::Result<Self> {
        let target = PathTarget::Ip(destination);
        let socket = begin_resolving(PathRequest { target, timeout })?;
        unix::set_nonblocking(socket.as_raw_fd())?;
        Ok(Self(socket))
    }

    /// The path, or `None` while there is no answer.
    ///
    /// # Errors
    /// As [`finish_resolving`].
    pub(crate) fn answer(&self) -> io::Result<Option<ResolvedPath>> {
        match finish_resolving(&self.0) {
            Ok(path) => Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The path to an IP address, for which this waits.
pub(crate) fn find(destination: Gid) -> Result<ResolvedPath, Errno> {
    let target = PathTarget::Ip(Ipv6Addr::from(destination.0).to_canonical());
    let timeout = TIMEOUT;
    Ok(finish_resolving(&begin_resolving(PathRequest {
        target,
        timeout,
    })?)?)
}

/// A path as an address vector of verbs, on a port whose LIDs have so many low bits for paths.
pub(crate) fn address_vector(path: &ResolvedPath, lmc: u8) -> ibv_ah_attr {
    let path_bits = path.source_lid & ((1 << lmc.min(LMC_MAX)) - 1);
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: path.gid },
            flow_label: path.flow_label,
            sgid_index: 0,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        dlid: path.lid,
        sl: path.service_level,
        src_path_bits: path_bits as u8,
        is_global: u8::from(path.hop_limit > WITHIN_SUBNET),
        port_num: PORT,
        ..ibv_ah_attr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_within_the_subnet_needs_no_global_route_header() {
        let path = ResolvedPath {
            gid: [7; 16],
            lid: 5,
            service_level: 3,
            hop_limit: WITHIN_SUBNET,
            ..ResolvedPath::default()
        };
        let attr = address_vector(&path, 0);
        assert_eq!((attr.dlid, attr.sl, attr.is_global), (5, 3, 0));
        let routed = ResolvedPath {
            hop_limit: 64,
            ..path
        };
        let attr = address_vector(&routed, 0);
        assert_eq!((attr.is_global, attr.grh.dgid.raw), (1, [7; 16]));
    }

    #[test]
    fn a_path_leaves_by_the_path_bits_of_its_source() {
        let path = ResolvedPath {
            lid: 8,
            source_lid: 0x17,
            ..ResolvedPath::default()
        };
        let bits = [0, 2, 7, u8::MAX].map(|lmc| address_vector(&path, lmc).src_path_bits);
        assert_eq!(bits, [0, 3, 0x17, 0x17]);
    }
}
