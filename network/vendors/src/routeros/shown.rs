//! MikroTik RouterOS: the output of `print` in the menus below `/interface/ethernet/switch/qos`, as tables,
//! as `print detail`, and with a column for each port (`print stats`, `print pfc`).

use std::collections::BTreeMap;

use crate::sections::Section;
use crate::switch_facts::Shown;
use crate::text::{Line, ReadError, list, mask};

/// The menus, whose words may be shortened.
const MENU: [&str; 4] = ["interface", "ethernet", "switch", "qos"];

/// Facts that result from several menus together.
#[derive(Clone, Default, Debug)]
pub(crate) struct Menus {
    /// Traffic class by name of the QoS profile.
    classes: BTreeMap<String, u8>,
    /// Profile by map and DSCP.
    profiles: BTreeMap<String, Vec<(u8, String)>>,
    /// Classes for which a PFC profile sends pause frames.
    pauses: BTreeMap<String, u8>,
    /// Queues with ECN by transmission manager.
    marks: BTreeMap<String, u8>,
    /// The profiles that ports refer to.
    ports: Vec<PortRow>,
}

/// The references of a port.
#[derive(Clone, Debug)]
struct PortRow {
    name: String,
    map: Option<String>,
    pfc: Option<String>,
    manager: Option<String>,
    seen: crate::facts::Evidence,
}

/// The words of a command after the menu `qos`; `None` where it is of another menu.
pub(crate) fn words(command: &str) -> Option<Vec<&str>> {
    let mut words = command
        .split(['/', '>', ' '])
        .filter(|word| !word.is_empty());
    for name in MENU {
        let word = words.next()?;
        if word.len() < 2 || !name.starts_with(word) {
            return None;
        }
    }
    Some(
        words
            .take_while(|word| *word != "where")
            .filter(|word| !word.contains('='))
            .collect(),
    )
}

/// Whether a command prints the configuration.
pub(crate) fn is_export(command: &str) -> bool {
    let mut words = command
        .split(['/', '>', ' '])
        .filter(|word| !word.is_empty());
    command.starts_with(['/', '>']) && words.any(|word| word == "export")
}

/// Whether a text is a script: it has the header of an export, or a line within the menu of switches.
pub(crate) fn is_script(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| {
        let is_header = line.starts_with('#') && line.contains(" by RouterOS ");
        is_header || (line.contains('/') && is_of_switch(line))
    })
}

/// Whether a line has a path that begins with `/interface ethernet switch`, which may be shortened.
fn is_of_switch(line: &str) -> bool {
    let of_path = |(at, _): (usize, &str)| {
        let mut words = line[at..].split(['/', ' ']).filter(|word| !word.is_empty());
        MENU[..3].iter().all(|name| {
            let word = words.next();
            word.is_some_and(|word| word.len() >= 2 && name.starts_with(word))
        })
    };
    !line.starts_with('#') && line.match_indices("/in").any(of_path)
}

