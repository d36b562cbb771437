//! Attacks by the author of a file that a user reads with rockery.

use std::fs;
use std::process::{Command, Stdio};

use programs::Rockery;
use tempfile::TempDir;

use crate::Outcome;
use crate::place::Effort;

/// Commands that read the file `FILE`.
const READERS: &[&str] = &[
    "sim FILE",
    "doctor --host FILE",
    "doctor --switch FILE",
    "doctor --fabric FILE",
    "doctor lldp FILE",
    "doctor matrix FILE",
    "plan FILE --for h0=mlnx@5.8",
    "lab up FILE",
    "serve nvme --config FILE",
    "smb gateway --config FILE",
    "smb dial --config FILE",
    "nvme id-ctrl 127.0.0.1:1 --secret @FILE",
];
/// Commands whose file may be a pipe.
const PIPED: &[&str] = &["sim FILE", "lab up FILE"];
/// Seconds that a command may take, on a busy machine; timeout(1) ends it then, with this status.
const SECONDS: &str = "30";
const TOO_LATE: i32 = 124;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A folder that is also the user's runtime folder.
fn run(folder: &TempDir, line: &str) -> Result<(Option<i32>, String), String> {
    let mut command = Command::new("timeout");
    command
        .args([SECONDS, "prlimit", "--as=4000000000"])
        .arg(Rockery::built().path())
        .args(line.split_whitespace())
        .current_dir(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdin(Stdio::null());
    let ended = command.output().map_err(text)?;
    let said = [ended.stdout, ended.stderr].concat();
    Ok((
        ended.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// Files that never end, that wait for a writer, or that are too large.
pub(crate) fn endless(_: Effort) -> Outcome {
    let folder = TempDir::new().map_err(text)?;
    let made = Command::new("mkfifo")
        .arg(folder.path().join("fifo"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("mkfifo failed".to_owned());
    }
    fs::create_dir(folder.path().join("folder")).map_err(text)?;
    let long = fs::File::create(folder.path().join("long")).map_err(text)?;
    long.set_len(1 << 34).map_err(text)?;
    let mut refused = 0;
    for reader in READERS {
        for file in ["/dev/zero", "fifo", "folder", "long"] {
            // A fabric file may come through a pipe, so it waits for a writer.
            if file == "fifo" && PIPED.contains(reader) {
                continue;
            }
            let line = reader.replace("FILE", file);
            let (status, said) = run(&folder, &line)?;
            let is_error = matches!(status, Some(it) if (1..128).contains(&it) && it != TOO_LATE);
            if !is_error || !said.contains(file) {
                return Err(format!("{line}: status {status:?}: {said}"));
            }
            refused += 1;
        }
    }
    Ok(format!("{refused} commands refused their file by name"))
}

/// Names that terminals obey, and names with shell commands in them.
pub(crate) fn names(_: Effort) -> Outcome {
    let folder = TempDir::new().map_err(text)?;
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text);
    let fabric = "title = \"two \\u001b]0;pwn\\u0007\\u202e\"\n[topology]\nkind = \"star\"\nhosts = 3\n\
                  [[workload]]\npattern = \"permutation\"\nmessages = 4\n";
    let command = "$(touch${IFS}executed)";
    let interface = format!("eth0{command}");
    let adapter = format!("mlx5_0;touch${{IFS}}executed;{command}");
    let host = format!(
        "==> sysfs <==\n/sys/class/infiniband/{adapter}/ports/1/link_layer: Ethernet\n\
         /sys/class/infiniband/{adapter}/ports/1/state: 1: DOWN\n\
         /sys/class/infiniband/{adapter}/ports/1/gid_attrs/ndevs/0: {interface}\n\
         /sys/class/net/{interface}/mtu: 1500\n"
    );
    let obeyed = host.replace("eth0", "eth0\u{202e}");
    file("fabric.toml", fabric)
        .and_then(|()| file("host.txt", &host))
        .and_then(|()| file("obeyed.txt", &obeyed))
        .and_then(|()| file("colours.txt", &host.replace("mlx5_0", "mlx5_0\u{9b}31m")))
        .map_err(text)?;
    let mut printed = 0;
    for line in [
        "sim fabric.toml",
        "sim fabric.toml --json -",
        "plan fabric.toml --for h0=mlnx@5.8",
        "doctor --host obeyed.txt --dscp 26",
        "doctor --host obeyed.txt --dscp 26 --json",
        "doctor --host colours.txt --dscp 26",
        "vf show fabric.toml",
        "lab ps",
    ] {
        let (_, said) = run(&folder, line)?;
        let obeyed = |it: char| it.is_control() && !"\n\t".contains(it) || it == '\u{202e}';
        if said.contains(obeyed) {
            return Err(format!("{line}: {said:?}"));
        }
        printed += 1;
    }
    let (_, said) = run(&folder, "doctor --host host.txt --dscp 26")?;
    let fixes: Vec<&str> = said.lines().filter_map(fix).collect();
    // The only program that there is: the commands of fixes are not.
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).map_err(text)?;
    std::os::unix::fs::symlink("/usr/bin/touch", programs.join("touch")).map_err(text)?;
    for command in &fixes {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", command])
            .env("PATH", &programs)
            .current_dir(folder.path());
        shell.output().map_err(text)?;
        if folder.path().join("executed").exists() {
            return Err(format!("the shell executed a part of a name: {command}"));
        }
    }
    if fixes.is_empty() {
        return Err(format!("no fix has a name: {said}"));
    }
    Ok(format!(
        "{printed} outputs without control characters; {} fixes without a name's commands",
        fixes.len()
    ))
}

/// The command of a finding, without the advice behind it.
fn fix(line: &str) -> Option<&str> {
    let fix = line.trim().strip_prefix("fix ")?.trim();
    fix.contains("eth0").then(|| fix.split("; then ").next())?
}
