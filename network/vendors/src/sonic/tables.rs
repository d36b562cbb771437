//! Tables of SONiC's JSON files: of `config_db.json`, or of several files of one switch (`qos.json` and
//! `buffers.json`), and in the flat form of Redis, whose keys are `TABLE|KEY`. A platform has its ports in
//! `port_config.ini`.

use serde_json::{Map, Value};

use super::key_lines::KeyLines;
use super::lookup::Lookup;
use crate::import_error::ImportError;
use crate::text::shortened;

/// Tables of QoS that are supported.
pub(super) const TABLES: &[&str] = &[
    "PORT",
    "PORT_QOS_MAP",
    "DSCP_TO_TC_MAP",
    "DOT1P_TO_TC_MAP",
    "TC_TO_QUEUE_MAP",
    "TC_TO_PRIORITY_GROUP_MAP",
    "MAP_PFC_PRIORITY_TO_QUEUE",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
    "SCHEDULER",
    "WRED_PROFILE",
    "QUEUE",
    "BUFFER_MAX_PARAM_TABLE",
    "BUFFER_POOL",
    "BUFFER_PROFILE",
    "BUFFER_PG",
    "BUFFER_QUEUE",
    "PFC_WD",
    "CABLE_LENGTH",
    "DEVICE_METADATA",
    "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
    "ARS_PROFILE",
    "ARS_OBJECT",
    "ARS_INTERFACES",
    "ARS_NEXTHOPS",
];

/// Tables of QoS that do not change what happens to RoCE in this switch: headers that packets leave with,
/// MPLS, tunnels, and what the chip's own defaults are.
const WITHOUT_EFFECT: &[&str] = &[
    "BUFFER_PORT_EGRESS_PROFILE_LIST",
    "BUFFER_PORT_INGRESS_PROFILE_LIST",
    "DSCP_TO_FC_MAP",
    "EXP_TO_FC_MAP",
    "LOSSLESS_TRAFFIC_PATTERN",
    "MPLS_TC_TO_TC_MAP",
    "PFC_PRIORITY_TO_QUEUE_MAP",
    "TC_TO_DOT1P_MAP",
    "TC_TO_DSCP_MAP",
];