/// Takes the facts of one menu; returns whether the menu is known.
pub(crate) fn take(
    section: &Section<'_>,
    words: &[&str],
    menus: &mut Menus,
    shown: &mut Shown,
) -> Result<bool, ReadError> {
    match words {
        ["port", "print", rest @ ..] if rest.contains(&"stats") => statistics(section, shown)?,
        ["port", "print", rest @ ..] if rest.contains(&"pfc") => pauses(section, shown)?,
        ["port", "print", rest @ ..] if rest.contains(&"usage") || rest.contains(&"rates") => {}
        ["port", "print", ..] => ports(section, menus, shown)?,
        ["profile", "print", ..] => {
            for row in rows(section) {
                if let (Some(name), Some(class)) = (row.get("name"), row.get("traffic-class")) {
                    menus
                        .classes
                        .insert(name.clone(), row.small(section, class, 7)?);
                }
            }
        }
        ["map", "ip", "print", ..] => {
            for row in rows(section) {
                let (Some(dscp), Some(profile)) = (row.get("dscp"), row.get("profile")) else {
                    continue;
                };
                let map = row
                    .get("map")
                    .cloned()
                    .unwrap_or_else(|| "default".to_owned());
                let values = list(section.file, row.line.number, dscp, 63)?;
                let known = menus.profiles.entry(map).or_default();
                known.extend(values.into_iter().map(|value| (value, profile.clone())));
            }
        }
        ["priority-flow-control", "print", ..] => {
            for row in rows(section) {
                let Some(name) = row.get("name") else {
                    continue;
                };
                let classes = row.get("traffic-class").filter(|text| !text.is_empty());
                let values = classes
                    .map(|text| list(section.file, row.line.number, text, 7))
                    .transpose()?;
                let sends = row.yes(section, "tx")?.unwrap_or(false);
                let pauses = if sends {
                    mask(&values.unwrap_or_default())
                } else {
                    0
                };
                menus.pauses.insert(name.clone(), pauses);
            }
        }
        ["tx-manager", "queue", "print", ..] => queues(section, menus)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn ports(section: &Section<'_>, menus: &mut Menus, shown: &mut Shown) -> Result<(), ReadError> {
    for row in rows(section) {
        let Some(name) = row.get("name").filter(|name| !name.is_empty()) else {
            continue;
        };
        let trust = row.get("trust-l3").map(String::as_str).unwrap_or_default();
        let trusts = match trust {
            // The port of the processor has no settings.
            "" => continue,
            "ignore" => false,
            "trust" | "keep" => true,
            _ => {
                return Err(section.wrong(row.line, "trust-l3: ignore, trust or keep was expected"));
            }
        };
        let of = |key: &str| row.get(key).filter(|value| !value.is_empty()).cloned();
        let own = shown.port(name);
        own.trusts_dscp = Some(section.fact(row.line, trusts));
        let pfc = of("pfc");
        if let Some(profile) = &pfc {
            own.pfc_enabled = Some(section.fact(row.line, profile != "disabled"));
        }
        let seen = section.fact(row.line, ()).seen;
        let port = PortRow {
            name: name.clone(),
            map: of("map"),
            pfc,
            manager: of("tx-manager"),
            seen,
        };
        menus.ports.push(port);
    }
    Ok(())
}

/// `tx-manager queue print`. The state of the chip (`ecn-actual`) is used where it is shown.
fn queues(section: &Section<'_>, menus: &mut Menus) -> Result<(), ReadError> {
    for row in rows(section) {
        let (Some(manager), Some(class)) = (row.get("tx-manager"), row.get("traffic-class")) else {
            continue;
        };
        let actual = row.yes(section, "ecn-actual")?;
        let Some(marks) = (if actual.is_some() {
            actual
        } else {
            row.yes(section, "ecn")?
        }) else {
            continue;
        };
        let class = row.small(section, class, 7)?;
        *menus.marks.entry(manager.clone()).or_default() |= u8::from(marks) << class;
    }
    Ok(())
}

impl Menus {
    /// Adds to each port the facts that the menus give together.
    pub(crate) fn finish(self, shown: &mut Shown) {
        for port in &self.ports {
            let own = shown.port(&port.name);
            let fact = |value| crate::facts::Fact {
                value,
                seen: port.seen.clone(),
            };
            if let Some(mask) = port.pfc.as_ref().and_then(|name| self.pauses.get(name))
                && own.pfc.is_none()
            {
                own.pfc = Some(fact(*mask));
            }
            if let Some(mask) = port.manager.as_ref().and_then(|name| self.marks.get(name)) {
                own.marks = Some(fact(*mask));
            }
            if let Some(map) = self.map(port.map.as_deref().unwrap_or("default")) {
                let seen = port.seen.clone();
                own.dscp = Some(crate::facts::Fact { value: map, seen });
            }
        }
    }

    /// Class by DSCP of a map; what it does not list has the class of the profile `default`.
    fn map(&self, name: &str) -> Option<[Option<u8>; 64]> {
        let entries = self.profiles.get(name)?;
        let mut map = [self.classes.get("default").copied(); 64];
        for (dscp, profile) in entries {
            map[usize::from(*dscp)] = self.classes.get(profile).copied();
        }
        Some(map)
    }
}

/// A row, by the names of its columns in small letters.
struct Row<'a, 'b> {
    line: &'b Line<'a>,
    cells: BTreeMap<String, String>,
}

impl Row<'_, '_> {
    fn get(&self, key: &str) -> Option<&String> {
        self.cells.get(key)
    }

    /// A number that a cell must have.
    fn small(&self, section: &Section<'_>, text: &str, max: u8) -> Result<u8, ReadError> {
        let number: u8 = section.number(self.line, text)?;
        if number > max {
            return Err(section.wrong(self.line, &format!("a number from 0 to {max} was expected")));
        }
        Ok(number)
    }

    /// A cell of yes or no; `None` where there is none.
    fn yes(&self, section: &Section<'_>, key: &str) -> Result<Option<bool>, ReadError> {
        match self.get(key).map(String::as_str) {
            None | Some("") => Ok(None),
            Some("yes") => Ok(Some(true)),
            Some("no") => Ok(Some(false)),
            Some(_) => Err(section.wrong(self.line, &format!("{key}: yes or no was expected"))),
        }
    }
}

/// The rows of `print`, as a table below a line of heads that begins with `#`, or of `print detail`, with
/// `key=value` in one or several lines.
fn rows<'a, 'b>(section: &'b Section<'a>) -> Vec<Row<'a, 'b>> {
    let is_heads = |line: &&Line<'_>| line.text.starts_with("# ");
    match section.lines.iter().find(is_heads) {
        Some(heads) => table(section, heads),
        None => details(section),
    }
}

fn table<'a, 'b>(section: &'b Section<'a>, heads: &Line<'_>) -> Vec<Row<'a, 'b>> {
    let columns = heads_of(heads);
    let is_row = |line: &&Line<'_>| {
        line.text
            .starts_with(|letter: char| letter.is_ascii_digit())
    };
    let mut found = Vec::new();
    for line in section
        .lines
        .iter()
        .filter(|line| line.number > heads.number)
        .filter(is_row)
    {
        let mut cells = BTreeMap::new();
        for (index, (from, name)) in columns.iter().enumerate() {
            let to = columns.get(index + 1).map_or(usize::MAX, |(next, _)| *next);
            let own = (line.indent..)
                .zip(line.text.chars())
                .filter(|(at, _)| (*from..to).contains(at));
            let cell: String = own.map(|(_, letter)| letter).collect();
            cells.insert(name.clone(), cell.trim().trim_matches('"').to_owned());
        }
        found.push(Row { line, cells });
    }
    found
}

/// The columns after the number, with the place where each begins.
fn heads_of(heads: &Line<'_>) -> Vec<(usize, String)> {
    let mut columns: Vec<(usize, String)> = Vec::new();
    let mut before = ' ';
    for (at, letter) in (heads.indent..).zip(heads.text.chars()) {
        match (letter.is_whitespace(), before.is_whitespace()) {
            (false, true) => columns.push((at, letter.to_ascii_lowercase().to_string())),
            (false, false) => {
                if let Some((_, name)) = columns.last_mut() {
                    name.push(letter.to_ascii_lowercase());
                }
            }
            (true, _) => {}
        }
        before = letter;
    }
    columns
        .into_iter()
        .filter(|(_, name)| name != "#")
        .collect()
}

fn details<'a, 'b>(section: &'b Section<'a>) -> Vec<Row<'a, 'b>> {
    let mut found: Vec<Row<'a, 'b>> = Vec::new();
    for line in &section.lines {
        let first = line.words().first().copied().unwrap_or_default();
        if first.parse::<u32>().is_ok() {
            found.push(Row {
                line,
                cells: BTreeMap::new(),
            });
        }
        let Some(row) = found.last_mut() else {
            continue;
        };
        for word in line.words() {
            if let Some((key, value)) = word.split_once('=') {
                row.cells
                    .insert(key.to_owned(), value.trim_matches('"').to_owned());
            }
        }
    }
    found
}

/// Lines `key: value value …` below a line with the names of ports. Values end where the names do, and have
/// blanks between thousands.
fn columns<'b>(
    section: &'b Section<'_>,
    mut take: impl FnMut(&'b Line<'_>, &str, &str, &str) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    // Names of ports, and the place after the last letter of each.
    let mut ports: Vec<(String, usize)> = Vec::new();
    for line in &section.lines {
        let Some((key, rest)) = line.text.split_once(':') else {
            continue;
        };
        let begin = line.indent + key.chars().count() + 1;
        if key == "name" {
            ports = ends_of(rest, begin);
            continue;
        }
        let mut from = begin;
        for (index, (port, end)) in ports.iter().enumerate() {
            let to = if index + 1 == ports.len() {
                usize::MAX
            } else {
                *end
            };
            let own = (begin..)
                .zip(rest.chars())
                .filter(|(at, _)| (from..to).contains(at));
            let value: String = own.map(|(_, letter)| letter).collect();
            from = to;
            if !value.trim().is_empty() {
                take(line, port, key, value.trim())?;
            }
        }
    }
    Ok(())
}

