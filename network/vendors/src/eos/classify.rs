//! Maps, class maps and policies of EOS, which give packets a traffic class.

use std::collections::BTreeMap;

use crate::blocks::Block;
use crate::class_map::{ClassMap, ClassMaps};
use crate::intent::Intent;
use crate::outcome::Outcomes;
use crate::text::{ReadError, dscp_list, list, number};

/// Class maps, and policies of type quality-of-service, by name.
#[derive(Default)]
pub(super) struct Policies<'a> {
    maps: ClassMaps<'a>,
    /// Classes in order, each with the traffic class that it sets, if it sets one.
    policies: BTreeMap<&'a str, Vec<(&'a str, Option<u8>)>>,
}

impl<'a> Policies<'a> {
    /// Takes a class map or a policy; whether the command is one.
    pub(super) fn take(&mut self, file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> bool {
        match block.line.words().as_slice() {
            ["class-map", "type", "qos", .., name] => {
                let map = self.maps.named(name);
                block.each(outcomes, |line| read_match(map, file, line));
            }
            ["policy-map", "type", "quality-of-service" | "qos", name] => {
                let mut classes = Vec::new();
                for class in &block.below {
                    let Some(own) = class.after("class") else {
                        let what = "this line of a policy is not known";
                        outcomes.not_understood(&class.wrong(file, what));
                        continue;
                    };
                    outcomes.applied(class.line.number);
                    let mut sets = None;
                    class.each(outcomes, |line| match line.line.words().as_slice() {
                        ["set", "traffic-class", value] => {
                            sets = Some(number(file, line.line.number, value, 0..=7)? as u8);
                            Ok(())
                        }
                        ["set", "dscp" | "cos" | "drop-precedence", ..] | ["police", ..] => Ok(()),
                        _ => Err(line.wrong(file, "this line of a class is not known")),
                    });
                    classes.push((own, sets));
                }
                self.policies.insert(name, classes);
            }
            _ => return false,
        }
        outcomes.applied(block.line.number);
        true
    }

    /// Gives packets the classes of a policy for arriving packets; whether there is one of this name.
    /// Packets that no class of the policy gives a traffic class have that of the trusted header.
    pub(super) fn classify(&self, policy: &str, intent: &mut Intent) -> bool {
        let Some(classes) = self.policies.get(policy) else {
            return false;
        };
        let default = classes.iter().find(|(name, _)| *name == "class-default");
        if let Some((_, Some(class))) = default {
            (intent.dscp, intent.pcp) = ([*class; 64], [*class; 8]);
            intent.default_class = *class;
        }
        let set = classes
            .iter()
            .filter_map(|(name, class)| Some((*name, (*class)?)));
        let named = set.filter(|(name, _)| *name != "class-default");
        self.maps.classify(named, intent);
        true
    }
}

/// Reads a line of a class map.
fn read_match(map: &mut ClassMap, file: &str, line: &Block<'_>) -> Result<(), ReadError> {
    let number = line.line.number;
    match line.line.words().as_slice() {
        ["match", "dscp", values @ ..] if !values.is_empty() => {
            map.match_dscp(file, number, &values.join(","))
        }
        ["match", "cos", values @ ..] if !values.is_empty() => {
            map.match_cos(file, number, &values.join(","))
        }
        ["match", "precedence", value] => map.match_precedence(file, number, value),
        [
            "match",
            "ip" | "ipv6" | "mac" | "vlan" | "mpls" | "access-group" | "traffic-class",
            ..,
        ] => {
            map.match_other(line);
            Ok(())
        }
        ["description", ..] => Ok(()),
        _ => Err(line.wrong(file, "this line of a class map is not known")),
    }
}

/// The name of a DSCP map: of `qos map dscp to traffic-class name MAP`, which begins one, and of `qos map
/// dscp to traffic-class MAP`, which attaches one to an interface or a profile.
pub(super) fn map_name<'a>(line: &Block<'a>) -> Option<&'a str> {
    let rest = line.after("qos map dscp to traffic-class")?;
    let name = rest.strip_prefix("name ").unwrap_or(rest).trim();
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

/// Reads a line of a named DSCP map: `dscp 24 26 traffic-class 3`.
pub(super) fn read_named(
    file: &str,
    line: &Block<'_>,
    dscp: &mut [u8; 64],
) -> Result<(), ReadError> {
    let words = line.line.words();
    let at = words.iter().position(|word| *word == "traffic-class");
    let parts = at.map(|at| (&words[..at], &words[at + 1..]));
    let Some((["dscp", values @ ..], [class] | [class, "drop-precedence", _])) = parts else {
        return Err(line.wrong(
            file,
            "this line of a DSCP map of a traffic-class is not known",
        ));
    };
    let values = values.strip_suffix(&["to"]).unwrap_or(values);
    let class = number(file, line.line.number, class, 0..=7)? as u8;
    for value in dscp_list(file, line.line.number, &values.join(","))? {
        dscp[usize::from(value & 63)] = class;
    }
    Ok(())
}

/// Reads `qos map …`: classes by DSCP or class of service, and queues by class.
pub(super) fn read_map(
    file: &str,
    block: &Block<'_>,
    rest: &str,
    dscp: &mut [u8; 64],
    cos: &mut [u8; 8],
) -> Result<(), ReadError> {
    let line = block.line.number;
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        [
            "traffic-class",
            from,
            "to",
            "tx-queue" | "uc-tx-queue" | "mc-tx-queue",
            to,
        ] if from == to => number(file, line, from, 0..=7).map(|_| ()),
        ["traffic-class", _, "to", "dscp" | "cos", ..] => Ok(()),
        // Queues of multicast do not carry RoCE.
        ["traffic-class", _, "to", "mc-tx-queue", ..] => Ok(()),
        [
            kind @ ("dscp" | "cos"),
            values @ ..,
            "to",
            "traffic-class",
            class,
        ] => {
            let class = number(file, line, class, 0..=7)? as u8;
            let is_dscp = *kind == "dscp";
            let values = match is_dscp {
                true => dscp_list(file, line, &values.join(","))?,
                false => list(file, line, &values.join(","), 7)?,
            };
            for value in values {
                let entry = if is_dscp {
                    dscp.get_mut(usize::from(value))
                } else {
                    cos.get_mut(usize::from(value))
                };
                entry.into_iter().for_each(|entry| *entry = class);
            }
            Ok(())
        }
        _ => Err(block.wrong(file, "this map is not known")),
    }
}
