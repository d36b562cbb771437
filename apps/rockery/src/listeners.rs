//! `rockery listeners`: the ports on which programs listen by RDMA-CM.

use host::cm::Listening;
use serde_json::json;

use crate::{Error, output};

/// Lists the listeners of this network namespace.
///
/// # Errors
/// When the agent cannot be asked, or standard output cannot be written.
pub(crate) fn show(as_json: bool) -> Result<(), Error> {
    let found = host::cm::listeners().map_err(Error::Listeners)?;
    if as_json {
        let one =
            |it: &Listening| json!({ "space": space(it), "address": address(it), "port": it.port });
        return output::json(json!(found.iter().map(one).collect::<Vec<_>>()));
    }
    let lines = found.iter();
    let lines = lines.map(|it| format!("{}  {} port {}\n", space(it), address(it), it.port));
    output::print(lines.collect::<String>())
}

/// The port space, by the names of `enum rdma_port_space`.
fn space(listening: &Listening) -> &'static str {
    match listening.space.value() {
        0x0002 => "ipoib",
        0x0106 => "tcp",
        0x0111 => "udp",
        _ => "ib",
    }
}

fn address(listening: &Listening) -> String {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let any = |v4: bool| match v4 {
        true => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        false => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    match listening.address {
        host::cm::ListenAddress::Any => "*".to_owned(),
        host::cm::ListenAddress::AnyV4 => any(true).to_string(),
        host::cm::ListenAddress::AnyV6 => any(false).to_string(),
        host::cm::ListenAddress::One(address) => address.to_string(),
    }
}
