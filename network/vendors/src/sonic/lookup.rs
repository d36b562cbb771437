//! `pg_profile_lookup.ini` of a platform: lossless buffers by speed and length of the cable, as buffermgrd
//! uses them.

use std::collections::BTreeMap;

use super::group::{Group, alpha};
use crate::import_error::ImportError;
use crate::text::shortened;
use fabric::config::Limit;

/// Lossless buffers by speed in Mb/s and length of the cable in metres.
pub(super) struct Lookup(BTreeMap<(u32, u32), Group>);

impl Lookup {
    /// Whether a table is one: `port_config.ini` has names of ports in the place of speeds.
    pub(super) fn is_one(text: &str) -> bool {
        let mut entries = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim());
        let first = entries.find(|entry| !entry.is_empty());
        first.is_none_or(|entry| entry.starts_with(|letter: char| letter.is_ascii_digit()))
    }

    /// Reads lines `speed cable size xon xoff threshold [xon_offset]`: Mb/s, metres with an m, bytes, and the
    /// power of two of alpha.
    ///
    /// # Errors
    /// The first line that is none: a missing profile would make its ports lossy.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, ImportError> {
        let mut found = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, group) = profile(line).ok_or_else(|| ImportError {
                file: name.to_owned(),
                line: number,
                what: format!(
                    "\"{}\": speed, cable, size, xon, xoff and threshold were expected",
                    shortened(line)
                ),
                instead: None,
            })?;
            found.insert(key, group);
        }
        Ok(Self(found))
    }

    /// The buffers of a port with this speed in Mb/s and length of its cable in metres.
    pub(super) fn group(&self, speed: u32, metres: u32) -> Option<Group> {
        self.0.get(&(speed, metres)).copied()
    }
}

fn profile(line: &str) -> Option<((u32, u32), Group)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [speed, cable, size, xon, xoff, threshold, rest @ ..] = words.as_slice() else {
        return None;
    };
    let metres = cable.strip_suffix('m')?.parse().ok()?;
    let (size, xoff): (u32, u32) = (size.parse().ok()?, xoff.parse().ok()?);
    let xon: u32 = xon.parse().ok()?;
    let offset = match rest.first() {
        Some(offset) => offset.parse().ok()?,
        None => xon,
    };
    let group = Group {
        reserve: size.saturating_sub(xoff),
        limit: Limit::Dynamic(alpha(threshold.parse().ok()?)?),
        headroom: Some(xoff),
        xon_offset: offset,
        lossless: true,
    };
    Some(((speed.parse().ok()?, metres), group))
}
