//! Class maps of switches with commands in blocks: which marks of packets they match, and the classes that a
//! policy gives these packets.

use std::collections::BTreeMap;

use crate::blocks::Block;
use crate::intent::{Intent, Trust};
use crate::outcome::Area;
use crate::text::{ReadError, dscp_list, list};

/// What a class map matches.
#[derive(Default)]
pub(crate) struct ClassMap {
    dscp: Vec<u8>,
    cos: Vec<u8>,
    /// A match by something else than a header's mark: an access list, for example.
    other: Option<String>,
    /// Whether all matches must hold, and not any of them.
    pub(crate) is_all: bool,
}

impl ClassMap {
    /// Matches values, ranges and names of DSCP: `af31,cs6,40-46`.
    pub(crate) fn match_dscp(
        &mut self,
        file: &str,
        line: usize,
        text: &str,
    ) -> Result<(), ReadError> {
        self.dscp.extend(dscp_list(file, line, text)?);
        Ok(())
    }

    /// Matches values and ranges of the class of service (priority code point).
    pub(crate) fn match_cos(
        &mut self,
        file: &str,
        line: usize,
        text: &str,
    ) -> Result<(), ReadError> {
        self.cos.extend(list(file, line, text, 7)?);
        Ok(())
    }

    /// Matches values and ranges of the precedence, the upper three bits of the DSCP field (RFC 2474, 4.2.2).
    pub(crate) fn match_precedence(
        &mut self,
        file: &str,
        line: usize,
        text: &str,
    ) -> Result<(), ReadError> {
        let of = |value: u8| (value << 3)..=(value << 3 | 7);
        let values = list(file, line, text, 7)?;
        self.dscp.extend(values.into_iter().flat_map(of));
        Ok(())
    }

    /// Matches by something else than a header's mark, so that the class of packets is unknown.
    pub(crate) fn match_other(&mut self, line: &Block<'_>) {
        self.other = line.after("match").map(str::to_owned);
    }
}

/// Class maps by name.
#[derive(Default)]
pub(crate) struct ClassMaps<'a>(BTreeMap<&'a str, ClassMap>);

impl<'a> ClassMaps<'a> {
    /// The class map of a name, which is empty at first.
    pub(crate) fn named(&mut self, name: &'a str) -> &mut ClassMap {
        self.0.entry(name).or_default()
    }

    /// Gives packets the classes of a policy: names of class maps in order, the first that matches first.
    pub(crate) fn classify<'b>(
        &self,
        classes: impl DoubleEndedIterator<Item = (&'b str, u8)>,
        intent: &mut Intent,
    ) {
        let (mut by_dscp, mut by_cos) = (intent.trust.dscp(), intent.trust.pcp());
        for (name, class) in classes.rev() {
            let Some(map) = self.0.get(name) else {
                intent.forget(Area::Classes, format!("there is no class-map \"{name}\""));
                continue;
            };
            if let Some(other) = &map.other {
                let why = format!("class-map {name} matches by \"{other}\": class {class}");
                intent.forget(Area::Classes, why);
            }
            if map.is_all && !map.dscp.is_empty() && !map.cos.is_empty() {
                let why = format!("class-map {name} matches DSCP and CoS together: class {class}");
                intent.forget(Area::Classes, why);
                continue;
            }
            let dscp = map.dscp.iter();
            dscp.for_each(|value| intent.dscp[usize::from(*value)] = class);
            let cos = map.cos.iter();
            cos.for_each(|value| intent.pcp[usize::from(*value)] = class);
            by_dscp |= !map.dscp.is_empty();
            by_cos |= !map.cos.is_empty();
        }
        intent.trust = Trust::of(by_dscp, by_cos);
    }
}
