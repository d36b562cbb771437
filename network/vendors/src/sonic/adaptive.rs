//! Local adaptive routing of SONiC: the tables ARS_PROFILE, ARS_OBJECT and ARS_INTERFACES (sonic-net, "Local
//! ARS HLD"). A group of next hops uses an object of all ports, of a port, or of a next hop.

use serde_json::{Map, Value, json};

use super::reader::{Read, Reader};
use crate::path_spread::PathSpread;

/// The name of the profile and of the object that are written.
const NAME: &str = "ROCKERY_ARS";

/// Breaks between flowlets in microseconds.
pub(super) const GAP_US: core::ops::RangeInclusive<u32> = 2..=2047;

/// The break between flowlets where an object has none.
pub(super) const GAP_DEFAULT_US: u32 = 256;

impl Reader<'_> {
    /// How the switch spreads packets that leave by a port.
    pub(super) fn spread(&self, port: &str) -> Read<PathSpread> {
        // One profile is supported.
        let profile = self.table("ARS_PROFILE").and_then(|all| all.iter().next());
        let Some((profile_name, profile)) = profile else {
            return Ok(PathSpread::Flows);
        };
        let text = |entry: &'_ Value, field: &str| {
            let value = entry.get(field).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        let path = ["ARS_PROFILE", profile_name, "ars_nhg_path_selector_mode"];
        let mode = text(profile, path[2]).unwrap_or_else(|| "interface".to_owned());
        let of_port = match mode.as_str() {
            "global" => None,
            "interface" => {
                let ports = self.table("ARS_INTERFACES");
                let Some(own) = ports.and_then(|ports| ports.get(port)) else {
                    return Ok(PathSpread::Flows);
                };
                text(own, "ars_obj_name")
            }
            "nexthop" => {
                let what =
                    "next hops choose the object, and the ports of next hops are not in the file";
                return Err(self.wrong(&path, what.to_owned(), None));
            }
            other => {
                let what = format!("\"{other}\" is no mode of a path selector");
                let instead = Some("write global, interface or nexthop".to_owned());
                return Err(self.wrong(&path, what, instead));
            }
        };
        match of_port.or(text(profile, "default_ars_object")) {
            Some(object) => self.object(&path, &object),
            None => Ok(PathSpread::Flows),
        }
    }

    fn object(&self, path: &[&str], name: &str) -> Read<PathSpread> {
        let (name, object) = self.referred(path, "ARS_OBJECT", name)?;
        let path = ["ARS_OBJECT", name.as_str()];
        let mode = object.get("assign_mode").and_then(Value::as_str);
        match mode.unwrap_or("per_flowlet_quality") {
            "per_packet_quality" => Ok(PathSpread::Packets),
            "per_flowlet_quality" => {
                let most = u64::from(*GAP_US.end());
                let gap = self.optional(&path, object, "flowlet_idle_time", most)?;
                let gap = gap.map_or(GAP_DEFAULT_US, |gap| gap as u32);
                Ok(PathSpread::Flowlets(Some(gap)))
            }
            other => {
                let path = ["ARS_OBJECT", name.as_str(), "assign_mode"];
                let what = format!("\"{other}\" is no mode of assignment");
                let instead = Some("write per_packet_quality or per_flowlet_quality".to_owned());
                Err(self.wrong(&path, what, instead))
            }
        }
    }
}

/// Writes the tables of a spread for some ports.
pub(super) fn write(root: &mut Map<String, Value>, spread: PathSpread, names: &[&str]) {
    let object = match spread {
        PathSpread::Flows => return,
        PathSpread::Packets => json!({ "assign_mode": "per_packet_quality" }),
        PathSpread::Flowlets(gap) => json!({
            "assign_mode": "per_flowlet_quality",
            "flowlet_idle_time": gap.unwrap_or(GAP_DEFAULT_US).to_string()
        }),
    };
    let profile = json!({ "algorithm": "ewma", "ars_nhg_path_selector_mode": "interface" });
    let port = |name: &&str| ((*name).to_owned(), json!({ "ars_obj_name": NAME }));
    let ports: Map<String, Value> = names.iter().map(port).collect();
    root.insert("ARS_PROFILE".to_owned(), json!({ NAME: profile }));
    root.insert("ARS_OBJECT".to_owned(), json!({ NAME: object }));
    root.insert("ARS_INTERFACES".to_owned(), Value::Object(ports));
}
