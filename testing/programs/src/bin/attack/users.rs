//! Attacks by another user of the machine.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery, workspace};
use tempfile::TempDir;

use crate::Outcome;
use crate::place::{Effort, output_of, peak_memory_mib, wait_for};

/// A user without privileges.
const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];
/// Memory of the server of the page.
const PAGE_MIB: u64 = 64;
/// 65,536 hosts, each with queue pairs to others: some gigabytes.
const LARGE: &str = "[topology]\nkind = \"fat-tree\"\nk = 64\n[[workload]]\npattern = \"permutation\"\n\
                     messages = 1000000\nmessage = \"1MiB\"\ndepth = 4096\nqps = 16\n";
const SMALL: &str = "[topology]\nkind = \"star\"\nhosts = 3\n[[workload]]\n\
                     pattern = \"permutation\"\nmessages = 4\n";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Sends random messages to the sockets of the agent and of devices, while two programs transfer data and
/// others start.
pub(crate) fn intruder(effort: Effort) -> Outcome {
    let machine = Namespace::with_rockery();
    let seconds = effort.seconds().to_string();
    let words = ["ib_write_bw", "-F", "-s", "65536", "-D", &seconds];
    let mut server = machine.start(&words).map_err(text)?;
    machine.wait_for_listener(18515, 60).map_err(text)?;
    let mut client = machine
        .start(&[&words[..], &["127.0.0.1"]].concat())
        .map_err(text)?;
    // The other user reads the script from a pipe: the repository may lie where only its owner can read.
    let script = workspace().join("testing/programs/probe/intruder.py");
    let script = fs::read_to_string(script).map_err(text)?;
    let argv = [
        &AS_NOBODY[..],
        &["/usr/bin/python3", "-c", &script, &seconds],
    ]
    .concat();
    let mut intruder = machine.start_plain(&argv).map_err(text)?;
    wait_for(&mut intruder, "intrudes")?;
    let mut devices = 0;
    while intruder.finished().map_err(text)?.is_none() {
        let found = machine
            .run(&["ibv_devinfo", "-d", "rk_lo"], 60)
            .map_err(text)?;
        if !found.succeeded() {
            return Err(format!("a program has no device: {}", found.output));
        }
        devices += 1;
    }
    for end in [&mut client, &mut server] {
        let ended = end.wait(60).map_err(text)?;
        if !ended.succeeded() {
            return Err(format!("the transfer failed: {}", ended.output));
        }
    }
    let said = output_of(intruder)?;
    match said.lines().find_map(|line| line.strip_prefix("made ")) {
        Some(made) if made != "0" => Ok(format!(
            "{made} connections; the transfer ended well, {devices} programs got their device"
        )),
        _ => Err(format!("no connection was made: {said}")),
    }
}

/// Starts a program with its owner's rights, and names files of that owner in variables.
pub(crate) fn set_user_id(_: Effort) -> Outcome {
    let (prefix, _rockery) = Rockery::built().installed();
    let libraries = prefix.path().join("lib/rockery");
    let linked = format!("-Wl,-rpath,{}", libraries.display());
    let program = Probe::compile_with("cc", "census", &["-libverbs", &linked]).map_err(text)?;
    let folder = TempDir::new().map_err(text)?;
    let written = ["ROCKERY_RECORD", "ROCKERY_PCAP", "ROCKERY_LOG_FILE"];
    let file = |name: &str| folder.path().join(name);
    let give = |path: &Path| chown(path, Some(NOBODY), Some(NOBODY)).map_err(text);
    for name in written {
        fs::write(file(name), "").map_err(text)?;
        give(&file(name))?;
    }
    give(program.path())?;
    give(folder.path())?;
    fs::set_permissions(program.path(), Permissions::from_mode(0o4755)).map_err(text)?;
    let variables = written.map(|name| format!("{name}={}", file(name).display()));
    let words: Vec<&str> = ["env", "ROCKERY_LOG=trace", "ROCKERY_DEVICES=none"]
        .into_iter()
        .chain(variables.iter().map(String::as_str))
        .collect();
    let path = program.path().to_string_lossy();
    let machine = Namespace::alone().map_err(text)?;
    let said = output_of(
        machine
            .start_plain(&[&words[..], &[&*path]].concat())
            .map_err(text)?,
    )?;
    if said != "more rights, 1 devices, 1 received\n" {
        return Err(format!("the program obeyed a variable: {said}"));
    }
    let obeyed = written
        .iter()
        .find(|name| fs::metadata(file(name)).is_ok_and(|it| it.len() > 0));
    match obeyed {
        None => Ok("3 files are empty; the program has its device".to_owned()),
        Some(name) => Err(format!("{name} was written")),
    }
}

