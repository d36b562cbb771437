//! Identifiers of subsystems and disks as lines of a configuration file.

use std::fmt::Write;

use ::nvme::Nqn;
use ::nvme::controller::{Identity, former_serial};
use ::nvme::identifier::{Nguid, Uuid};
use serde_json::{Value, json};

/// The identifiers that a server reports.
pub(crate) fn of_status(status: &Value) -> String {
    let none = Vec::new();
    let list = |value: &Value, name: &str| value[name].as_array().unwrap_or(&none).clone();
    let mut text = String::new();
    for subsystem in list(status, "subsystems") {
        let namespaces = list(&subsystem, "namespaces");
        // A string of JSON is one of TOML, and so is a number.
        let mut table = |name: &str, of: &Value, keys: &[&str]| {
            _ = writeln!(text, "[[{name}]]");
            for key in keys {
                _ = writeln!(text, "{key} = {}", of[*key]);
            }
            text.push('\n');
        };
        table("subsystem", &subsystem, &["nqn", "serial"]);
        for namespace in namespaces {
            table("subsystem.namespace", &namespace, &["id", "uuid", "nguid"]);
        }
    }
    text
}

/// The identifiers that a disk had when they depended on the names alone.
pub(crate) fn former(nqn: &Nqn, nsid: u32) -> String {
    let identity = Identity::of(nqn, nsid);
    let (uuid, nguid) = (Uuid::from(identity.uuid), Nguid::from(identity.nguid));
    let namespaces = [json!({ "id": nsid, "uuid": uuid, "nguid": nguid })];
    let subsystem = json!({ "nqn": nqn, "serial": former_serial(nqn), "namespaces": namespaces });
    of_status(&json!({ "subsystems": [subsystem] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the first commits of rockery reported for the README's line.
    #[test]
    fn former_identifiers_are_those_of_former_servers() {
        let text = former(&"nqn.2024-01.org.rockery:disk".parse().unwrap(), 1);
        assert_eq!(
            text,
            "[[subsystem]]\nnqn = \"nqn.2024-01.org.rockery:disk\"\nserial = \"4e42390ebf14e688\"\n\n\
             [[subsystem.namespace]]\nid = 1\nuuid = \"49413ec9-4ecd-8654-b5eb-9cf5fa054add\"\n\
             nguid = \"ef425865220241aaf0a65581a1313037\"\n\n"
        );
    }
}