/// Tables that do not concern QoS.
const OTHERS: &[&str] = &[
    "AAA",
    "ACL_RULE",
    "ACL_TABLE",
    "ACL_TABLE_TYPE",
    "ASIC_SENSORS",
    "AUTO_TECHSUPPORT",
    "AUTO_TECHSUPPORT_FEATURE",
    "BANNER_MESSAGE",
    "BGP_ALLOWED_PREFIXES",
    "BGP_BBR",
    "BGP_DEVICE_GLOBAL",
    "BGP_GLOBALS",
    "BGP_INTERNAL_NEIGHBOR",
    "BGP_MONITORS",
    "BGP_NEIGHBOR",
    "BGP_PEER_RANGE",
    "BGP_SENTINELS",
    "BGP_VOQ_CHASSIS_NEIGHBOR",
    "BREAKOUT_CFG",
    "CHASSIS_MODULE",
    "CONSOLE_PORT",
    "CONSOLE_SWITCH",
    "COPP_GROUP",
    "COPP_TRAP",
    "CRM",
    "DEVICE_NEIGHBOR",
    "DEVICE_NEIGHBOR_METADATA",
    "DHCP_RELAY",
    "DHCP_SERVER",
    "DHCPv4_RELAY",
    "DNS_NAMESERVER",
    "DPU",
    "FABRIC_MONITOR",
    "FABRIC_PORT",
    "FEATURE",
    "FINE_GRAINED_ECMP",
    "FIPS",
    "FLEX_COUNTER_TABLE",
    "FLOW_COUNTER_ROUTE_PATTERN",
    "GNMI",
    "GRPCCLIENT",
    "HEARTBEAT",
    "INTERFACE",
    "KDUMP",
    "KUBERNETES_MASTER",
    "LDAP",
    "LDAP_SERVER",
    "LLDP",
    "LLDP_PORT",
    "LOGGER",
    "LOOPBACK",
    "LOOPBACK_INTERFACE",
    "MACSEC_PROFILE",
    "MCLAG_DOMAIN",
    "MEMORY_STATISTICS",
    "MGMT_INTERFACE",
    "MGMT_PORT",
    "MGMT_VRF_CONFIG",
    "MID_PLANE_BRIDGE",
    "MIRROR_SESSION",
    "MUX_CABLE",
    "MUX_LINKMGR",
    "NAT_BINDINGS",
    "NAT_GLOBAL",
    "NAT_POOL",
    "NEIGH",
    "NTP",
    "NTP_KEY",
    "NTP_SERVER",
    "NVGRE_TUNNEL",
    "PASSW_HARDENING",
    "PASS_THROUGH_ROUTE_TABLE",
    "PBH_HASH",
    "PBH_TABLE",
    "PEER_SWITCH",
    "PORTCHANNEL",
    "PORTCHANNEL_INTERFACE",
    "PORTCHANNEL_MEMBER",
    "PREFIX_LIST",
    "RADIUS",
    "RADIUS_SERVER",
    "RESTAPI",
    "ROUTE_MAP",
    "SERIAL_CONSOLE",
    "SFLOW",
    "SFLOW_COLLECTOR",
    "SFLOW_SESSION",
    "SNMP",
    "SNMP_AGENT_ADDRESS_CONFIG",
    "SNMP_COMMUNITY",
    "SNMP_USER",
    "SRV6_MY_LOCATORS",
    "SRV6_MY_SIDS",
    "SSH_SERVER",
    "STATIC_ROUTE",
    "STP",
    "STP_PORT",
    "SUBNET_DECAP",
    "SUPPRESS_VLAN_NEIGH",
    "SWITCH_HASH",
    "SWITCH_TRIMMING",
    "SYSLOG_CONFIG",
    "SYSLOG_CONFIG_FEATURE",
    "SYSLOG_SERVER",
    "SYSTEM_DEFAULTS",
    "SYSTEM_PORT",
    "TACPLUS",
    "TACPLUS_SERVER",
    "TELEMETRY",
    "TUNNEL",
    "VDPU",
    "VERSIONS",
    "VLAN",
    "VLAN_INTERFACE",
    "VLAN_MEMBER",
    "VLAN_SUB_INTERFACE",
    "VNET",
    "VNET_ROUTE_TUNNEL",
    "VOQ_INBAND_INTERFACE",
    "VRF",
    "VXLAN_EVPN_NVO",
    "VXLAN_TUNNEL",
    "VXLAN_TUNNEL_MAP",
    "WARM_RESTART",
    "XCVRD_LOG",
    "ZTP",
];

/// Whether a table is known not to matter.
pub(super) fn is_irrelevant(table: &str) -> bool {
    OTHERS.contains(&table) || WITHOUT_EFFECT.contains(&table)
}

/// A value as the database has it: SONiC stores numbers and words as texts, and no lists of this form.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A JSON file with tables of one switch.
struct Document<'a> {
    name: &'a str,
    lines: KeyLines<'a>,
    /// Its tables; whether its keys are those of Redis.
    root: Map<String, Value>,
    is_flat: bool,
}

/// The files of one switch.
pub(super) struct Documents<'a> {
    documents: Vec<Document<'a>>,
    /// The tables of all files. Of entries with one key that of the last file counts.
    pub(super) root: Map<String, Value>,
}

impl<'a> Documents<'a> {
    /// Reads files, each with its name.
    ///
    /// # Errors
    /// A text that is not JSON, or no object.
    pub(super) fn read(files: &[(&'a str, &'a str)]) -> Result<Self, ImportError> {
        let mut documents: Vec<Document<'a>> = Vec::new();
        let mut root: Map<String, Value> = Map::new();
        // What the platform has is changed by the database, in whatever order the files are given.
        let (of_platform, others): (Vec<_>, Vec<_>) =
            files.iter().partition(|(name, _)| is_table(name));
        for (name, text) in of_platform.into_iter().chain(others) {
            let document = match is_table(name) {
                true if Lookup::is_one(text) => continue,
                true => Document::ports(name, text)?,
                false => Document::read(name, text)?,
            };
            for (table, entries) in &document.root {
                match (root.get_mut(table).and_then(Value::as_object_mut), entries) {
                    (Some(known), Value::Object(entries)) => known.extend(entries.clone()),
                    _ => _ = root.insert(table.clone(), entries.clone()),
                }
            }
            documents.push(document);
        }
        Ok(Self { documents, root })
    }

