//! From texts to one tree: merges included files, applies settings of the command line, and records the place
//! of every value for messages.

use super::error::{FileError, Mistake, Problem};
use super::source::{Sources, TextSpan};
use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// Files that one file includes at most, all together.
pub const INCLUDES_MAX: usize = 64;

/// Levels of a path that sets a value at most: the fields of the file have six.
pub const PATH_LEVELS_MAX: usize = 16;

/// Reads a file that another one names: maps its name, relative to the fabric file, to its text or to an
/// error message. Names in included files are made relative to the fabric file before.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// A fabric file with everything it includes, and what the command line sets.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub(crate) sources: Sources,
    /// Numbers of the files' texts, in the order in which they are merged.
    files: Vec<usize>,
    sets: Vec<Setting>,
}

/// A text `path = value`: its number, the length of its path, and where it comes from.
#[derive(Clone, Debug)]
struct Setting {
    text: usize,
    path_bytes: usize,
    origin: Origin,
}

/// Where a field's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The fabric file, or a file that it includes.
    File,
    /// A value of `[sweep]`.
    Sweep,
    /// A setting, by its number: each has a path of its own.
    Set(usize),
}

/// What to do with a text that is not TOML but the configuration of a switch: those are read by `doctor`, and
/// by fabric files that name them.
fn other_language(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    match first.as_bytes().first()? {
        b'/' | b':' => Some(
            "this is a RouterOS script: rockery doctor --switch judges it, and the [qos] of a fabric \
             file reads it by routeros = [\"FILE\"]",
        ),
        b'{' => Some(
            "this is JSON: rockery doctor --switch judges a config_db.json of SONiC, and the [qos] of a \
             fabric file reads it by sonic = [\"FILE\"]",
        ),
        _ => None,
    }
}

impl Document {
    /// Reads `text`, called `name` in messages, and what it includes.
    ///
    /// # Errors
    /// Invalid syntax, and files that cannot be read.
    pub fn read(name: &str, text: &str, files: &mut ReadFile<'_>) -> Result<Self, FileError> {
        let mut document = Self::default();
        let mut included = Included {
            open: alloc::vec![plain_path(name)],
            merged: Vec::new(),
        };
        document.read_all(name, text, files, &mut included)?;
        Ok(document)
    }

    /// Reads a file, and before it those that it includes.
    fn read_all(
        &mut self,
        name: &str,
        text: &str,
        files: &mut ReadFile<'_>,
        read: &mut Included,
    ) -> Result<(), FileError> {
        let number = self.sources.add(name, text);
        let start = self.sources.start(number);
        let included = match DeTable::parse(text) {
            Ok(table) => includes(table.get_ref(), start),
            Err(error) => return Err(self.syntax_error(&error, start, text)),
        };
        for (index, (other, place)) in included.into_iter().enumerate() {
            let other = beside(name, &other, read.open.len() == 1);
            let path = plain_path(&other);
            if read.merged.contains(&path) {
                continue;
            }
            let text = read.check_nesting(&path).and_then(|()| {
                files(&other).map_err(|why| RefusedInclude {
                    mistake: Mistake::Reference,
                    what: format!("{other}: {why}"),
                    instead: "names are relative to the file that has them",
                })
            });
            let text = text.map_err(|refused| {
                let field = format!("include[{index}]");
                let RefusedInclude {
                    mistake,
                    what,
                    instead,
                } = refused;
                FileError(alloc::vec![self.problem(
                    mistake,
                    &field,
                    Some(place),
                    what,
                    instead
                )])
            })?;
            read.open.push(path);
            self.read_all(&other, &text, files, read)?;
            read.merged.extend(read.open.pop());
        }
        self.files.push(number);
        Ok(())
    }

    /// A text that is not TOML, as an error at its place; `start` is where the text begins among the sources.
    fn syntax_error(&self, error: &toml::de::Error, start: usize, text: &str) -> FileError {
        // Errors of nesting have no place: the file's beginning at least names the file.
        let place = error.span().unwrap_or(0..0);
        let place = Some(place.start + start..place.end + start);
        let what = error.message().to_owned();
        let instead = other_language(text).unwrap_or_default();
        FileError(alloc::vec![self.problem(
            Mistake::Syntax,
            "",
            place,
            what,
            instead
        )])
    }

