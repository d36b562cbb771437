//! Maps, class maps and policies of EOS, which give packets a traffic class.

use std::collections::BTreeMap;

use crate::blocks::Block;
use crate::intent::{Intent, Trust};
use crate::outcome::{Area, Outcomes};
use crate::text::{ReadError, dscp_named, list, number};

/// A class map of type qos.
#[derive(Default)]
struct ClassMap {
    dscp: Vec<u8>,
    cos: Vec<u8>,
    /// A match by something else than a header's mark: an access list, for example.
    other: Option<String>,
}

/// Class maps, and policies of type quality-of-service, by name.
#[derive(Default)]
pub(super) struct Policies<'a> {
    maps: BTreeMap<&'a str, ClassMap>,
    /// Classes in order, each with the traffic class that it sets, if it sets one.
    policies: BTreeMap<&'a str, Vec<(&'a str, Option<u8>)>>,
}

impl<'a> Policies<'a> {
    /// Takes a class map or a policy; whether the command is one.
    pub(super) fn take(&mut self, file: &str, block: &Block<'a>, outcomes: &mut Outcomes) -> bool {
        match block.line.words().as_slice() {
            ["class-map", "type", "qos", .., name] => {
                let map = self.maps.entry(name).or_default();
                block.each(outcomes, |line| map.take(file, line));
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
        let (mut by_dscp, mut by_cos) = (intent.trust.dscp(), intent.trust.pcp());
        for (name, class) in classes.iter().rev() {
            let Some(class) = class.filter(|_| *name != "class-default") else {
                continue;
            };
            let Some(map) = self.maps.get(name) else {
                intent.forget(Area::Classes, format!("there is no class-map \"{name}\""));
                continue;
            };
            if let Some(other) = &map.other {
                let why = format!("class-map {name} matches by \"{other}\": class {class}");
                intent.forget(Area::Classes, why);
            }
            let dscp = map.dscp.iter();
            dscp.for_each(|value| intent.dscp[usize::from(*value)] = class);
            let cos = map.cos.iter();
            cos.for_each(|value| intent.pcp[usize::from(*value)] = class);
            by_dscp |= !map.dscp.is_empty();
            by_cos |= !map.cos.is_empty();
        }
        intent.trust = Trust::of(by_dscp, by_cos);
        true
    }
}

impl ClassMap {
    fn take(&mut self, file: &str, line: &Block<'_>) -> Result<(), ReadError> {
        let number = line.line.number;
        match line.line.words().as_slice() {
            ["match", "dscp", values @ ..] if !values.is_empty() => {
                for part in values.iter().flat_map(|word| word.split(',')) {
                    match dscp_named(part) {
                        Some(value) => self.dscp.push(value),
                        None => self.dscp.extend(list(file, number, part, 63)?),
                    }
                }
            }
            ["match", "cos", values @ ..] if !values.is_empty() => {
                self.cos.extend(list(file, number, &values.join(","), 7)?);
            }
            // A precedence is the upper three bits of the DSCP field.
            ["match", "precedence", value] => {
                let of = |value: u8| (value << 3)..=(value << 3 | 7);
                let values = list(file, number, value, 7)?;
                self.dscp.extend(values.into_iter().flat_map(of));
            }
            [
                "match",
                "ip" | "ipv6" | "mac" | "vlan" | "mpls" | "access-group" | "traffic-class",
                ..,
            ] => {
                self.other = line.after("match").map(str::to_owned);
            }
            ["description", ..] => {}
            _ => return Err(line.wrong(file, "this line of a class map is not known")),
        }
        Ok(())
    }
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
            for value in list(file, line, &values.join(","), if is_dscp { 63 } else { 7 })? {
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