    /// The name of the file that has a path of keys, and the line.
    pub(super) fn line_of(&self, path: &[&str]) -> (&'a str, usize) {
        let has = |document: &&Document<'_>| {
            let mut values = Some(&document.root);
            path.iter().take(2).all(|key| {
                let found = values.and_then(|values| values.get(*key));
                values = found.and_then(Value::as_object);
                found.is_some()
            })
        };
        let found = self
            .documents
            .iter()
            .rev()
            .find(has)
            .or(self.documents.first());
        let Some(document) = found else {
            return ("", 1);
        };
        let line = match (document.is_flat, path) {
            (true, [table, key, rest @ ..]) => {
                let first = format!("{table}|{key}");
                let keys: Vec<&str> = [first.as_str()]
                    .into_iter()
                    .chain(rest.iter().copied())
                    .collect();
                document.lines.line_of(&keys)
            }
            _ => document.lines.line_of(path),
        };
        (document.name, line)
    }
}

/// Whether a file is a table of a platform by its name, and no JSON.
pub(super) fn is_table(name: &str) -> bool {
    name.ends_with(".ini")
}

impl<'a> Document<'a> {
    /// Reads `port_config.ini` of a platform: names of ports, and what the columns of its first line name.
    fn ports(name: &'a str, text: &'a str) -> Result<Self, ImportError> {
        let mut titles = vec!["name", "lanes", "alias", "index"];
        let mut ports: Map<String, Value> = Map::new();
        let mut places = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let words: Vec<&str> = line.trim_start_matches('#').split_whitespace().collect();
            if line.starts_with('#') || line.is_empty() {
                if words.first() == Some(&"name") {
                    titles = words;
                }
                continue;
            }
            let (Some(port), true) = (words.first(), words.len() <= titles.len()) else {
                return Err(ImportError {
                    file: name.to_owned(),
                    line: number,
                    what: format!(
                        "\"{}\": the columns are {}",
                        shortened(line),
                        titles.join(", ")
                    ),
                    instead: None,
                });
            };
            let fields = titles.iter().zip(&words).skip(1);
            let fields = fields.map(|(title, word)| ((*title).to_owned(), Value::from(*word)));
            ports.insert((*port).to_owned(), Value::Object(fields.collect()));
            places.push((*port, number));
        }
        Ok(Self {
            name,
            lines: KeyLines::of_entries("PORT", &places),
            root: [("PORT".to_owned(), Value::Object(ports))]
                .into_iter()
                .collect(),
            is_flat: false,
        })
    }

    fn read(name: &'a str, text: &'a str) -> Result<Self, ImportError> {
        let wrong = |line: usize, what: String| ImportError {
            file: name.to_owned(),
            line,
            what,
            instead: None,
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| wrong(error.line(), format!("no JSON: {error}")))?;
        let Value::Object(root) = value else {
            return Err(wrong(1, "the file is a table of tables".to_owned()));
        };
        let is_flat = !root.is_empty() && root.keys().all(|key| key.contains('|'));
        let root = if is_flat { nested(root) } else { root };
        Ok(Self {
            name,
            lines: KeyLines::of(text),
            root,
            is_flat,
        })
    }
}

/// Tables of keys `TABLE|KEY`. `redis-dump` has the fields below `value`.
fn nested(flat: Map<String, Value>) -> Map<String, Value> {
    let mut root = Map::new();
    for (key, entry) in flat {
        let Some((table, key)) = key.split_once('|') else {
            continue;
        };
        let is_dumped = entry.get("type").and_then(Value::as_str) == Some("hash");
        let fields = entry.get("value").filter(|_| is_dumped).cloned();
        let entries = root
            .entry(table.to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.to_owned(), fields.unwrap_or(entry));
        }
    }
    root
}
