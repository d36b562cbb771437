//! The text of a fabric file.

use std::fmt::{Display, Write as _};

/// A fabric file that is written table by table.
#[derive(Debug, Default)]
pub(crate) struct FabricText(String);

impl FabricText {
    /// Begins a file with its title.
    pub(crate) fn titled(title: &str) -> Self {
        let mut text = Self::default();
        text.quoted("title", title);
        text
    }

    /// Begins a table, as in `nic.default`.
    pub(crate) fn table(&mut self, name: impl Display) {
        let _ = write!(self.0, "\n[{name}]\n");
    }

    /// Begins an element of an array of tables, as in `link`.
    pub(crate) fn element(&mut self, name: &str) {
        let _ = write!(self.0, "\n[[{name}]]\n");
    }

    /// A comment on a line of its own.
    pub(crate) fn comment(&mut self, words: &str) {
        let _ = writeln!(self.0, "# {}", plain(words));
    }

    /// A field whose value is written as it is: a number, a list, an inline table.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} = {value}");
    }

    /// A field whose value is a string.
    pub(crate) fn quoted(&mut self, name: &str, value: impl Display) {
        self.field(name, quote(value));
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// A string as TOML has it.
pub(crate) fn quote(value: impl Display) -> String {
    format!("\"{}\"", plain(&value.to_string()))
}

/// A list of strings as TOML has it.
pub(crate) fn list(values: impl IntoIterator<Item = impl Display>) -> String {
    let values: Vec<String> = values.into_iter().map(quote).collect();
    format!("[{}]", values.join(", "))
}

/// What may be in a string of TOML, and in a line of a terminal, as it is.
fn plain(text: &str) -> String {
    let printable = |c: char| match c {
        '"' | '\\' => '\'',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(printable).collect()
}
