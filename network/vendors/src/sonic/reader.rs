//! Reads SONiC's tables as the settings of ports.

use super::config::{BURST_BYTES, SonicConfig, SonicPort};
use super::entries::{ignored, metres, ports_and_range};
use super::group::{Group, alpha};
use super::lookup::Lookup;
use super::tables::{Documents, TABLES, is_irrelevant, is_table, text_of};
use crate::import_error::ImportError;
use crate::outcome::{Area, NotUnderstood};
use crate::text::check_ports;
use fabric::config::{CLASSES, Limit, QueueConfig, Red, RedAt, Shaper, Weigh};
use fabric::{Rate, Span};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The largest MTU of RoCE with its headers.
const MTU_NEEDED: u32 = 4200;

/// The largest number of a queue that some switch has.
const QUEUES_MAX: u64 = 127;

/// Reads the file, called `name` in messages.
///
/// # Errors
/// A text that is not JSON, and one without ports. Entries that are not understood are in `left`.
pub fn read(name: &str, text: &str) -> Result<SonicConfig, ImportError> {
    read_files(&[(name, text)])
}

/// Reads the files of one switch: `config_db.json`, or `qos.json` and `buffers.json`, and the platform's
/// `pg_profile_lookup.ini` and `port_config.ini`.
///
/// # Errors
/// A text that is not JSON, and files without ports. Entries that are not understood are in `left`.
pub fn read_files(files: &[(&str, &str)]) -> Result<SonicConfig, ImportError> {
    let mut lookups = files
        .iter()
        .filter(|(name, text)| is_table(name) && Lookup::is_one(text));
    let lookup = match lookups.next() {
        Some((name, text)) => Some(Lookup::read(name, text)?),
        None => None,
    };
    let reader = Reader {
        files: &Documents::read(files)?,
        lookup,
        found: RefCell::default(),
    };
    reader.check_tables();
    reader.check_entries();
    let mut config = reader.config()?;
    config.tables = reader.files.root.clone();
    let found = reader.found.into_inner();
    let lines = |kind: Kind| {
        let own = found.iter().filter(move |(key, _)| key.0 == kind);
        own.map(|((_, file, line, why), ports)| NotUnderstood {
            file: file.clone(),
            line: *line,
            areas: Area::of(why),
            ports: ports.iter().cloned().collect(),
            why: why.clone(),
        })
        .collect()
    };
    config.left = lines(Kind::Left);
    config.not_simulated = lines(Kind::NotSimulated);
    Ok(config)
}

/// What is said of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Left,
    NotSimulated,
}

/// Kind, file, line and text of what is said of entries, each with the ports.
type Found = BTreeMap<(Kind, String, usize, String), BTreeSet<String>>;

pub(super) struct Reader<'a> {
    files: &'a Documents<'a>,
    lookup: Option<Lookup>,
    found: RefCell<Found>,
}

pub(super) type Read<T> = Result<T, ImportError>;

impl<'a> Reader<'a> {
    pub(super) fn wrong(
        &self,
        path: &[&str],
        what: String,
        instead: Option<String>,
    ) -> ImportError {
        let (file, line) = self.files.line_of(path);
        ImportError {
            file: file.to_owned(),
            line,
            what: format!("{}: {what}", path.join(" ")),
            instead,
        }
    }

