//! JSON that a command prints, with the line of each value.

use serde_json::Value;

use crate::facts::Fact;
use crate::sections::Section;
use crate::text::{Line, ReadError, shortened};

/// A value within the output of a command, and the keys that lead to it.
pub(crate) struct Node<'s, 'a> {
    section: &'s Section<'a>,
    value: Value,
    keys: Vec<String>,
}

/// The first JSON value of an output; `None` where the output is empty. Text after the value, such as the
/// next prompt, is ignored.
///
/// # Errors
/// The line at which the output is no JSON.
pub(crate) fn read<'s, 'a>(section: &'s Section<'a>) -> Result<Option<Node<'s, 'a>>, ReadError> {
    let text = section
        .lines
        .iter()
        .map(|line| line.text)
        .collect::<Vec<_>>()
        .join("\n");
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    match values.next() {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(Node {
            section,
            value,
            keys: Vec::new(),
        })),
        Some(Err(error)) => {
            let index = error.line().max(1).min(section.lines.len()) - 1;
            Err(section.wrong(&section.lines[index], "it is no JSON"))
        }
    }
}

impl<'s, 'a> Node<'s, 'a> {
    fn child(&self, key: &str, value: &Value) -> Self {
        let keys = self.keys.iter().cloned().chain([key.to_owned()]).collect();
        Self {
            section: self.section,
            value: value.clone(),
            keys,
        }
    }

    /// The value itself.
    pub(crate) const fn value(&self) -> &Value {
        &self.value
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.child(key, value))
    }

    /// The value at the end of some keys.
    pub(crate) fn at(&self, keys: &[&str]) -> Option<Self> {
        let (first, rest) = keys.split_first()?;
        let found = self.get(first)?;
        if rest.is_empty() {
            Some(found)
        } else {
            found.at(rest)
        }
    }

    /// The entries of an object.
    ///
    /// # Errors
    /// Values that are no object.
    pub(crate) fn entries(&self) -> Result<Vec<(String, Self)>, ReadError> {
        let object = self
            .value
            .as_object()
            .ok_or_else(|| self.wrong("an object was expected"))?;
        Ok(object
            .iter()
            .map(|(key, value)| (key.clone(), self.child(key, value)))
            .collect())
    }

    /// A number, or text that is one.
    ///
    /// # Errors
    /// Values that are neither.
    pub(crate) fn number(&self) -> Result<u64, ReadError> {
        let text = self
            .value
            .as_str()
            .and_then(|text| text.trim().parse().ok());
        self.value
            .as_u64()
            .or(text)
            .ok_or_else(|| self.wrong("a number was expected"))
    }

    /// The value as a text.
    ///
    /// # Errors
    /// Values that are no text.
    pub(crate) fn text(&self) -> Result<&str, ReadError> {
        self.value
            .as_str()
            .ok_or_else(|| self.wrong("a text was expected"))
    }

    /// A setting that is on or off.
    ///
    /// # Errors
    /// Values that are neither.
    pub(crate) fn is_on(&self) -> Result<bool, ReadError> {
        match (&self.value, self.value.as_str()) {
            (Value::Bool(on), _) => Ok(*on),
            (_, Some("on" | "yes" | "enable" | "enabled" | "true")) => Ok(true),
            (_, Some("off" | "no" | "disable" | "disabled" | "false")) => Ok(false),
            _ => Err(self.wrong("on or off was expected")),
        }
    }

    /// Classes: a number, a list in a text, an array, or the keys of an object.
    ///
    /// # Errors
    /// Values that are none of them, and numbers above 7.
    pub(crate) fn classes(&self) -> Result<Vec<u8>, ReadError> {
        let expected = || self.wrong("classes from 0 to 7 were expected");
        let text = match &self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(values) => {
                let words = values.iter().map(|value| match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                words.collect::<Vec<_>>().join(",")
            }
            Value::Object(object) => object.keys().cloned().collect::<Vec<_>>().join(","),
            Value::Null | Value::Bool(_) => return Err(expected()),
        };
        match text.trim() {
            "" | "-" => Ok(Vec::new()),
            text => {
                let line = self.line();
                crate::text::list(self.section.file, line.number, text, 7).map_err(|_| expected())
            }
        }
    }

    /// The line of the last key: keys are looked for one after the other, each from the line of the one
    /// before on.
    fn line(&self) -> &'s Line<'a> {
        let lines = &self.section.lines;
        let mut index = 0;
        for key in &self.keys {
            let quoted = format!("\"{key}\"");
            index = (index..lines.len())
                .find(|at| lines[*at].text.contains(&quoted))
                .unwrap_or(index);
        }
        lines.get(index).unwrap_or(&self.section.head)
    }

    /// A fact of this value.
    pub(crate) fn fact<T>(&self, value: T) -> Fact<T> {
        self.section.fact(self.line(), value)
    }

    /// An error of this value.
    pub(crate) fn wrong(&self, what: &str) -> ReadError {
        let key = self
            .keys
            .last()
            .map_or_else(String::new, |key| format!("{}: ", shortened(key)));
        self.section.wrong(self.line(), &format!("{key}{what}"))
    }
}
