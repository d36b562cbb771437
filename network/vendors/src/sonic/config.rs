//! SONiC's `config_db.json`: the QoS tables, by the names of its schema (sonic-net, `sonic-yang-models`).

use crate::import_error::ImportError;
use fabric::config::{
    BufferConfig, CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, Profile, QueueConfig, Red,
    RedAt, Shaper, Treatment, Weigh,
};
use fabric::headroom::Headroom;
use fabric::topology::LinkConfig;
use fabric::{Rate, Span};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Tables of QoS that are supported; other tables of the file do not concern QoS.
const TABLES: &[&str] = &[
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
    "BUFFER_POOL",
    "BUFFER_PROFILE",
    "BUFFER_PG",
    "BUFFER_QUEUE",
    "PFC_WD",
    "CABLE_LENGTH",
];

/// The packet memory where `BUFFER_POOL` has no size: that of a Trident 3.
const MEMORY_BYTES: u32 = 32 << 20;

/// Cells of Broadcom's chips since Trident 3.
const CELL_BYTES: u32 = 254;

/// Burst of a shaper where `pbs` is missing.
const BURST_BYTES: u32 = 2 * 9_216;

/// Time from a pause frame until a port stops; assumed, since chips do not publish it.
const RESPONSE: Span = Span::from_ns(670);

/// The tables, read.
#[derive(Clone, PartialEq, Debug)]
pub struct SonicConfig {
    /// Settings of each port, by name.
    pub ports: BTreeMap<String, SonicPort>,
    total_bytes: u32,
    headroom_pool_bytes: Option<u32>,
    /// The name of the pool that arriving packets are charged to.
    pub(crate) pool: String,
}

/// The name of that pool where the file has none, as in SONiC's templates.
const POOL: &str = "ingress_lossless_pool";

/// The configuration of one port.
#[derive(Clone, PartialEq, Debug)]
pub struct SonicPort {
    dscp: Option<[u8; 64]>,
    pcp: Option<[u8; 8]>,
    /// By traffic class.
    queue: [u8; CLASSES],
    /// By traffic class.
    group: [u8; CLASSES],
    /// The queues that each priority pauses, one bit each.
    pfc_queues: [u8; CLASSES],
    pfc: u8,
    /// The queues by their numbers.
    queues: [QueueConfig; CLASSES],
    /// By priority group; headroom is `None` where it is to be computed.
    groups: [Option<Group>; CLASSES],
    weigh: Weigh,
    /// `PFC_WD`: detection and restoration, where the watchdog runs.
    pub watchdog: Option<(Span, Span)>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Group {
    reserve: u32,
    limit: Limit,
    headroom: Option<u32>,
    xon_offset: u32,
    lossless: bool,
}

/// Reads the file, called `name` in messages.
///
/// # Errors
/// A text that is not JSON, references to missing entries, and values that are not understood, with their
/// line.
pub fn read(name: &str, text: &str) -> Result<SonicConfig, ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError {
        file: name.to_owned(),
        line: error.line(),
        what: format!("no JSON: {error}"),
        instead: None,
    })?;
    let reader = Reader {
        file: name,
        text,
        root: &root,
    };
    reader.check_tables()?;
    reader.config()
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    root: &'a Value,
}

type Read<T> = Result<T, ImportError>;

impl<'a> Reader<'a> {
    fn wrong(&self, path: &[&str], what: String, instead: Option<String>) -> ImportError {
        let line = line_of(self.text, path);
        ImportError {
            file: self.file.to_owned(),
            line,
            what: format!("{}: {what}", path.join(" ")),
            instead,
        }
    }

    /// Refuses QoS tables that are not supported: their settings would silently have no effect.
    fn check_tables(&self) -> Read<()> {
        let Some(tables) = self.root.as_object() else {
            return Err(self.wrong(&[], "the file is a table of tables".to_owned(), None));
        };
        for name in tables.keys() {
            let about_qos = [
                "_TO_TC_",
                "TC_TO_",
                "TC_AND_",
                "PFC_",
                "BUFFER_PG",
                "BUFFER_QUEUE",
                "WRED",
            ];
            if !TABLES.contains(&name.as_str()) && about_qos.iter().any(|part| name.contains(part))
            {
                let meant = crate::text::nearest(name, TABLES.iter().copied());
                let instead = meant.map(|meant| format!("did you mean {meant}?"));
                return Err(self.wrong(
                    &[name],
                    "this QoS table is not understood".to_owned(),
                    instead,
                ));
            }
        }
        Ok(())
    }

