//! Fields that there are not, found by the schema, all at once, each with the one that was meant.

use super::document::Document;
use super::error::{Mistake, Problem, nearest};
use super::schema::FabricFile;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The JSON schema of the fabric file (draft 2020-12).
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<FabricFile>().to_value()
}

pub(crate) fn unknown_fields(document: &Document, tree: &DeTable<'_>) -> Vec<Problem> {
    let root = json_schema();
    let mut checker = Checker { document, root: &root, problems: Vec::new() };
    checker.table(tree, &root, "");
    checker.problems
}

struct Checker<'a> {
    document: &'a Document,
    root: &'a Value,
    problems: Vec<Problem>,
}

/// The schema behind references and choices: of `null` or something, the something.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let choices = schema["anyOf"].as_array().and_then(|all| all.iter().find(|one| one["type"] != "null"));
    let schema = choices.unwrap_or(schema);
    let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
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
                    let problem = self.document.problem(mistake, &path, Some(key.span()), what, &instead);
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
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}