/// `rockery web` in a namespace, and its address.
fn page(machine: &Namespace, more: &[&str]) -> Result<(Process, String), String> {
    let rockery = Rockery::built();
    let words = [&[rockery.word(), "web", "--listen", "127.0.0.1:0"], more].concat();
    let mut server = machine.start_plain(&words).map_err(text)?;
    let said = wait_for(&mut server, "http://")?;
    let address = said.lines().find_map(|line| line.strip_prefix("http://"));
    let address = address.unwrap_or_default().trim_end_matches('/').to_owned();
    Ok((server, address))
}

/// Connections that have sent half of a request, and stay.
pub(crate) fn slow_pages(effort: Effort) -> Outcome {
    let machine = Namespace::alone().map_err(text)?;
    let (_server, address) = page(&machine, &[])?;
    let (host, port) = address.rsplit_once(':').ok_or("no port")?;
    // A shell, which every user may execute.
    let hold = format!(
        "trap '' PIPE; hold() {{ exec {{fd}}<>/dev/tcp/{host}/{port};\n\
         printf 'GET / HTTP/1.1\\r\\nX: ' >&$fd; }}\n\
         for n in {{1..64}}; do hold; done; echo held; while sleep 0.01; do hold; done"
    );
    let mut holder = machine
        .start_plain(&[&AS_NOBODY[..], &["bash", "-c", &hold]].concat())
        .map_err(text)?;
    wait_for(&mut holder, "held")?;
    let get = format!("curl -sf -m 20 http://{address}/api/devices");
    let argv: Vec<&str> = get.split(' ').collect();
    let mut other = machine
        .start_plain(&[&AS_NOBODY[..], &argv].concat())
        .map_err(text)?;
    let other = other.wait(60).map_err(text)?;
    if other.succeeded() || !other.output.is_empty() {
        return Err(format!("another user is answered: {}", other.output));
    }
    let times = 10 * effort.seconds();
    for _ in 0..times {
        output_of(machine.start_plain(&argv).map_err(text)?)?;
    }
    Ok(format!("{times} requests of its own user were answered"))
}

/// Runs that need more memory than a run has.
pub(crate) fn large_runs(effort: Effort) -> Outcome {
    let machine = Namespace::alone().map_err(text)?;
    let (server, address) = page(&machine, &["--memory", "300MiB"])?;
    let run = |fabric: &str| -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().map_err(text)?;
        let body = serde_json::json!({ "do": "run", "text": fabric });
        file.write_all(body.to_string().as_bytes()).map_err(text)?;
        let data = format!("@{}", file.path().display());
        let url = format!("http://{address}/api/sim");
        let argv = [
            "curl",
            "-s",
            "-H",
            "Content-Type: application/json",
            "--data-binary",
            &data,
            &url,
        ];
        output_of(machine.start_plain(&argv).map_err(text)?)
    };
    let times = effort.seconds();
    for _ in 0..times {
        let said = run(LARGE)?;
        if !said.contains("more than 300MiB of memory") {
            return Err(format!("the run is not refused: {:.400}", said));
        }
    }
    let said = run(SMALL)?;
    if said.contains("\"refused\"") || said.contains("\"problems\"") {
        return Err(format!("a small run is refused: {said:.400}"));
    }
    match peak_memory_mib(&server) {
        Some(mib) if mib <= PAGE_MIB => Ok(format!(
            "{times} runs refused, a small one answered; {mib} MiB at most"
        )),
        other => Err(format!("the server has {other:?} MiB")),
    }
}
