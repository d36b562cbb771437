//! Interfaces of Junos: what `class-of-service` gives each of them, and their own settings.

use std::collections::BTreeMap;

use super::settings::Setting;
use crate::text::{ReadError, number};

/// Bytes of the Ethernet header, which the MTU of an interface counts.
pub(super) const HEADER: u32 = 14;

/// The MTU of an interface without configuration, with its header.
const MTU_DEFAULT: u32 = 1514;

/// Objects that an interface refers to, each with its line.
#[derive(Clone, Default, Debug)]
pub(super) struct References<'a> {
    pub(super) profile: Option<(usize, &'a str)>,
    pub(super) map: Option<(usize, &'a str)>,
    pub(super) dscp: Option<(usize, &'a str)>,
    pub(super) pcp: Option<(usize, &'a str)>,
    pub(super) rewrite: Option<(usize, &'a str)>,
}

/// Settings of the interface itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) mtu: u32,
    pub(super) global_pause: bool,
    pub(super) dcbx: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            mtu: MTU_DEFAULT - HEADER,
            global_pause: false,
            dcbx: false,
        }
    }
}

/// All interfaces of a configuration by name, those of `class-of-service` with patterns.
#[derive(Default, Debug)]
pub(super) struct Interfaces<'a> {
    patterns: BTreeMap<&'a str, References<'a>>,
    links: BTreeMap<&'a str, Link>,
    dcbx_of_all: bool,
}

impl<'a> Interfaces<'a> {
    /// Takes a setting below `class-of-service interfaces`.
    pub(super) fn take(&mut self, file: &str, setting: &Setting<'a>) -> Result<(), ReadError> {
        let rest = setting.words.get(2..).unwrap_or_default();
        let [name, rest @ ..] = rest else {
            return Err(setting.wrong(file, "the name of an interface was expected"));
        };
        if name.contains(['<', '[', '?']) {
            return Err(setting.wrong(file, "of patterns only * is known"));
        }
        // A statement is on the port itself, or on its logical unit.
        let (rest, of_unit) = match rest {
            ["unit", _, rest @ ..] => (rest, true),
            rest => (rest, false),
        };
        let own = self.patterns.entry(name).or_default();
        let line = setting.line;
        match rest {
            ["congestion-notification-profile", name] if !of_unit => {
                own.profile = Some((line, name))
            }
            ["scheduler-map", name] if !of_unit => own.map = Some((line, name)),
            ["classifiers", "dscp", name] => own.dscp = Some((line, name)),
            ["classifiers", "ieee-802.1", name] => own.pcp = Some((line, name)),
            ["rewrite-rules", "dscp", name] => own.rewrite = Some((line, name)),
            ["rewrite-rules", "ieee-802.1" | "exp", ..] => {}
            _ => return Err(setting.wrong(file, "this statement of an interface is not known")),
        }
        Ok(())
    }

    /// Takes a setting below `interfaces`; whether it matters.
    pub(super) fn link(&mut self, file: &str, setting: &Setting<'a>) -> Result<bool, ReadError> {
        let [_, name, rest @ ..] = setting.words.as_slice() else {
            return Ok(false);
        };
        let is_range = *name == "interface-range";
        match rest {
            ["mtu", mtu] if !is_range => {
                let mtu = number(file, setting.line, mtu, 256..=16_000)?;
                self.links.entry(name).or_default().mtu = mtu - HEADER;
            }
            [_, "mtu", ..] | [_, "ether-options", "flow-control"] if is_range => {
                return Err(setting.wrong(file, "the mtu of a range of interfaces is not read"));
            }
            ["ether-options" | "gigether-options", "flow-control"] => {
                self.links.entry(name).or_default().global_pause = true;
            }
            ["ether-options" | "gigether-options", "no-flow-control"] => {
                self.links.entry(name).or_default().global_pause = false;
            }
            _ if !is_range && !rest.is_empty() => {
                self.links.entry(name).or_default();
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an interface of `protocols dcbx`: one, or all of them.
    pub(super) fn dcbx(&mut self, name: &'a str) {
        match name {
            "all" => self.dcbx_of_all = true,
            name => self.links.entry(name).or_default().dcbx = true,
        }
    }

    /// The ports that `class-of-service` gives something: those that it names, and those that match its
    /// patterns; a pattern itself where there are no others.
    pub(super) fn ports(&self) -> Vec<(String, References<'a>, Link)> {
        let mut names: Vec<&str> = self.patterns.keys().copied().collect();
        names.retain(|name| !name.contains('*'));
        let is_wanted = |name: &&str| self.patterns.keys().any(|pattern| matches(pattern, name));
        names.extend(self.links.keys().copied().filter(is_wanted));
        if names.is_empty() {
            names.extend(self.patterns.keys().copied());
        }
        names.sort_unstable();
        names.dedup();
        let one = |name: &str| {
            let mut link = self.links.get(name).copied().unwrap_or_default();
            link.dcbx |= self.dcbx_of_all;
            (name.to_owned(), self.references(name), link)
        };
        names.into_iter().map(one).collect()
    }

    /// What patterns give a port, and then what its own name gives it.
    fn references(&self, name: &str) -> References<'a> {
        let mut all = References::default();
        let of_pattern = |(pattern, _): &(&&str, &References<'_>)| {
            pattern.contains('*') && matches(pattern, name)
        };
        let own = self.patterns.get(name);
        let patterns = self.patterns.iter().filter(of_pattern).map(|(_, own)| own);
        for one in patterns.chain(own) {
            all = References {
                profile: one.profile.or(all.profile),
                map: one.map.or(all.map),
                dscp: one.dscp.or(all.dscp),
                pcp: one.pcp.or(all.pcp),
                rewrite: one.rewrite.or(all.rewrite),
            };
        }
        all
    }
}

/// Whether a name matches a pattern, in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    // A pattern that ends in a word needs it at the end.
    rest.is_empty() || last.is_some_and(|part| part.is_empty() || name.ends_with(part))
}
