//! Files that a field of a workload names: with its messages, or with their lengths.

use super::file_table::FileTable;
use fabric_file::{FileError, Mistake, ReadFile};

/// Bytes of a message at most.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// A field that names a file.
pub(super) struct NamedFile<'a> {
    pub(super) table: FileTable<'a>,
    pub(super) field: &'static str,
    pub(super) name: &'a str,
    /// How such a file is written, for messages.
    pub(super) example: &'static str,
}

impl NamedFile<'_> {
    /// A mistake in the field.
    pub(super) fn mistake(&self, mistake: Mistake, what: String) -> FileError {
        self.table.mistake(mistake, self.field, what, self.example)
    }

    /// Refuses another field that says what is sent.
    pub(super) fn refuse_another(
        &self,
        this: &str,
        another: Option<&str>,
    ) -> Result<(), FileError> {
        let Some(another) = another else {
            return Ok(());
        };
        let what = format!("{this}, and {another} as well");
        Err(self.mistake(Mistake::Combination, what))
    }

    /// Reads the file. What is wrong in it comes behind its name: `, line 3: …`.
    pub(super) fn read<T>(
        &self,
        files: &mut ReadFile<'_>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, FileError> {
        let name = self.name;
        let text = files(name)
            .map_err(|error| self.mistake(Mistake::Reference, format!("{name}: {error}")))?;
        parse(&text).map_err(|what| self.mistake(Mistake::Value, format!("{name}{what}")))
    }
}

/// A whole number up to `most`.
pub(super) fn whole(text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("\"{text}\" is no number up to {most}"))
}