    fn table(&self, name: &str) -> Option<&'a Map<String, Value>> {
        self.root.get(name).and_then(Value::as_object)
    }

    /// An entry that a field refers to; old images wrap the name as `[TABLE|NAME]`.
    fn referred(&self, path: &[&str], table: &str, value: &str) -> Read<(String, &'a Value)> {
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

    fn optional(&self, path: &[&str], entry: &Value, field: &str, max: u64) -> Read<Option<u64>> {
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
        names.extend(listed.chain(mapped));
        names.sort_by_key(|name| (name.len(), name.clone()));
        names.dedup();
        let ports = names
            .into_iter()
            .map(|name| Ok((name.clone(), self.port(&name)?)));
        let ports = ports.collect::<Read<BTreeMap<_, _>>>()?;
        if ports.is_empty() {
            return Err(self.wrong(&["PORT"], "the file names no port".to_owned(), None));
        }
        let pools = self.table("BUFFER_POOL");
        let mut total = 0_u64;
        let (mut xoff, mut shared) = (None, POOL.to_owned());
        for (name, pool) in pools.into_iter().flatten() {
            let path = ["BUFFER_POOL", name];
            let size = self
                .optional(&path, pool, "size", u64::from(u32::MAX))?
                .unwrap_or(0);
            if pool.get("type").and_then(Value::as_str) == Some("ingress") {
                // The pool with headroom is the one of lossless traffic.
                if total == 0 || pool.get("xoff").is_some() {
                    shared.clone_from(name);
                }
                total += size;
                xoff = self
                    .optional(&path, pool, "xoff", u64::from(u32::MAX))?
                    .or(xoff);
            }
        }
        let total_bytes = if total == 0 {
            MEMORY_BYTES
        } else {
            (total + xoff.unwrap_or(0)) as u32
        };
        Ok(SonicConfig {
            ports,
            total_bytes,
            headroom_pool_bytes: xoff.map(|xoff| xoff as u32),
            pool: shared,
        })
    }

    fn port(&self, name: &str) -> Read<SonicPort> {
        let mut port = SonicPort::default();
        for key in ["global", name] {
            if let Some((key, entry)) = self.entry("PORT_QOS_MAP", key) {
                self.qos_map(&mut port, &key, entry)?;
            }
        }
        self.queues(&mut port, name)?;
        self.groups(&mut port, name)?;
        if let Some((key, entry)) = self.entry("PFC_WD", name) {
            let path = ["PFC_WD", key.as_str()];
            let time = |field| self.optional(&path, entry, field, 60_000);
            let times = time("detection_time")?.zip(time("restoration_time")?);
            port.watchdog = times
                .map(|(found, over)| (Span::from_us(found * 1000), Span::from_us(over * 1000)));
        }
        Ok(port)
    }

    /// The entry whose key names a port, alone or among others.
    fn entry(&self, table: &str, name: &str) -> Option<(String, &'a Value)> {
        let entries = self.table(table)?;
        let found = entries
            .iter()
            .find(|(key, _)| key.split(',').any(|part| part == name));
        found.map(|(key, entry)| (key.clone(), entry))
    }

    fn qos_map(&self, port: &mut SonicPort, key: &str, entry: &'a Value) -> Read<()> {
        let Some(fields) = entry.as_object() else {
            return Ok(());
        };
        for (field, value) in fields {
            let path = ["PORT_QOS_MAP", key, field.as_str()];
            let text = value.as_str().unwrap_or_default();
            match field.as_str() {
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
                    let queues =
                        self.map(&path, "MAP_PFC_PRIORITY_TO_QUEUE", text, port.pfc_queues)?;
                    port.pfc_queues = queues;
                }
                "pfc_enable" => {
                    port.pfc = 0;
                    for part in text.split(',').filter(|part| !part.is_empty()) {
                        port.pfc |= 1 << self.number(&path, &Value::String(part.to_owned()), 7)?;
                    }
                }
                "pfc_to_pg_map" | "pfcwd_sw_enable" => {}
                "scheduler" => {
                    return Err(self.wrong(
                        &path,
                        "port schedulers are not understood".to_owned(),
                        None,
                    ));
                }
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
    fn ranged(&self, table: &'a str, name: &str) -> Read<Vec<(&'a str, Vec<usize>, &'a Value)>> {
        let mut found = Vec::new();
        for (key, entry) in self.table(table).into_iter().flatten() {
            let Some((ports, range)) = key.split_once('|') else {
                continue;
            };
            if !ports.split(',').any(|port| port == name) {
                continue;
            }
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number =
                |text: &str| self.number(&[table, key], &Value::String(text.to_owned()), 7);
            let (from, to) = (number(from)?, number(to)?);
            found.push((key.as_str(), (from as usize..=to as usize).collect(), entry));
        }
        Ok(found)
    }

    fn queues(&self, port: &mut SonicPort, name: &str) -> Read<()> {
        for (key, queues, entry) in self.ranged("QUEUE", name)? {
            let path = ["QUEUE", key];
            if let Some(scheduler) = entry.get("scheduler").and_then(Value::as_str) {
                let (scheduler, entry) = self.referred(&path, "SCHEDULER", scheduler)?;
                for queue in &queues {
                    self.schedule(
                        &mut port.queues[*queue],
                        *queue,
                        &scheduler,
                        entry,
                        &mut port.weigh,
                    )?;
                }
            }
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
        let in_bytes = entry.get("meter_type").and_then(Value::as_str) != Some("packets");
        if let Some(rate) = rate.filter(|rate| *rate > 0 && in_bytes) {
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
        let on = |field| {
            matches!(
                entry.get(field).and_then(Value::as_str),
                Some("true" | "yes")
            )
        };
        let ecn = entry
            .get("ecn")
            .and_then(Value::as_str)
            .unwrap_or("ecn_none");
        let mark = matches!(
            ecn,
            "ecn_all" | "ecn_green" | "ecn_green_yellow" | "ecn_green_red"
        );
        let drop = on("wred_green_enable");
        let limit = u64::from(u32::MAX);
        let min = self.optional(&path, entry, "green_min_threshold", limit)?;
        let max = self.optional(&path, entry, "green_max_threshold", limit)?;
        let percent = self
            .optional(&path, entry, "green_drop_probability", 100)?
            .unwrap_or(100);
        let Some((min, max)) = min.zip(max).filter(|_| mark || drop) else {
            return Ok(None);
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

    fn groups(&self, port: &mut SonicPort, name: &str) -> Read<()> {
        for (key, groups, entry) in self.ranged("BUFFER_PG", name)? {
            let path = ["BUFFER_PG", key];
            let profile = entry
                .get("profile")
                .and_then(Value::as_str)
                .unwrap_or("NULL");
            let group = if profile == "NULL" {
                Some(Group::computed())
            } else {
                Some(self.buffer(&path, profile)?)
            };
            groups
                .iter()
                .for_each(|number| port.groups[*number] = group);
        }
        for (key, queues, entry) in self.ranged("BUFFER_QUEUE", name)? {
            let path = ["BUFFER_QUEUE", key];
            let Some(profile) = entry
                .get("profile")
                .and_then(Value::as_str)
                .filter(|name| *name != "NULL")
            else {
                continue;
            };
            let limit = self.buffer(&path, profile)?.limit;
            queues
                .iter()
                .for_each(|queue| port.queues[*queue].limit = limit);
        }
        Ok(())
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
        match number {
            Some(power @ 0..=14) => Ok(fabric::config::ALPHA_ONE << power),
            Some(power @ -16..0) => Ok(fabric::config::ALPHA_ONE >> -power),
            _ => Err(self.wrong(
                path,
                format!("dynamic_th {value} is no power from -16 to 14"),
                None,
            )),
        }
    }
}

impl Group {
    const fn computed() -> Self {
        let limit = Limit::Dynamic(fabric::config::ALPHA_ONE);
        Self {
            reserve: 0,
            limit,
            headroom: None,
            xon_offset: 0,
            lossless: true,
        }
    }
}

impl Default for SonicPort {
    fn default() -> Self {
        let identity = [0, 1, 2, 3, 4, 5, 6, 7];
        Self {
            dscp: None,
            pcp: None,
            queue: identity,
            group: [0; CLASSES],
            pfc_queues: identity,
            pfc: 0,
            queues: [QueueConfig::default(); CLASSES],
            groups: [None; CLASSES],
            weigh: Weigh::Bytes,
            watchdog: None,
        }
    }
}

impl SonicConfig {
    /// The packet memory.
    pub(crate) const fn buffer(&self) -> BufferConfig {
        let (total_bytes, headroom_pool_bytes) = (self.total_bytes, self.headroom_pool_bytes);
        BufferConfig {
            total_bytes,
            headroom_pool_bytes,
            cell_bytes: CELL_BYTES,
        }
    }

    /// How a port treats traffic.
    pub(crate) fn profile(&self, name: &str, link: &LinkConfig) -> Profile {
        let fallback = SonicPort::default();
        let port = self.ports.get(name).unwrap_or(&fallback);
        let needed = Headroom {
            rate: link.rate,
            delay: link.delay,
            our_frame_max_bytes: fabric::headroom::FRAME_MAX_BYTES,
            peer_frame_max_bytes: fabric::headroom::FRAME_MAX_BYTES,
            response: RESPONSE,
            cell_bytes: CELL_BYTES,
            frame_min_bytes: 64,
        };
        let groups = port.groups.map(|group| match group {
            None => GroupConfig {
                limit: Limit::Dynamic(fabric::config::ALPHA_ONE),
                ..GroupConfig::default()
            },
            Some(group) => GroupConfig {
                reserve_bytes: group.reserve,
                limit: group.limit,
                headroom_bytes: match group.lossless {
                    true => group.headroom.unwrap_or_else(|| needed.bytes()),
                    false => 0,
                },
                xon_offset_bytes: group.xon_offset,
            },
        });
        let treatment = |class: u8| Treatment {
            class: port.queue[usize::from(class & 7)],
            ..Treatment::default()
        };
        // A queue is what the engine calls a class: classes of one queue must share their priority group.
        let mut group_of_class = [0; CLASSES];
        for class in 0..CLASSES {
            group_of_class[usize::from(port.queue[class] & 7)] = port.group[class];
        }
        let mut priority_of_group = [0, 1, 2, 3, 4, 5, 6, 7];
        let (mut send, mut queues_of_priority) = (0, [0_u8; CLASSES]);
        for (priority, queues) in queues_of_priority.iter_mut().enumerate() {
            *queues = 1 << (port.pfc_queues[priority] & 7);
            let group = usize::from(port.group[priority] & 7);
            if port.pfc >> priority & 1 == 1 {
                send |= 1 << group;
                priority_of_group[group] = priority as u8;
            }
        }
        Profile {
            map: ClassMap {
                trust_dscp: port.dscp.is_some(),
                trust_pcp: port.pcp.is_some(),
                dscp: port.dscp.unwrap_or([0; 64]).map(treatment),
                pcp: port.pcp.unwrap_or([0; 8]).map(treatment),
                default: treatment(0),
            },
            queues: port.queues,
            weigh: port.weigh,
            group_of_class,
            groups,
            pfc: PfcConfig {
                send,
                priority_of_group,
                obey: port.pfc,
                queues_of_priority,
                response: RESPONSE,
                ..PfcConfig::default()
            },
        }
    }
}

/// The line on which the keys of a path stand, one inside the other, from 1. Keys are looked for in their
/// order, at the depth that they must have.
fn line_of(text: &str, path: &[&str]) -> usize {
    let (mut depth, mut line, mut found) = (0_usize, 1_usize, 1_usize);
    let mut next = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => line += 1,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            '"' => {
                let mut escaped = false;
                let mut end = at + 1;
                for (index, inner) in letters.by_ref() {
                    end = index;
                    if inner == '"' && !escaped {
                        break;
                    }
                    escaped = inner == '\\' && !escaped;
                }
                let is_key = text[end..]
                    .trim_start_matches('"')
                    .trim_start()
                    .starts_with(':');
                if is_key && depth == next + 1 && path.get(next) == text.get(at + 1..end).as_ref() {
                    found = line;
                    next += 1;
                    if next == path.len() {
                        return found;
                    }
                }
            }
            _ => {}
        }
    }
    found
}
