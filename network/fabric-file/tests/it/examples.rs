//! The fabric files of `examples/` are understood.

use fabric_file::{Document, Network};
use std::path::{Path, PathBuf};

#[allow(clippy::disallowed_methods, reason = "a test reads the examples")]
fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn fabric_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("smb") {
            // Configurations of `rockery smb`.
        } else if path.is_dir() {
            fabric_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && !path.ends_with("Cargo.toml")
        {
            found.push(path);
        }
    }
}

#[test]
fn every_example_and_every_point_of_its_sweep_can_be_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths = Vec::new();
    fabric_files(&root, &mut paths);
    assert!(!paths.is_empty());
    for path in paths {
        let folder = path.parent().unwrap().to_owned();
        let mut files = |name: &str| read(&folder.join(name));
        let text = read(&path).unwrap();
        let document = Document::read(&path.display().to_string(), &text, &mut files);
        let document = document.unwrap_or_else(|error| panic!("{error}"));
        let file = document.fields().unwrap_or_else(|error| panic!("{error}"));
        assert!(
            !file.title.is_empty(),
            "{}: a title says what it is about",
            path.display()
        );
        for point in file.points().unwrap() {
            let mut document = document.clone();
            for (key, value) in point {
                document
                    .set(&key, &value)
                    .unwrap_or_else(|error| panic!("{error}"));
            }
            let file = document.fields().unwrap_or_else(|error| panic!("{error}"));
            Network::build(&document, &file, &mut files).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