    /// Sets a value by its path, as `--set` and sweeps do: `nic.default.mtu=1024`. A `*` stands for every
    /// entry. The value is TOML, or text without quotes.
    ///
    /// # Errors
    /// A path into something that is not a table, or to an entry that does not exist.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), FileError> {
        self.put_value(path, value, Origin::Set(self.sets.len()))
    }

    /// Sets a value of `[sweep]`. A field that a setting names has to have an effect in this run; one that a
    /// sweep varies, in one of its runs.
    ///
    /// # Errors
    /// As [`Document::set`].
    pub fn vary(&mut self, path: &str, value: &str) -> Result<(), FileError> {
        self.put_value(path, value, Origin::Sweep)
    }

    fn put_value(&mut self, path: &str, value: &str, origin: Origin) -> Result<(), FileError> {
        let path = path.trim();
        let number = self.sources.add("--set", &format!("{path} = {value}"));
        self.sets.push(Setting {
            text: number,
            path_bytes: path.len(),
            origin,
        });
        let start = self.sources.start(number);
        let levels = path.split('.').count();
        let grown = if levels > PATH_LEVELS_MAX {
            self.sets.pop();
            Err(format!(
                "the path has {levels} levels, and {PATH_LEVELS_MAX} are the most"
            ))
        } else {
            self.grow().map(|_| ())
        };
        grown.map_err(|what| {
            let instead =
                "a path is made of names and numbers: host.0.nic, nic.default.mtu, workload.*.depth";
            let place = Some(start..start + path.len());
            let path = if levels > PATH_LEVELS_MAX { "" } else { path };
            FileError(alloc::vec![self.problem(Mistake::Reference, path, place, what, instead)])
        })
    }

    /// The tree that the texts make.
    pub(super) fn grow(&self) -> Result<DeTable<'_>, String> {
        let mut tree = DeTable::new();
        for number in &self.files {
            let start = self.sources.start(*number);
            // Each was parsed when it was read.
            if let Ok(table) = DeTable::parse(self.sources.text(*number)) {
                let mut table = shift_table(table.into_inner(), start);
                let is_included = self.files.last() != Some(number);
                if is_included {
                    name_from(&mut table, self.sources.name(*number));
                }
                merge(&mut tree, table);
            }
        }
        for setting in &self.sets {
            let start = self.sources.start(setting.text);
            let text = self.sources.text(setting.text);
            let (path, value) = text.split_at(setting.path_bytes);
            let value = &value[3..];
            let at = start + path.len() + 3;
            let plain =
                || Spanned::new(0..value.len(), DeValue::String(Cow::Borrowed(value.trim())));
            let value = shift_value(DeValue::parse(value).unwrap_or_else(|_| plain()), at);
            let keys: Vec<&str> = path.split('.').map(str::trim).collect();
            put_in_table(&mut tree, &keys, &value, &(start..start + path.len()))?;
        }
        Ok(tree)
    }

    /// Every field that has a value, with the place where that stands.
    pub(crate) fn written(&self) -> Vec<Written> {
        let tree = self.grow().unwrap_or_default();
        let mut all = Vec::new();
        leaves(&tree, &mut Vec::new(), &mut |keys, place| {
            let origin = self.origin(place.start);
            all.push(Written {
                keys: keys.to_vec(),
                place,
                origin,
            });
        });
        all
    }

    fn origin(&self, position: usize) -> Origin {
        let sets = self.sets.iter().rev();
        sets.filter(|setting| self.sources.start(setting.text) <= position)
            .map(|setting| setting.origin)
            .next()
            .unwrap_or(Origin::File)
    }

    /// A mistake in a field, by its path (`workload[0].from`), to be shown where it stands.
    pub fn mistake(&self, mistake: Mistake, field: &str, what: String, instead: &str) -> FileError {
        FileError(alloc::vec![self.problem(
            mistake,
            field,
            self.place_of(field),
            what,
            instead
        )])
    }

    /// Where a field's value stands, by its path: `link[3].between[1]`; or the nearest table around it.
    pub(crate) fn place_of(&self, path: &str) -> Option<TextSpan> {
        let tree = self.grow().unwrap_or_default();
        let mut place = None;
        let mut at: Option<&DeValue<'_>> = None;
        for key in path.split(['.', '[']).map(|key| key.trim_end_matches(']')) {
            let next = match at {
                None => tree.get(key),
                Some(value) => match key.parse::<usize>() {
                    Ok(index) if value.is_array() => value.get(index),
                    _ => value.get(key),
                },
            };
            let Some(next) = next else { break };
            place = Some(next.span());
            at = Some(next.get_ref());
        }
        place
    }

    pub(crate) fn problem(
        &self,
        mistake: Mistake,
        field: &str,
        place: Option<TextSpan>,
        what: String,
        instead: &str,
    ) -> Problem {
        let line = place.as_ref().and_then(|place| self.sources.line(place));
        let instead = (!instead.is_empty()).then(|| shortened(instead));
        Problem {
            mistake,
            field: shortened(field),
            what: shortened(&what),
            instead,
            line,
        }
    }

    /// The path of the smallest value that spans a place.
    pub(super) fn path_of(&self, place: &TextSpan) -> Option<String> {
        let tree = self.grow().unwrap_or_default();
        let mut best: Option<(usize, String)> = None;
        walk(&tree, "", &mut |path, span| {
            let width = span.end.saturating_sub(span.start);
            let contains = span.start <= place.start && place.end <= span.end;
            if contains && best.as_ref().is_none_or(|(least, _)| width <= *least) {
                best = Some((width, path.to_owned()));
            }
        });
        best.map(|(_, path)| path)
    }
}

