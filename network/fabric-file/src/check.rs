//! Unknown fields, found by the schema and reported all at once, each with the most similar known field.

use super::document::Document;
use super::error::{FileError, Mistake, Problem};
use super::names::NAME_BYTES_MAX;
use super::schema::FabricFile;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vendors::text::nearest;

/// The JSON schema of the fabric file (draft 2020-12).
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings
        .into_generator()
        .into_root_schema_for::<FabricFile>()
        .to_value()
}

impl Document {
    /// Reads the file's fields.
    ///
    /// # Errors
    /// All unknown fields; or the first value that its field cannot have.
    pub fn fields(&self) -> Result<FabricFile, FileError> {
        let tree = self.grow().unwrap_or_default();
        let unknown = unknown_fields(self, &tree);
        if !unknown.is_empty() {
            return Err(FileError(unknown));
        }
        let whole = Spanned::new(0..0, tree);
        let fields = FabricFile::deserialize(toml::Deserializer::from(whole)).map_err(|error| {
            let place = error.span();
            let field = place
                .as_ref()
                .and_then(|place| self.path_of(place))
                .unwrap_or_default();
            let what = error.message().trim().to_owned();
            let quoted = |text: &str| text.split('`').nth(1).map(ToString::to_string);
            let choices = what
                .split_once("expected one of")
                .map(|(_, rest)| rest.split('`'));
            let names = choices
                .into_iter()
                .flatten()
                .filter(|part| !part.trim_matches([',', ' ']).is_empty());
            let meant = quoted(&what).and_then(|name| nearest(&name, names).map(str::to_owned));
            let instead = meant
                .map(|name| format!("did you mean \"{name}\"?"))
                .unwrap_or_default();
            FileError(alloc::vec![self.problem(
                Mistake::Value,
                &field,
                place,
                what,
                &instead
            )])
        })?;
        texts(self, &fields)?;
        Ok(fields)
    }
}

fn unknown_fields(document: &Document, tree: &DeTable<'_>) -> Vec<Problem> {
    let root = json_schema();
    let mut checker = Checker {
        document,
        root: &root,
        problems: Vec::new(),
    };
    checker.table(tree, &root, "");
    checker.problems
}

/// Bytes of a title at most.
const TITLE_BYTES_MAX: usize = 1024;

/// Bytes of one value of a sweep at most: such values are cells of tables.
const SWEPT_BYTES_MAX: usize = 1024;

/// Fields that one sweep varies at most.
const SWEPT_PATHS_MAX: usize = 32;

/// Checks the lengths of texts that tables, charts and file headers repeat: title, names and swept values.
///
/// # Errors
/// The first text that is too long.
fn texts(document: &Document, file: &FabricFile) -> Result<(), FileError> {
    let title = [("title".to_string(), file.title.len(), TITLE_BYTES_MAX)];
    let workloads = file
        .workload
        .iter()
        .enumerate()
        .filter_map(|(index, workload)| {
            let name = workload.name.as_ref()?;
            Some((
                format!("workload[{index}].name"),
                name.len(),
                NAME_BYTES_MAX,
            ))
        });
    let stores = file.storage.iter().enumerate();
    let stores = stores.map(|(index, store)| {
        (
            format!("storage[{index}].name"),
            store.name.len(),
            NAME_BYTES_MAX,
        )
    });
    let swept = file.sweep.iter().map(|(path, values)| {
        let longest = values
            .iter()
            .map(|value| value.to_string().len())
            .max()
            .unwrap_or(0);
        (
            "sweep".to_string(),
            longest.max(path.len()),
            SWEPT_BYTES_MAX,
        )
    });
    let mut all = title
        .into_iter()
        .chain(workloads)
        .chain(stores)
        .chain(swept);
    if file.sweep.len() > SWEPT_PATHS_MAX {
        let what = format!(
            "{} fields are swept, and {SWEPT_PATHS_MAX} are the most",
            file.sweep.len()
        );
        return Err(document.mistake(Mistake::Limit, "sweep", what, "write several files"));
    }
    let Some((field, bytes, most)) = all.find(|(_, bytes, most)| bytes > most) else {
        return Ok(());
    };
    let what = format!("the text has {bytes} bytes, and {most} are the most");
    Err(document.mistake(Mistake::Limit, &field, what, "write something shorter"))
}

struct Checker<'a> {
    document: &'a Document,
    root: &'a Value,
    problems: Vec<Problem>,
}

/// Follows references and choices of a schema: of `null` or something, the something.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let choices = schema["anyOf"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["type"] != "null"));
    let schema = choices.unwrap_or(schema);
    let name = schema["$ref"]
        .as_str()
        .and_then(|path| path.strip_prefix("#/$defs/"));
    name.map_or(schema, |name| &root["$defs"][name])
}

impl Checker<'_> {
    fn table(&mut self, table: &DeTable<'_>, schema: &Value, path: &str) {
        let schema = resolve(self.root, schema);
        let Some(fields) = schema["properties"].as_object() else {
            let entries = &schema["additionalProperties"];
            for (key, value) in table.iter().filter(|_| entries.is_object()) {
                self.value(value, entries, &join(path, key.get_ref()));
            }
            return;
        };
        for (key, value) in table {
            let name: &str = key.get_ref();
            let path = join(path, name);
            match fields.get(name) {
                Some(field) => self.value(value, field, &path),
                None => {
                    let what = format!("there is no field \"{name}\" here");
                    let names = || fields.keys().map(String::as_str);
                    let instead = match nearest(name, names()) {
                        Some(meant) => format!("did you mean \"{meant}\"?"),
                        None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
                    };
                    let mistake = Mistake::UnknownField;
                    let problem =
                        self.document
                            .problem(mistake, &path, Some(key.span()), what, &instead);
                    self.problems.push(problem);
                }
            }
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, schema: &Value, path: &str) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, schema, path),
            DeValue::Array(entries) => {
                let items = &resolve(self.root, schema)["items"];
                for (index, entry) in entries.iter().enumerate() {
                    self.value(entry, items, &format!("{path}[{index}]"));
                }
            }
            _ => {}
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_string()
    } else {
        format!("{path}.{name}")
    }
}
