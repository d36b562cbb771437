//! YAML, as Python's reader has it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A word such as `on` is a key of workflows, and a truth value in YAML 1.1.
const READ: &str = "import json, sys, yaml
class Reader(yaml.SafeLoader): pass
Reader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in all if tag != 'tag:yaml.org,2002:bool' or first in 'tTfF']
    for first, all in yaml.SafeLoader.yaml_implicit_resolvers.items()}
print(json.dumps(list(yaml.load_all(open(sys.argv[1]), Reader))))";

/// All documents of a file.
///
/// # Panics
/// When it is no YAML, with what is wrong.
pub fn documents(path: &Path) -> Vec<Value> {
    let output = Command::new("/usr/bin/python3")
        .args(["-c", READ])
        .arg(path)
        .output()
        .expect("python3");
    assert!(
        output.status.success(),
        "{} (read by the package python3-yaml): {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The only document of a file.
///
/// # Panics
/// When there is another number of them.
pub fn document(path: &Path) -> Value {
    let [document] = &*documents(path) else {
        panic!("{} has one document", path.display())
    };
    document.clone()
}