/// A field with a value: the keys of its path, where the value stands, and where it comes from.
pub(crate) struct Written {
    pub(crate) keys: Vec<String>,
    pub(crate) place: TextSpan,
    pub(crate) origin: Origin,
}

/// Files by their plain paths: those that are being read, each included by the one before it, and those that
/// are read and merged.
struct Included {
    open: Vec<String>,
    merged: Vec<String>,
}

/// Why a file is not included, before it is parsed.
struct RefusedInclude {
    mistake: Mistake,
    what: String,
    instead: &'static str,
}

impl Included {
    /// Refuses a file that includes itself by way of others, and one beyond the limit.
    fn check_nesting(&self, path: &String) -> Result<(), RefusedInclude> {
        if self.open.contains(path) {
            let circle = self.open.join(" → ") + " → " + path;
            return Err(RefusedInclude {
                mistake: Mistake::Reference,
                what: format!("{circle} include each other in a circle"),
                instead: "leave out one of these includes",
            });
        }
        if self.open.len() + self.merged.len() >= INCLUDES_MAX {
            return Err(RefusedInclude {
                mistake: Mistake::Limit,
                what: format!("more than {INCLUDES_MAX} files are included"),
                instead: "put some of them together",
            });
        }
        Ok(())
    }
}

/// A path without the components `.` and without `a/..`, so that `./a.toml` and `a.toml` are one file.
fn plain_path(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    String::from(root) + &parts.join("/")
}

/// The name of a file that a file names, relative to the fabric file. `is_fabric_file`: the naming file is
/// the fabric file itself, in whose folder names begin.
fn beside(naming: &str, named: &str, is_fabric_file: bool) -> String {
    match naming.rsplit_once('/') {
        Some((folder, _)) if !is_fabric_file && !named.starts_with('/') => {
            format!("{folder}/{named}")
        }
        _ => named.to_owned(),
    }
}

/// Fields that name files, below the arrays of tables that they are in.
const FILE_FIELDS: [(&str, &str); 6] = [
    ("switch", "routeros"),
    ("switch", "sonic"),
    ("workload", "flows"),
    ("workload", "replay"),
    ("workload", "sizes-file"),
    ("workload", "connections"),
];

