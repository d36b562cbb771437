//! The documentation of the fabric file, made of its schema.

use super::check::{json_schema, resolve};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value};

/// The tables of the documentation: heading in the file, and the schema's name.
const TABLES: &[(&str, &str)] = &[
    ("topology = { … }", "Generator"),
    ("[routing]", "Routing"),
    ("[[host]]", "Host"),
    ("[nic.NAME]", "Nic"),
    ("[nic.NAME.pcie]", "Pcie"),
    ("[nic.NAME.functions]", "Functions"),
    ("[nic.NAME.functions.vf.NUMBER]", "Function"),
    ("[nic.NAME.dcqcn]", "Dcqcn"),
    ("[nic.NAME.swift]", "Swift"),
    ("[nic.NAME.hpcc]", "Hpcc"),
    ("[nic.NAME.timely]", "Timely"),
    ("[nic.NAME.dctcp]", "Dctcp"),
    ("[nic.NAME.uet]", "Uet"),
    ("[nic.NAME.nscc]", "Nscc"),
    ("[[switch]]", "Switch"),
    ("[qos.NAME]", "Qos"),
    ("[qos.NAME.queue.CLASS]", "Queue"),
    ("[qos.NAME.queue.CLASS.ecn]", "Ecn"),
    ("[qos.NAME.queue.CLASS.trim]", "Trim"),
    ("[qos.NAME.pfc]", "Pfc"),
    ("[qos.NAME.pfc.class.CLASS]", "PfcClass"),
    ("[qos.NAME.pfc.watchdog]", "Watchdog"),
    ("[[link]]", "Link"),
    ("[[link.down]]", "Down"),
    ("[[workload]]", "Workload"),
    ("[group.NAME]", "Group"),
    ("[group.NAME.local]", "Local"),
    ("[[collective]]", "Collective"),
    ("[[transfer]]", "Transfer"),
    ("[[model]]", "Model"),
    ("[model.parallel]", "Parallel"),
    ("[model.experts]", "Experts"),
    ("[[storage]]", "Storage"),
    ("[processor.NAME]", "Processor"),
    ("[drive.NAME]", "Drive"),
];

/// The field-by-field part of the documentation, in Markdown.
pub fn reference() -> String {
    let root = json_schema();
    let mut text = String::new();
    section(&mut text, "At the top", &root, &root);
    for (heading, name) in TABLES {
        section(
            &mut text,
            &format!("`{heading}`"),
            &root["$defs"][*name],
            &root,
        );
    }
    text
}

fn section(text: &mut String, heading: &str, schema: &Value, root: &Value) {
    let description = flat(schema["description"].as_str().unwrap_or_default());
    *text += &format!(
        "\n### {heading}\n\n{description}\n\n| field | value | default | |\n|---|---|---|---|\n"
    );
    let none = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in fields {
        let description = flat(field["description"].as_str().unwrap_or_default());
        let default = match &field["default"] {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => "—".to_owned(),
            Value::Object(table) if !table.is_empty() && table.len() > 4 => "see there".to_owned(),
            Value::String(value) if value.is_empty() => "—".to_owned(),
            value => format!("`{}`", literal(value)),
        };
        *text += &format!(
            "| `{name}` | {} | {default} | {description} |\n",
            kind(field, root)
        );
    }
    let choices: Vec<(&String, &Value)> = fields
        .iter()
        .filter(|(_, field)| choices_of(field, root).is_some())
        .collect();
    for (name, field) in choices {
        *text += &format!("\n`{name}`:\n\n");
        for choice in choices_of(field, root).into_iter().flatten() {
            let meaning = flat(choice["description"].as_str().unwrap_or_default());
            *text += &format!("- `{}`: {meaning}\n", literal(&choice["const"]));
        }
    }
}

fn choices_of<'a>(field: &'a Value, root: &'a Value) -> Option<&'a Vec<Value>> {
    let all = resolve(root, field)["oneOf"].as_array()?;
    all.iter()
        .all(|one| one["const"].is_string())
        .then_some(all)
}

/// A text in one line, for the cells of a table.
fn flat(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// The value in TOML syntax.
fn literal(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let entry = |(key, value): (&String, &Value)| format!("{key} = {}", literal(value));
            let entries: Vec<String> = table.iter().map(entry).collect();
            if entries.is_empty() {
                "{}".to_owned()
            } else {
                format!("{{ {} }}", entries.join(", "))
            }
        }
        other => other.to_string(),
    }
}

fn kind(field: &Value, root: &Value) -> String {
    let schema = resolve(root, field);
    if choices_of(field, root).is_some() {
        return "one of below".to_owned();
    }
    if let Some(quantity) = schema["x-quantity"].as_str() {
        return units::bare_name(quantity);
    }
    let types = match &schema["type"] {
        Value::Array(all) => all
            .iter()
            .find(|one| **one != "null")
            .and_then(Value::as_str),
        one => one.as_str(),
    };
    match types {
        Some("integer") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("string") => "text".to_owned(),
        Some("array") => format!("list of {}", kind(&schema["items"], root)),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!(
                "table by name, of {}",
                kind(&schema["additionalProperties"], root)
            )
        }
        Some("object") => "table".to_owned(),
        _ => "value".to_owned(),
    }
}
