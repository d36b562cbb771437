//! The documentation that is installed beside the command.

use std::path::{Path, PathBuf};

/// The folder of the documentation, from the folder above that of the command.
const FOLDER: &str = "share/doc/rockery/docs";

/// The folder of the documentation, where it is installed.
pub(crate) fn folder() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    below(own.parent()?.parent()?)
}

fn below(prefix: &Path) -> Option<PathBuf> {
    let folder = prefix.join(FOLDER);
    folder.is_dir().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_only_where_it_is() {
        let prefix = tempfile::tempdir().unwrap();
        assert_eq!(below(prefix.path()), None);
        let folder = prefix.path().join(FOLDER);
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(below(prefix.path()), Some(folder));
    }
}