/// Makes the names of files in an included file relative to the fabric file.
fn name_from(table: &mut DeTable<'_>, file: &str) {
    for (array, field) in FILE_FIELDS {
        let entries = table.get_mut(array).map(Spanned::get_mut);
        let Some(DeValue::Array(entries)) = entries else {
            continue;
        };
        for entry in entries.iter_mut() {
            let DeValue::Table(entry) = entry.get_mut() else {
                continue;
            };
            match entry.get_mut(field).map(Spanned::get_mut) {
                Some(DeValue::Array(names)) => {
                    names
                        .iter_mut()
                        .for_each(|name| put_beside(name.get_mut(), file));
                }
                Some(name) => put_beside(name, file),
                None => {}
            }
        }
    }
}

fn put_beside(name: &mut DeValue<'_>, file: &str) {
    if let DeValue::String(name) = name {
        *name = Cow::Owned(beside(file, name, false));
    }
}

/// Characters of a text in a message at most.
const MESSAGE_CHARACTERS_MAX: usize = 500;

/// The beginning of a text that quotes what a file holds, which may be megabytes.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn includes(table: &DeTable<'_>, start: usize) -> Vec<(String, TextSpan)> {
    let list = table
        .get("include")
        .and_then(|value| value.get_ref().as_array());
    let texts = list.into_iter().flatten();
    texts
        .filter_map(|value| {
            let span = value.span();
            Some((
                value.get_ref().as_str()?.to_owned(),
                span.start + start..span.end + start,
            ))
        })
        .collect()
}

/// Puts `from` on top of `into`: tables are merged, arrays of tables appended, all else replaced.
fn merge<'t>(into: &mut DeTable<'t>, from: DeTable<'t>) {
    for (key, value) in from {
        match into.get_mut(&key) {
            None => {
                into.insert(key, value);
            }
            Some(old) => {
                let span = value.span();
                match (old.get_mut(), value.into_inner()) {
                    (DeValue::Table(old), DeValue::Table(new)) => merge(old, new),
                    (DeValue::Array(old), DeValue::Array(new)) if new.iter().all(is_table) => {
                        new.into_iter().for_each(|entry| old.push(entry));
                    }
                    (_, new) => *old = Spanned::new(span, new),
                }
            }
        }
    }
}

fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().is_table()
}

/// Tables whose keys are numbers: in all other places numbers count entries of arrays.
const BY_NUMBER: [&str; 4] = ["class", "dscp", "pcp", "queue"];

fn put_in_table<'t>(
    table: &mut DeTable<'t>,
    keys: &[&str],
    value: &Spanned<DeValue<'t>>,
    place: &TextSpan,
) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        return Ok(());
    };
    if *key == "*" {
        return table
            .iter_mut()
            .try_for_each(|(_, entry)| put_into(entry.get_mut(), key, rest, value, place));
    }
    if rest.is_empty() {
        let name: Spanned<DeString<'t>> =
            Spanned::new(place.clone(), Cow::Owned((*key).to_owned()));
        table.remove(*key);
        table.insert(name, value.clone());
        return Ok(());
    }
    if !table.contains_key(*key)
        && !BY_NUMBER.contains(key)
        && rest
            .first()
            .is_some_and(|next| *next == "*" || next.parse::<usize>().is_ok())
    {
        return Err(format!("there is no {key} to set anything of"));
    }
    if !table.contains_key(*key) {
        let name: Spanned<DeString<'t>> =
            Spanned::new(place.clone(), Cow::Owned((*key).to_owned()));
        table.insert(
            name,
            Spanned::new(place.clone(), DeValue::Table(DeTable::new())),
        );
    }
    let entry = table.get_mut(*key).ok_or_else(String::new)?;
    put_into(entry.get_mut(), key, rest, value, place)
}

