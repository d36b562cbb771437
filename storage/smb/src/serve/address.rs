//! Addresses in configuration files: with the zone of IPv6 addresses.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, de};

/// Reads a list of addresses with ports.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    Vec::<String>::deserialize(from)?
        .iter()
        .map(|text| parsed(text))
        .collect()
}

/// Reads an address with a port, if there is one.
pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Option::<String>::deserialize(from)?
        .map(|text| parsed(&text))
        .transpose()
}

fn parsed<E: de::Error>(text: &str) -> Result<SocketAddr, E> {
    link::address::socket(text).map_err(E::custom)
}

#[cfg(test)]
mod tests {
    use crate::serve::{DialConfig, GatewayConfig};

    #[test]
    fn zones_are_read_in_files() {
        let gateway = "rdma = [\"[fe80::1%lo]:445\"]\nserver = \"s\"\nmetrics = \"[fe80::1%1]:9\"";
        let gateway: GatewayConfig = toml::from_str(gateway).unwrap();
        assert_eq!(
            gateway.rdma,
            [link::address::socket("[fe80::1%1]:445").unwrap()]
        );
        assert_eq!(
            gateway.metrics,
            link::address::socket("[fe80::1%lo]:9").ok()
        );
        let dial =
            toml::from_str::<DialConfig>("listen = [\"127.0.0.1:445\"]\nserver = \"s\"").unwrap();
        assert_eq!(dial.metrics, None);
        let error =
            toml::from_str::<DialConfig>("listen = [\"[fe80::1%nosuch0]:1\"]\nserver = \"s\"")
                .unwrap_err();
        assert!(
            error.to_string().contains("\"nosuch0\" is no interface"),
            "{error}"
        );
    }
}
