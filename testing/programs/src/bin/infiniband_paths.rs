//! Asks the lab of an InfiniBand host for the paths to addresses, which are the arguments, and prints them.

use link::management::{begin_resolving, finish_resolving};
use link::path_request::{PathRequest, PathTarget, ResolvedPath};
use std::io;
use std::net::Ipv6Addr;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    for argument in std::env::args().skip(1) {
        // A GID is written as an IPv6 address after `gid=`.
        let target = match argument.strip_prefix("gid=") {
            Some(gid) => gid
                .parse()
                .map(|gid: Ipv6Addr| PathTarget::Gid(gid.octets())),
            None => argument.parse().map(PathTarget::Ip),
        };
        match target.map_err(io::Error::other).and_then(path) {
            Ok(path) => println!(
                "{argument}: {} lid {} from {} p_key {:#x} mtu {} rate {}",
                Ipv6Addr::from(path.gid),
                path.lid,
                path.source_lid,
                path.p_key,
                path.mtu,
                path.rate
            ),
            Err(error) => println!("{argument}: {error}"),
        }
    }
}

fn path(target: PathTarget) -> io::Result<ResolvedPath> {
    let request = PathRequest {
        target,
        timeout: TIMEOUT,
    };
    finish_resolving(&begin_resolving(request)?)
}