fn put_into<'t>(
    entry: &mut DeValue<'t>,
    name: &str,
    keys: &[&str],
    value: &Spanned<DeValue<'t>>,
    place: &TextSpan,
) -> Result<(), String> {
    match entry {
        DeValue::Table(table) => put_in_table(table, keys, value, place),
        DeValue::Array(entries) => {
            let Some((key, rest)) = keys.split_first() else {
                return Ok(());
            };
            let count = entries.len();
            let chosen: Vec<&mut Spanned<DeValue<'t>>> = match (*key, key.parse::<usize>()) {
                ("*", _) => entries.iter_mut().collect(),
                (_, Ok(index)) => entries.get_mut(index).into_iter().collect(),
                _ => entries
                    .iter_mut()
                    .filter(|entry| has_name(entry.get_ref(), key))
                    .collect(),
            };
            if chosen.is_empty() {
                return Err(format!(
                    "there is no {name} \"{key}\"; there are {count}, numbered from 0"
                ));
            }
            for entry in chosen {
                if rest.is_empty() {
                    *entry = value.clone();
                } else {
                    put_into(entry.get_mut(), key, rest, value, place)?;
                }
            }
            Ok(())
        }
        _ => Err(format!(
            "{name} is a value, and has no field {}",
            keys.first().copied().unwrap_or_default()
        )),
    }
}

fn has_name(entry: &DeValue<'_>, name: &str) -> bool {
    let is = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str() == Some(name);
    entry
        .as_table()
        .is_some_and(|table| table.get("name").is_some_and(is))
}

fn shift_table<'t>(table: DeTable<'t>, by: usize) -> DeTable<'t> {
    let shift_key = |key: Spanned<DeString<'t>>| {
        let span = key.span();
        Spanned::new(span.start + by..span.end + by, key.into_inner())
    };
    table
        .into_iter()
        .map(|(key, value)| (shift_key(key), shift_value(value, by)))
        .collect()
}

fn shift_value<'t>(value: Spanned<DeValue<'t>>, by: usize) -> Spanned<DeValue<'t>> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shift_table(table, by)),
        DeValue::Array(array) => {
            let mut shifted = DeArray::new();
            array
                .into_iter()
                .for_each(|entry| shifted.push(shift_value(entry, by)));
            DeValue::Array(shifted)
        }
        other => other,
    };
    Spanned::new(span.start + by..span.end + by, inner)
}

/// Calls `visit` with the keys and the place of each value that is no table and no array of tables.
fn leaves(
    table: &DeTable<'_>,
    keys: &mut Vec<String>,
    visit: &mut impl FnMut(&[String], TextSpan),
) {
    for (key, value) in table {
        keys.push(key.get_ref().to_string());
        leaf(value, keys, visit);
        keys.pop();
    }
}

fn leaf(
    value: &Spanned<DeValue<'_>>,
    keys: &mut Vec<String>,
    visit: &mut impl FnMut(&[String], TextSpan),
) {
    match value.get_ref() {
        DeValue::Table(table) => leaves(table, keys, visit),
        DeValue::Array(entries) if !entries.is_empty() && entries.iter().all(is_table) => {
            for (index, entry) in entries.iter().enumerate() {
                keys.push(index.to_string());
                leaf(entry, keys, visit);
                keys.pop();
            }
        }
        _ => visit(keys, value.span()),
    }
}

/// Calls `visit` with the path and place of each key with its value.
fn walk(table: &DeTable<'_>, prefix: &str, visit: &mut impl FnMut(&str, TextSpan)) {
    for (key, value) in table {
        let path = if prefix.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{prefix}.{}", key.get_ref())
        };
        visit(&path, key.span());
        walk_value(value, &path, visit);
    }
}

fn walk_value(value: &Spanned<DeValue<'_>>, path: &str, visit: &mut impl FnMut(&str, TextSpan)) {
    visit(path, value.span());
    match value.get_ref() {
        DeValue::Table(table) => walk(table, path, visit),
        DeValue::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                walk_value(entry, &format!("{path}[{index}]"), visit);
            }
        }
        _ => {}
    }
}
