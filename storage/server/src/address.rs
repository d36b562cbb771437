//! Addresses in configuration and state files: IPv6 addresses with the name of their zone.

use std::net::SocketAddr;

use link::address::{Zoned, socket};
use serde::{Deserialize, Deserializer, Serializer, de};

/// Reads an address with a port.
///
/// # Errors
/// When the text is no address with a port.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    parsed(&String::deserialize(from)?)
}

/// Reads a list of addresses with ports.
///
/// # Errors
/// As [`deserialize`].
pub fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    Vec::<String>::deserialize(from)?
        .iter()
        .map(|text| parsed(text))
        .collect()
}

/// Reads an address with a port, if there is one.
///
/// # Errors
/// As [`deserialize`].
pub fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Option::<String>::deserialize(from)?
        .map(|text| parsed(&text))
        .transpose()
}

fn parsed<E: de::Error>(text: &str) -> Result<SocketAddr, E> {
    socket(text).map_err(E::custom)
}

/// Writes an address with the name of its zone, since the index of an interface may change.
///
/// # Errors
/// That of the serializer.
pub fn serialize<S: Serializer>(address: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Zoned(*address))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde::{Deserialize, Serialize};

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Port {
        #[serde(with = "super")]
        address: SocketAddr,
    }

    #[test]
    fn zones_stay_names_in_files() {
        for text in ["[fe80::1%lo]:4420", "192.0.2.1:4420", "[2001:db8::1]:4420"] {
            let file = format!("address = \"{text}\"\n");
            let port: Port = toml::from_str(&file).unwrap();
            assert_eq!(toml::to_string(&port).unwrap(), file);
        }
        let by_index: Port = toml::from_str("address = \"[fe80::1%1]:4420\"").unwrap();
        assert_eq!(
            toml::to_string(&by_index).unwrap(),
            "address = \"[fe80::1%lo]:4420\"\n"
        );
        let error = toml::from_str::<Port>("address = \"[fe80::1%nosuch0]:4420\"").unwrap_err();
        assert!(
            error.to_string().contains("\"nosuch0\" is no interface"),
            "{error}"
        );
    }
}
