//! Files that hold a part of a switch's configuration: `qos.json`, `buffers.json`, `config_db.json` of a
//! switch whose QoS is not loaded yet, and the tables of its platform.

use serde_json::{Map, Value};

use super::tables::{Documents, TABLES, is_table};

/// Tables that are in one file of a switch.
const OF_ONE_FILE: [&str; 3] = ["PORT", "PORT_QOS_MAP", "BUFFER_POOL"];

/// The tables that a file of a switch has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// Of the tables that are in one file of a switch, whether this file has each.
    has: [bool; OF_ONE_FILE.len()],
    /// Whether it has any table of the database.
    is_database: bool,
}

impl Part {
    /// The tables of a file of SONiC; none where the text is of another system.
    pub fn of(name: &str, text: &str) -> Option<Self> {
        if is_table(name) {
            return Some(Self::default());
        }
        if !text.trim_start().starts_with('{') {
            return None;
        }
        let documents = Documents::read(&[(name, text)]).ok()?;
        let has = |table: &str| {
            let entries = documents.root.get(table).and_then(Value::as_object);
            entries.is_some_and(|entries: &Map<String, Value>| !entries.is_empty())
        };
        TABLES.iter().any(|table| has(table)).then(|| Self {
            has: OF_ONE_FILE.map(has),
            is_database: true,
        })
    }

    /// Whether the file is of a switch by itself: it has ports, and what they do.
    pub const fn is_whole(self) -> bool {
        let [ports, maps, _] = self.has;
        ports && maps
    }

    /// Whether the file has tables of the database, and is not of the platform alone.
    pub const fn is_database(self) -> bool {
        self.is_database
    }

    /// The tables of both files, unless both have the same ones: then they are of two switches.
    pub fn with(self, other: Self) -> Option<Self> {
        let mut both = self.has.iter().zip(other.has);
        if both.any(|(own, other)| *own && other) {
            return None;
        }
        let mut has = self.has;
        for (own, other) in has.iter_mut().zip(other.has) {
            *own |= other;
        }
        Some(Self {
            has,
            is_database: self.is_database || other.is_database,
        })
    }
}