    /// Takes what was read of an entry, or that it was not understood.
    pub(super) fn take<T>(&self, port: &str, read: Read<T>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                let instead = error
                    .instead
                    .map(|text| format!("; {text}"))
                    .unwrap_or_default();
                let key = (Kind::Left, error.file, error.line, error.what + &instead);
                self.say(key, port);
                None
            }
        }
    }

    fn say(&self, key: (Kind, String, usize, String), port: &str) {
        let mut found = self.found.borrow_mut();
        let ports = found.entry(key).or_default();
        ports.extend(Some(port.to_owned()).filter(|port| !port.is_empty()));
    }

    /// Says that a setting is understood and not simulated.
    pub(super) fn not_simulated(&self, path: &[&str], port: &str, what: &str) {
        let error = self.wrong(path, what.to_owned(), None);
        self.say(
            (Kind::NotSimulated, error.file, error.line, error.what),
            port,
        );
    }

    /// Names tables that are not known: their settings have no effect here.
    fn check_tables(&self) {
        for name in self.files.root.keys() {
            if TABLES.contains(&name.as_str()) || is_irrelevant(name) {
                continue;
            }
            let meant = crate::text::nearest(name, TABLES.iter().copied());
            let instead = meant.map(|meant| format!("did you mean {meant}?"));
            let what = "this table is not known".to_owned();
            self.take("", Err::<(), _>(self.wrong(&[name], what, instead)));
        }
    }

    /// Names entries, fields and ports that the switch ignores.
    fn check_entries(&self) {
        for odd in ignored(&self.files.root) {
            let path: Vec<&str> = odd.path.iter().map(String::as_str).collect();
            let wrong = self.wrong(&path, odd.what, odd.instead);
            self.take(&odd.port, Err::<(), _>(wrong));
        }
    }

    pub(super) fn table(&self, name: &str) -> Option<&'a Map<String, Value>> {
        self.files.root.get(name).and_then(Value::as_object)
    }

    /// An entry that a field refers to; old images wrap the name as `[TABLE|NAME]`.
    pub(super) fn referred(
        &self,
        path: &[&str],
        table: &str,
        value: &str,
    ) -> Read<(String, &'a Value)> {
        let name = value.trim_matches(['[', ']']);
        let name = name.split_once('|').map_or(name, |(_, name)| name);
        let entries = self.table(table);
        let found = entries.and_then(|entries| entries.get(name));
        found.map(|entry| (name.to_owned(), entry)).ok_or_else(|| {
            let names = entries
                .into_iter()
                .flat_map(|entries| entries.keys().map(String::as_str));
            let meant =
                crate::text::nearest(name, names).map(|meant| format!("did you mean \"{meant}\"?"));
            self.wrong(path, format!("{table} has no entry \"{name}\""), meant)
        })
    }

    fn number(&self, path: &[&str], value: &Value, max: u64) -> Read<u64> {
        let number = value
            .as_u64()
            .or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        number
            .filter(|number| *number <= max)
            .ok_or_else(|| self.wrong(path, format!("{value} is no number from 0 to {max}"), None))
    }

    pub(super) fn optional(
        &self,
        path: &[&str],
        entry: &Value,
        field: &str,
        max: u64,
    ) -> Read<Option<u64>> {
        let path = [path, &[field]].concat();
        entry
            .get(field)
            .map(|value| self.number(&path, value, max))
            .transpose()
    }

    fn config(&self) -> Read<SonicConfig> {
        let mut names: Vec<String> = Vec::new();
        let listed = self.table("PORT").into_iter().flat_map(Map::keys).cloned();
        let mapped = self.table("PORT_QOS_MAP").into_iter().flat_map(Map::keys);
        let mapped = mapped
            .flat_map(|key| key.split(','))
            .filter(|name| *name != "global")
            .map(str::to_owned);
        let ranged = ["BUFFER_PG", "BUFFER_QUEUE", "QUEUE"]
            .into_iter()
            .flat_map(|table| {
                let keys = self.table(table).into_iter().flat_map(Map::keys);
                keys.filter_map(|key| Some(key.split_once('|')?.0))
                    .flat_map(|ports| ports.split(','))
            });
        names.extend(listed.chain(mapped));
        names.extend(ranged.map(str::to_owned));
        names.sort_by_key(|name| (name.len(), name.clone()));
        names.dedup();
        check_ports("", names.len()).map_err(|error| self.wrong(&["PORT"], error.what, None))?;
        let ports = names.into_iter().map(|name| {
            let port = self.port(&name);
            (name, port)
        });
        let ports = ports.collect::<BTreeMap<_, _>>();
        if ports.is_empty() {
            return Err(self.wrong(&["PORT"], "the file names no port".to_owned(), None));
        }
        let pools = self.pools();
        Ok(SonicConfig {
            ports,
            total_bytes: pools.total_bytes,
            headroom_pool_bytes: pools.headroom_pool_bytes,
            pool: pools.name,
            pool_bytes: pools.pool_bytes,
            memory_bytes: self.memory(pools.pool_bytes),
            tables: Map::new(),
            left: Vec::new(),
            not_simulated: Vec::new(),
        })
    }

    fn port(&self, name: &str) -> SonicPort {
        let mut port = SonicPort::default();
        for key in ["global", name] {
            if let Some((key, entry)) = self.entry("PORT_QOS_MAP", key) {
                self.qos_map(&mut port, name, &key, entry);
            }
        }
        let lengths = self.table("CABLE_LENGTH").into_iter().flat_map(Map::values);
        let length = lengths.filter_map(|table| table.get(name)?.as_str()).next();
        port.metres = length.and_then(metres);
        self.queues(&mut port, name);
        self.groups(&mut port, name);
        self.computed(&mut port, name);
        self.take(name, self.paused(&port, name));
        self.take(name, self.watchdog(&mut port, name));
        port.spread = self.take(name, self.spread(name)).unwrap_or_default();
        self.of_port(&mut port, name);
        port
    }

    /// Checks that PFC has an effect: that some traffic class is in the priority group of a priority with
    /// PFC.
    fn paused(&self, port: &SonicPort, name: &str) -> Read<()> {
        if port.pfc == 0 || port.pfc_send() != 0 {
            return Ok(());
        }
        let key = self.entry("PORT_QOS_MAP", name).map(|(key, _)| key);
        let path = ["PORT_QOS_MAP", key.as_deref().unwrap_or(name), "pfc_enable"];
        let what =
            "no traffic class is in the priority group of these priorities, so nothing is paused";
        let instead = Some("put traffic class 3 in group 3, for example".to_owned());
        Err(self.wrong(&path, what.to_owned(), instead))
    }

    /// What the table PORT says that concerns QoS.
    fn of_port(&self, port: &mut SonicPort, name: &str) {
        let entry = self.table("PORT").and_then(|ports| ports.get(name));
        let text = |field: &str| entry.and_then(|entry| text_of(entry.get(field)?));
        port.pfc_asymmetric = text("pfc_asym").as_deref() == Some("on");
        if text("admin_status").as_deref() == Some("down") {
            let what = "the port is simulated as if it were up";
            self.not_simulated(&["PORT", name, "admin_status"], name, what);
        }
        let mtu = text("mtu").and_then(|mtu| mtu.parse::<u32>().ok());
        if mtu.is_some_and(|mtu| mtu < MTU_NEEDED) {
            let what = "frames of RoCE that are larger are simulated as if they fitted";
            self.not_simulated(&["PORT", name, "mtu"], name, what);
        }
        let parameters = self.table("DEFAULT_LOSSLESS_BUFFER_PARAMETER");
        for (key, entry) in parameters.into_iter().flatten() {
            let ratio = entry.get("over_subscribe_ratio").and_then(Value::as_str);
            if ratio.is_some_and(|ratio| ratio != "0") {
                let path = [
                    "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
                    key,
                    "over_subscribe_ratio",
                ];
                self.not_simulated(&path, "", "a headroom pool of this ratio is not simulated");
            }
        }
    }

    fn watchdog(&self, port: &mut SonicPort, name: &str) -> Read<()> {
        let Some((key, entry)) = self.entry("PFC_WD", name) else {
            return Ok(());
        };
        let path = ["PFC_WD", key.as_str()];
        let whole = self
            .table("PFC_WD")
            .and_then(|entries| entries.get("GLOBAL"));
        let always = whole.and_then(|entry| text_of(entry.get("BIG_RED_SWITCH")?));
        if always.as_deref() == Some("enable") {
            let what = "all lossless queues act as stormed ones, which is not simulated";
            self.not_simulated(&["PFC_WD", "GLOBAL", "BIG_RED_SWITCH"], "", what);
        }
        let time = |field| self.optional(&path, entry, field, 60_000);
        let times = time("detection_time")?.zip(time("restoration_time")?);
        if times.is_none() {
            let what = "without detection_time and restoration_time versions refuse the entry, or never \
                        restore: no watchdog is simulated";
            self.not_simulated(&path, name, what);
            return Ok(());
        }
        match entry
            .get("action")
            .and_then(Value::as_str)
            .unwrap_or("drop")
        {
            "drop" => {
                let span = |ms: u64| Span::from_us(ms * 1000);
                port.watchdog = times.map(|(found, over)| (span(found), span(over)));
            }
            "alert" => {
                let what = "action alert reports a storm and drops nothing: a deadlock stays";
                self.not_simulated(&path, name, what);
            }
            "forward" => {
                let what = "action forward sends in spite of pauses, which is not simulated";
                self.not_simulated(&path, name, what);
            }
            other => {
                let what = format!("\"{other}\" is no action of a watchdog");
                let instead = Some("write drop, alert or forward".to_owned());
                return Err(self.wrong(&path, what, instead));
            }
        }
        Ok(())
    }

    /// Lossless buffers of the traditional buffer model: buffermgrd makes a profile for the priorities of
    /// `pfc_enable` of each port's speed and cable.
    fn computed(&self, port: &mut SonicPort, name: &str) {
        let metadata = self
            .table("DEVICE_METADATA")
            .and_then(|table| table.get("localhost"));
        let model = metadata.and_then(|host| host.get("buffer_model")?.as_str());
        let missing: Vec<usize> = (0..CLASSES)
            .filter(|priority| port.pfc >> priority & 1 == 1)
            .map(|priority| usize::from(port.pfc_groups[priority] & 7))
            .filter(|group| port.groups[*group].is_none_or(|group| !group.lossless))
            .collect();
        if missing.is_empty() {
            return;
        }
        if model == Some("dynamic") {
            let groups: Vec<String> = missing.iter().map(usize::to_string).collect();
            let what = format!(
                "PFC is enabled, and BUFFER_PG has no lossless entry for priority group {}: the dynamic \
                 buffer model makes none",
                groups.join(" and ")
            );
            let path = ["PORT_QOS_MAP", name, "pfc_enable"];
            self.take(name, Err::<(), _>(self.wrong(&path, what, None)));
            return;
        }
        // buffermgrd writes its own profile in place of a configured one.
        for (key, groups, _) in self.ranged("BUFFER_PG", name) {
            if groups.iter().any(|group| missing.contains(group)) {
                let what = "the profile has no headroom (xoff): what buffermgrd puts in its place is taken";
                self.not_simulated(&["BUFFER_PG", key], name, what);
            }
        }
        let path = ["CABLE_LENGTH", "AZURE", name];
        let Some(metres) = port.metres.filter(|metres| *metres > 0) else {
            let what =
                "PFC is enabled, and without the length of the cable there is no lossless buffer";
            self.take(name, Err::<(), _>(self.wrong(&path, what.to_owned(), None)));
            return;
        };
        let entry = self.table("PORT").and_then(|ports| ports.get(name));
        let speed = entry.and_then(|entry| text_of(entry.get("speed")?)?.parse::<u32>().ok());
        let group = match (&self.lookup, speed) {
            (Some(lookup), Some(speed)) => match lookup.group(speed, metres) {
                Some(group) => group,
                None => {
                    let what = format!(
                        "pg_profile_lookup.ini has no profile for speed {speed} and {metres}m: the port has \
                         no lossless buffer"
                    );
                    self.take(name, Err::<(), _>(self.wrong(&path, what, None)));
                    return;
                }
            },
            (Some(_), None) => Group::computed(),
            (None, _) => {
                let what = "the headroom is computed of speed and length, for the worst packing of cells; \
                            pg_profile_lookup.ini beside this file has the platform's own";
                self.not_simulated(&["CABLE_LENGTH"], name, what);
                Group::computed()
            }
        };
        missing
            .iter()
            .for_each(|number| port.groups[*number] = Some(group));
    }

    /// The entry whose key names a port, alone or among others.
    fn entry(&self, table: &str, name: &str) -> Option<(String, &'a Value)> {
        let entries = self.table(table)?;
        let mut own = entries
            .iter()
            .filter(|(key, _)| key.split(',').any(|part| part == name));
        let found = own.next()?;
        for (key, entry) in own {
            let fields: Vec<&str> = entry
                .as_object()
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
                .collect();
            let fields = fields.join(", ");
            let what = format!(
                "{name} has the entry \"{}\" as well: which one counts is unknown ({fields})",
                found.0
            );
            self.take(name, Err::<(), _>(self.wrong(&[table, key], what, None)));
        }
        Some((found.0.clone(), found.1))
    }

    fn qos_map(&self, port: &mut SonicPort, name: &str, key: &str, entry: &'a Value) {
        for (field, value) in entry.as_object().into_iter().flatten() {
            self.take(name, self.qos_field(port, key, field, value));
        }
    }

    /// One field of PORT_QOS_MAP.
    fn qos_field(&self, port: &mut SonicPort, key: &str, field: &str, value: &Value) -> Read<()> {
        let path = ["PORT_QOS_MAP", key, field];
        // A value that is neither a text nor a number has been named.
        let Some(text) = text_of(value) else {
            return match field {
                "pfc_enable" => {
                    Err(self.wrong(&path, "the priorities are unknown".to_owned(), None))
                }
                _ => Ok(()),
            };
        };
        let text = text.as_str();
        match field {
            "dscp_to_tc_map" => {
                port.dscp = Some(self.map(&path, "DSCP_TO_TC_MAP", text, [0; 64])?)
            }
            "dot1p_to_tc_map" => {
                port.pcp = Some(self.map(&path, "DOT1P_TO_TC_MAP", text, [0; 8])?)
            }
            "tc_to_queue_map" => {
                port.queue = self.map(&path, "TC_TO_QUEUE_MAP", text, port.queue)?
            }
            "tc_to_pg_map" => {
                port.group = self.map(&path, "TC_TO_PRIORITY_GROUP_MAP", text, port.group)?
            }
            "pfc_to_queue_map" => {
                let queues = self.map(&path, "MAP_PFC_PRIORITY_TO_QUEUE", text, port.pfc_queues)?;
                port.pfc_queues = queues;
            }
            "pfc_enable" => {
                port.pfc = 0;
                for part in text.split(',').filter(|part| !part.is_empty()) {
                    port.pfc |= 1 << self.number(&path, &Value::String(part.to_owned()), 7)?;
                }
            }
            "pfc_to_pg_map" => {
                let table = "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP";
                port.pfc_groups = self.map(&path, table, text, port.pfc_groups)?;
            }
            // Headers that packets leave with, and shapers of the whole port.
            "pfcwd_sw_enable" | "tc_to_dscp_map" | "tc_to_dot1p_map" | "scheduler"
            | "dscp_to_fc_map" | "exp_to_fc_map" | "mpls_tc_to_tc_map" => {}
            _ => {
                let known = [
                    "dscp_to_tc_map",
                    "dot1p_to_tc_map",
                    "tc_to_queue_map",
                    "tc_to_pg_map",
                    "pfc_enable",
                ];
                let meant = crate::text::nearest(field, known.iter().copied());
                let instead = meant.map(|meant| format!("did you mean {meant}?"));
                return Err(self.wrong(&path, "there is no such field".to_owned(), instead));
            }
        }
        Ok(())
    }

    fn map<const N: usize>(
        &self,
        path: &[&str],
        table: &str,
        value: &str,
        mut map: [u8; N],
    ) -> Read<[u8; N]> {
        let (name, entry) = self.referred(path, table, value)?;
        for (key, value) in entry.as_object().into_iter().flatten() {
            let path = [table, name.as_str(), key.as_str()];
            let from = self.number(&path, &Value::String(key.clone()), N as u64 - 1)?;
            map[from as usize] = self.number(&path, value, 7)? as u8;
        }
        Ok(map)
    }

    /// Keys such as `Ethernet0|3-4` or `Ethernet0,Ethernet4|3`, whose entries concern a port.
    fn ranged(&self, table: &'a str, name: &str) -> Vec<(&'a str, Vec<usize>, &'a Value)> {
        let mut found: Vec<(&'a str, Vec<usize>, &'a Value)> = Vec::new();
        for (key, entry) in self.table(table).into_iter().flatten() {
            let Some((ports, range)) = ports_and_range(&self.files.root, key) else {
                continue;
            };
            if !ports.split(',').any(|port| port == name) {
                continue;
            }
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| {
                self.number(&[table, key], &Value::String(text.to_owned()), QUEUES_MAX)
            };
            let read = number(from).and_then(|from| Ok((from, number(to)?)));
            let Some((from, to)) = self.take(name, read) else {
                continue;
            };
            // Queues above 7 carry multicast, or packets of the switch itself.
            let queues = (from as usize..=to as usize).filter(|number| *number < CLASSES);
            let queues: Vec<usize> = queues.collect();
            let has_same = |other: &&(&str, Vec<usize>, &Value)| {
                other.1.iter().any(|number| queues.contains(number))
            };
            if let Some((other, ..)) = found.iter().find(has_same) {
                let fields = entry.as_object().into_iter().flat_map(Map::keys);
                let fields: Vec<&str> = fields.map(String::as_str).collect();
                let fields = fields.join(", ");
                let what =
                    format!("it overlaps \"{other}\": which one counts is unknown ({fields})");
                self.take(name, Err::<(), _>(self.wrong(&[table, key], what, None)));
            }
            found.push((key.as_str(), queues, entry));
        }
        found
    }

    fn queues(&self, port: &mut SonicPort, name: &str) {
        for (key, queues, entry) in self.ranged("QUEUE", name) {
            self.take(name, self.scheduler(port, key, &queues, entry));
            self.take(name, self.marking(port, key, &queues, entry));
        }
    }

    /// The scheduler of an entry of QUEUE.
    fn scheduler(
        &self,
        port: &mut SonicPort,
        key: &str,
        queues: &[usize],
        entry: &'a Value,
    ) -> Read<()> {
        let path = ["QUEUE", key, "scheduler"];
        if let Some(scheduler) = entry.get("scheduler").and_then(Value::as_str) {
            let (scheduler, entry) = self.referred(&path, "SCHEDULER", scheduler)?;
            for queue in queues {
                self.schedule(
                    &mut port.queues[*queue],
                    *queue,
                    &scheduler,
                    entry,
                    &mut port.weigh,
                )?;
            }
        }
        Ok(())
    }

    /// The marking of an entry of QUEUE.
    fn marking(
        &self,
        port: &mut SonicPort,
        key: &str,
        queues: &[usize],
        entry: &'a Value,
    ) -> Read<()> {
        let path = ["QUEUE", key, "wred_profile"];
        if let Some(profile) = entry
            .get("wred_profile")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
        {
            let (profile, entry) = self.referred(&path, "WRED_PROFILE", profile)?;
            let red = self.wred(&profile, entry)?;
            queues
                .iter()
                .for_each(|queue| port.queues[*queue].red = red);
        }
        Ok(())
    }

    fn schedule(
        &self,
        queue: &mut QueueConfig,
        number: usize,
        name: &str,
        entry: &Value,
        weigh: &mut Weigh,
    ) -> Read<()> {
        let path = ["SCHEDULER", name];
        match entry.get("type").and_then(Value::as_str).unwrap_or("WRR") {
            "STRICT" => queue.level = 1 + number as u8,
            "DWRR" => *weigh = Weigh::Bytes,
            "WRR" => *weigh = Weigh::Packets,
            other => {
                let what = format!("\"{other}\" is no type of scheduler");
                return Err(self.wrong(&path, what, Some("write DWRR, WRR or STRICT".to_owned())));
            }
        }
        queue.weight = self
            .optional(&path, entry, "weight", 100)?
            .unwrap_or(1)
            .max(1) as u16;
        // Bytes per second, as the schema has it, unless packets are metered.
        let rate = self.optional(&path, entry, "pir", u64::MAX / 8)?;
        let rate = rate.filter(|rate| *rate > 0);
        let in_bytes = entry.get("meter_type").and_then(Value::as_str) != Some("packets");
        if rate.is_some() && !in_bytes {
            let what = "a highest rate in packets per second is not simulated";
            self.not_simulated(&path, "", what);
        }
        if let Some(rate) = rate.filter(|_| in_bytes) {
            let burst = self.optional(&path, entry, "pbs", u64::from(u32::MAX))?;
            let burst_bytes = burst.map_or(BURST_BYTES, |burst| burst as u32);
            queue.shaper = Some(Shaper {
                rate: Rate::from_bps(rate * 8),
                burst_bytes,
            });
        }
        Ok(())
    }

    /// Marks are counted in green, the colour that everything has here.
    fn wred(&self, name: &str, entry: &Value) -> Read<Option<Red>> {
        let path = ["WRED_PROFILE", name];
        let ecn = entry.get("ecn").and_then(text_of);
        let mark = match ecn.as_deref().unwrap_or("ecn_none") {
            "ecn_all" | "ecn_green" | "ecn_green_yellow" | "ecn_green_red" => true,
            "ecn_none" | "ecn_yellow" | "ecn_red" | "ecn_yellow_red" => false,
            other => {
                let what = format!("\"{other}\" is no colour that ECN marks");
                let instead = Some("write ecn_all, ecn_green or ecn_none".to_owned());
                return Err(self.wrong(&[path[0], name, "ecn"], what, instead));
            }
        };
        let green = entry.get("wred_green_enable").and_then(text_of);
        let drop = match green.as_deref().unwrap_or("false") {
            "true" | "yes" => true,
            "false" | "no" => false,
            other => {
                let what = format!("\"{other}\" is not true or false");
                return Err(self.wrong(&[path[0], name, "wred_green_enable"], what, None));
            }
        };
        let limit = u64::from(u32::MAX);
        let min = self.optional(&path, entry, "green_min_threshold", limit)?;
        let max = self.optional(&path, entry, "green_max_threshold", limit)?;
        let percent = self
            .optional(&path, entry, "green_drop_probability", 100)?
            .unwrap_or(100);
        if !mark && !drop {
            return Ok(None);
        }
        let Some((min, max)) = min.zip(max).filter(|(min, max)| min <= max) else {
            let what =
                "green_min_threshold and a green_max_threshold that is not below it were expected";
            return Err(self.wrong(&path, what.to_owned(), None));
        };
        let chance = (percent << 32) / 100;
        Ok(Some(Red {
            min_bytes: min as u32,
            max_bytes: max as u32,
            probability: chance.min(u64::from(u32::MAX)) as u32,
            mark,
            drop,
            at: RedAt::Dequeue,
        }))
    }

    fn groups(&self, port: &mut SonicPort, name: &str) {
        for (key, groups, entry) in self.ranged("BUFFER_PG", name) {
            let profile = entry
                .get("profile")
                .and_then(Value::as_str)
                .unwrap_or("NULL");
            let group = match profile {
                "NULL" => Some(Group::computed()),
                profile => self.take(name, self.buffer(&["BUFFER_PG", key], profile)),
            };
            for number in groups.iter().filter(|_| group.is_some()) {
                port.groups[*number] = group;
            }
        }
        for (key, queues, entry) in self.ranged("BUFFER_QUEUE", name) {
            let profile = entry.get("profile").and_then(Value::as_str);
            let Some(profile) = profile.filter(|name| *name != "NULL") else {
                continue;
            };
            if let Some(group) = self.take(name, self.buffer(&["BUFFER_QUEUE", key], profile)) {
                queues
                    .iter()
                    .for_each(|queue| port.queues[*queue].limit = group.limit);
            }
        }
    }

    fn buffer(&self, path: &[&str], profile: &str) -> Read<Group> {
        let (name, entry) = self.referred(path, "BUFFER_PROFILE", profile)?;
        let path = ["BUFFER_PROFILE", name.as_str()];
        let max = u64::from(u32::MAX);
        let size = |field| {
            self.optional(&path, entry, field, max)
                .map(|value| value.map(|value| value as u32))
        };
        let computed = entry.get("headroom_type").and_then(Value::as_str) == Some("dynamic");
        let headroom = size("xoff")?;
        let limit = match (entry.get("dynamic_th"), size("static_th")?) {
            (Some(value), _) => Limit::Dynamic(self.alpha(&path, value)?),
            (None, Some(bytes)) => Limit::Static(bytes),
            (None, None) => Limit::Dynamic(fabric::config::ALPHA_ONE),
        };
        Ok(Group {
            reserve: size("size")?
                .unwrap_or(0)
                .saturating_sub(headroom.unwrap_or(0)),
            limit,
            lossless: computed || headroom.is_some_and(|bytes| bytes > 0),
            headroom,
            xon_offset: size("xon_offset")?.or(size("xon")?).unwrap_or(0),
        })
    }

    /// `dynamic_th` n stands for an alpha of 2^n.
    fn alpha(&self, path: &[&str], value: &Value) -> Read<u32> {
        let number = value
            .as_i64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        number.and_then(alpha).ok_or_else(|| {
            let what = format!("dynamic_th {value} is no power from -16 to 14");
            self.wrong(path, what, None)
        })
    }
}