fn ends_of(rest: &str, begin: usize) -> Vec<(String, usize)> {
    let mut ports: Vec<(String, usize)> = Vec::new();
    let mut before = ' ';
    for (at, letter) in (begin..).zip(rest.chars()) {
        if !letter.is_whitespace() {
            match ports.last_mut().filter(|_| !before.is_whitespace()) {
                Some((name, end)) => {
                    name.push(letter);
                    *end = at + 1;
                }
                None => ports.push((letter.to_string(), at + 1)),
            }
        }
        before = letter;
    }
    ports
}

/// The number of a key such as `drop-queue3-packet`.
fn numbered(key: &str, begin: &str, end: &str) -> Option<u8> {
    let number = key.strip_prefix(begin)?.strip_suffix(end)?.parse().ok()?;
    (number < 8).then_some(number)
}

fn statistics(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    columns(section, |line, port, key, value| {
        if let Some(queue) = numbered(key, "drop-queue", "-packet") {
            let packets: u64 = section.number(line, &value.replace(' ', ""))?;
            shown
                .port(port)
                .drops
                .insert(queue, section.fact(line, packets));
        }
        Ok(())
    })
}

/// `print pfc`: the profile of each port, and lines for those classes only that have PFC.
fn pauses(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    columns(section, |line, port, key, value| {
        let own = shown.port(port);
        if key == "pfc" {
            own.pfc_enabled = Some(section.fact(line, value != "disabled"));
            if value == "disabled" {
                own.pfc = Some(section.fact(line, 0));
            }
        } else if let Some(class) =
            numbered(key, "pfc", "-use").or_else(|| numbered(key, "pfc", "-pause-threshold"))
        {
            let _: u64 = section.number(line, &value.replace(' ', ""))?;
            let before = own.pfc.as_ref().map_or(0, |pfc| pfc.value);
            own.pfc = Some(section.fact(line, before | 1 << class));
        }
        Ok(())
    })
}
