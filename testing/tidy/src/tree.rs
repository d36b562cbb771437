//! The files of the repository, and the findings of rules about them.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Folders that hold what was built or downloaded, not what was written.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    ".cache",
    "corpus",
    "artifacts",
    "proptest-regressions",
    "__pycache__",
];

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// From the root of the repository, with slashes.
    pub path: String,
    /// The contents of the file.
    pub text: String,
}

impl File {
    /// A file that is not on disk: for tests of rules.
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether its name ends in one of `extensions`.
    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        self.name()
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// A finding at a line, counted from one.
    pub fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }
}

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path of the file.
    pub path: String,
    /// Line, counted from one; 0 for the file as a whole.
    pub line: usize,
    /// The violation, and a remedy.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// All text files of the repository, in the order of their paths.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The root folder of the repository.
    pub root: PathBuf,
    /// Files in the order of their paths.
    pub files: Vec<File>,
}

impl Tree {
    /// The repository that this crate is in.
    ///
    /// # Errors
    /// When a folder or file cannot be read.
    pub fn of_this_repository() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let mut tree = Self {
            root: root.clone(),
            files: Vec::new(),
        };
        tree.add_folder(&root)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree that is not on disk: for tests of rules.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self {
            root: PathBuf::new(),
            files: files
                .iter()
                .map(|(path, text)| File::new(path, text))
                .collect(),
        }
    }

    /// The file at `path`, if there is one.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The files whose names end in one of `extensions`.
    pub fn with_extension<'a>(
        &'a self,
        extensions: &'a [&'a str],
    ) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |file| file.has_extension(extensions))
    }

    fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if SKIPPED.iter().any(|skipped| name == *skipped) {
                continue;
            }
            if kind.is_dir() {
                self.add_folder(&path)?;
            } else if kind.is_file() {
                self.add_file(&path)?;
            }
        }
        Ok(())
    }

    /// Files that are not text (captures, pictures) are left out.
    fn add_file(&mut self, path: &Path) -> io::Result<()> {
        let Ok(text) = String::from_utf8(fs::read(path)?) else {
            return Ok(());
        };
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        self.files.push(File {
            path: parts.join("/"),
            text,
        });
        Ok(())
    }
}
