//! `[[host]]` and `[[switch]]`: which entry describes which host or switch, and new ones by name.

use super::NetworkBuilder;
use crate::error::Mistake;
use crate::names::{NAME_BYTES_MAX, expand, is_pattern};
use crate::schema::{HostTable, SwitchTable};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::topology::{HOSTS_MAX, SWITCHES_MAX};
use vendors::text::nearest;

impl NetworkBuilder<'_> {
    /// Adds the hosts and switches of the file, and notes which entry describes which.
    pub(super) fn add_nodes(&mut self) {
        for (index, HostTable { name, count, .. }) in self.file.host.iter().enumerate() {
            let field = format!("host[{index}].name");
            for name in self.valid_names(&field, name, *count, true) {
                let there = self.hosts.matching(&name);
                there
                    .iter()
                    .for_each(|number| self.host_entry[*number as usize] = Some(index));
                if there.is_empty() && is_pattern(&name) {
                    self.unknown(&field, "host", &name, true);
                } else if there.is_empty() {
                    self.topology.add_host();
                    self.hosts.add(&name);
                    self.host_entry.push(Some(index));
                }
            }
        }
        for (index, SwitchTable { name, count, .. }) in self.file.switch.iter().enumerate() {
            let field = format!("switch[{index}].name");
            for name in self.valid_names(&field, name, *count, false) {
                let there = self.switches.matching(&name);
                there
                    .iter()
                    .for_each(|number| self.switch_entry[*number as usize] = Some(index));
                if there.is_empty() && is_pattern(&name) {
                    self.unknown(&field, "switch", &name, false);
                } else if there.is_empty() {
                    self.topology.add_switch();
                    self.switches.add(&name);
                    self.switch_entry.push(Some(index));
                    self.port_names.push(Vec::new());
                }
            }
        }
    }

    /// The names that an entry stands for; none, and a mistake noted, where these are not valid or too many.
    fn valid_names(
        &mut self,
        field: &str,
        name: &str,
        count: Option<u32>,
        host: bool,
    ) -> Vec<String> {
        let (limit, own, other) = if host {
            (HOSTS_MAX, &self.hosts, &self.switches)
        } else {
            (SWITCHES_MAX, &self.switches, &self.hosts)
        };
        let total = own.len() as u64 + u64::from(count.unwrap_or(0));
        let taken = !is_pattern(name) && other.number(name).is_some();
        let odd = |letter: char| letter == ':' || letter.is_whitespace() || letter.is_control();
        let what = if name.len() > NAME_BYTES_MAX {
            format!(
                "the name has {} bytes, and {NAME_BYTES_MAX} are the most",
                name.len()
            )
        } else if name.is_empty() || name.contains(odd) {
            format!(
                "\"{}\": a name has no colon and no space",
                name.escape_debug()
            )
        } else if taken {
            format!("\"{name}\": a host and a switch have this name")
        } else if total > u64::from(limit) {
            let what = format!("{total} are too many: {limit} at most");
            self.wrong(Mistake::Limit, field, what, "");
            return Vec::new();
        } else {
            return expand(name, count);
        };
        self.wrong(Mistake::Value, field, what, "choose another");
        Vec::new()
    }

    pub(super) fn unknown(&mut self, field: &str, kind: &str, name: &str, host: bool) {
        let names = if host { &self.hosts } else { &self.switches };
        let meant = nearest(name, names.iter()).map(|meant| format!("did you mean \"{meant}\"?"));
        let some: Vec<&str> = names.iter().take(8).collect();
        let instead = meant.unwrap_or_else(|| match some.as_slice() {
            [] => format!("there is no {kind} at all: add [[{kind}]], or a topology"),
            some => format!(
                "there are {}{}",
                some.join(", "),
                if some.len() == 8 { ", …" } else { "" }
            ),
        });
        self.wrong(
            Mistake::UnknownName,
            field,
            format!("no {kind} is called \"{name}\""),
            &instead,
        );
    }
}
