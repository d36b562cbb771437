//! Scripts that start labs as a user without privileges, and look at what is left afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::{Error, Finished, Job, Namespace, Rockery};

/// Checks that the output of a script has these texts.
///
/// # Panics
/// When one is missing.
#[track_caller]
pub fn expect_lines(output: &str, lines: &[&str]) {
    for line in lines {
        assert!(output.contains(line), "{line}: {output}");
    }
}

/// Runs a shell script as the user `nobody`, without capabilities and without a way to gain any, in a network
/// namespace without interfaces. `$R` is rockery, `$F` the folder of the examples of the CRS504, `$E` the one
/// of all examples, `$D` a folder to write to. It has the functions `until_it_listens PORT HOST` (the TCP
/// port in hexadecimal digits), `until_it_prints TEXT COMMAND` and `down`.
///
/// # Panics
/// When the script fails, or takes longer.
pub fn script(text: &str, seconds: u64) -> String {
    script_with(text, seconds, &[])
}

/// The same, with copies of files in `$D`.
///
/// # Panics
/// As [`script`].
pub fn script_with(text: &str, seconds: u64, files: &[&Path]) -> String {
    try_script(text, seconds, files)
        .expect("in time")
        .expect_success()
        .output
}

/// The same; a script that fails is a result.
///
/// # Errors
/// When the script takes longer.
///
/// # Panics
/// When it cannot be started.
pub fn try_script(text: &str, seconds: u64, files: &[&Path]) -> Result<Finished, Error> {
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let folder = TempDir::new().expect("a temporary folder");
    open_to_all(folder.path());
    let examples = folder.path().join("examples");
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"),
        &examples,
    );
    let place = folder.path().join("place");
    fs::create_dir(&place).expect("our own folder");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).expect("our own folder");
    for file in files {
        fs::copy(file, place.join(file.file_name().expect("a file"))).expect("a readable file");
    }
    let name = folder.path().join("script.sh");
    fs::write(&name, format!("{FUNCTIONS}\n{text}")).expect("our own folder");
    let variables = [
        format!("R={}", rockery.display()),
        format!("E={}", examples.display()),
        format!("F={}/crs504", examples.display()),
        format!("D={}", place.display()),
        format!("HOME={}", place.display()),
    ];
    let mut run = vec![
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    run.extend(["--bounding-set=-all", "env"]);
    run.extend(variables.iter().map(String::as_str));
    let name = name.to_string_lossy();
    run.extend(["sh", &*name]);
    let mut job = alone.start_plain(&run).expect("setpriv");
    job.wait(seconds)
}

fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("our own folder");
    open_to_all(to);
    for entry in fs::read_dir(from).expect("examples").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)
        } else {
            _ = fs::copy(from, to).expect("a readable file")
        }
    }
}

/// `down` ends the lab, and prints what is left of it: processes that know its clock, and its socket.
const FUNCTIONS: &str = r#"
until_it_prints() {
    for _ in $(seq 150); do
        FOUND=$(sh -c "$2" || true)
        [ "$FOUND" = "$1" ] && return 0
        sleep 0.2
    done
    echo "still: $FOUND"
    return 1
}
until_it_listens() {
    for _ in $(seq 150); do
        $R lab exec ${2:-server} -- cat /proc/net/tcp /proc/net/tcp6 | grep -q ":$1 .* 0A " && return 0
        sleep 0.2
    done
    return 1
}
down() {
    FIRST=$($R lab ps --json | sed 's/.*"hosts":\[{"name":"\([^"]*\)".*/\1/')
    CLOCK=$($R lab exec $FIRST -- sh -c 'echo $ROCKERY_LAB_CLOCK')
    $R lab down || exit 1
    LEFT=$(grep -ls "ROCKERY_LAB_CLOCK=$CLOCK" /proc/[0-9]*/environ | wc -l)
    echo "left: $LEFT processes, $(grep -c rockery-lab /proc/net/unix) sockets"
}
"#;
