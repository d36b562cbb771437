//! iSCSI over RDMA (iSER): tgt's target and libiscsi's initiators, both over rockery, for the rows of the
//! matrix that they can express.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::perftest::{Ends, installed};
use super::report::Document;
use super::runner::{Runner, Server};
use crate::matrix::MATRIX;
use crate::place::{ADDRESSES, Held};

/// Columns: the end of the veth where the initiator runs (the target is at the first), and its options of
/// `rockery run`.
const WAYS: [(&str, usize, &[&str]); 2] = [
    ("iSER, same host", 0, &[]),
    ("iSER over UDP", 1, &["--no-same-host"]),
];
const TARGET: &str = "iqn.2024-01.org.rockery:disk";
const INITIATOR: &str = "iqn.2024-01.org.rockery:documents";
const DISK_BYTES: u64 = 64 << 20;
/// Without this option the target registers 1 GiB for data.
const POOL: &str = "pool_sz_mb=64";
/// How long the target may take until it answers, and an initiator until it could log in. libiscsi 1.19 ends
/// with a segmentation fault at times, so an initiator is started again.
const START: Duration = Duration::from_secs(15);
/// The seconds of a measurement, of which iscsi-perf takes whole ones.
const SECONDS: &str = "1";
/// Bytes that qemu-img writes in a row, and with `--quick`.
const WRITTEN: [u64; 2] = [1 << 30, 64 << 20];
const BLOCK: u64 = 512;
/// Longer commands do not fit libiscsi's buffers for iSER.
const LONGEST: u64 = 256 << 10;

/// Rates of one way, in bytes per second, by job.
pub(super) struct Series {
    /// The heading of the column.
    pub(super) name: &'static str,
    rates: Vec<(String, f64)>,
}

impl Series {
    pub(super) fn rate(&self, job: &str) -> Option<f64> {
        self.rates
            .iter()
            .find(|(name, _)| name == job)
            .map(|(_, rate)| *rate)
    }
}

/// Programs of the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    IscsiPerf,
    QemuImg,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::IscsiPerf => "iscsi-perf",
            Self::QemuImg => "qemu-img",
        }
    }

    const fn packages(self) -> &'static str {
        match self {
            Self::IscsiPerf => "package libiscsi-bin",
            Self::QemuImg => "packages qemu-utils and qemu-block-extra",
        }
    }
}

/// A row of the matrix, as libiscsi's programs can run it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Job {
    program: Program,
    bytes: u64,
    depth: u64,
    is_random: bool,
}

impl Job {
    /// The job of `how`, `what` and `many` (`rand`, `read`, `4k:32t16`), or the reason why there is none.
    fn of(how: &str, what: &str, many: &str) -> Result<Self, &'static str> {
        let (size, depth) = many.split_once(':').unwrap_or((many, "1"));
        let unit = if size.ends_with('m') {
            1 << 20
        } else {
            1 << 10
        };
        let bytes = size.trim_end_matches(['k', 'm']).parse().unwrap_or(0) * unit;
        let is_random = !how.is_empty();
        if bytes > LONGEST {
            return Err("libiscsi's commands over iSER have at most 256 KiB");
        }
        if is_random && what == "write" {
            return Err("iscsi-perf only reads, and qemu-img writes at offsets in a row only");
        }
        let depth = depth.parse().map_err(|_| "iscsi-perf has one thread")?;
        let program = if what == "write" {
            Program::QemuImg
        } else {
            Program::IscsiPerf
        };
        Ok(Self {
            program,
            bytes,
            depth,
            is_random,
        })
    }

    /// The words of the initiator's command.
    fn words(self, is_quick: bool) -> Vec<String> {
        let address = ADDRESSES[0];
        let line = match self.program {
            Program::IscsiPerf => {
                let random = if self.is_random { "-r " } else { "" };
                let (depth, blocks) = (self.depth, self.bytes / BLOCK);
                format!(
                    "iscsi-perf -i {INITIATOR} -t {SECONDS} {random}-m {depth} -b {blocks} \
                     iser://{address}:3260/{TARGET}/1"
                )
            }
            Program::QemuImg => {
                let [full, quick] = WRITTEN;
                let count = if is_quick { quick } else { full } / self.bytes;
                let (depth, bytes) = (self.depth, self.bytes);
                format!(
                    "qemu-img bench -w -t none -c {count} -d {depth} -s {bytes} --image-opts \
                     driver=iscsi,transport=iser,portal={address}:3260,target={TARGET},lun=1,\
                     initiator-name={INITIATOR}"
                )
            }
        };
        line.split(' ').map(str::to_owned).collect()
    }

    /// Bytes per second, as the program printed them.
    fn rate(self, text: &str) -> Option<f64> {
        let per_second = match self.program {
            // The line is written over itself, each second and at the end.
            Program::IscsiPerf => number_after(text.rsplit_once("iops average ")?.1),
            Program::QemuImg => {
                let count = number_after(text.split_once("Sending ")?.1)?;
                let seconds = number_after(text.split_once("Run completed in ")?.1)?;
                (seconds > 0.0).then(|| count / seconds)
            }
        };
        per_second
            .filter(|rate| *rate > 0.0)
            .map(|rate| rate * self.bytes as f64)
    }
}

fn number_after(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// A target with one disk, at the first end of a veth.
struct Target<'a, 'b> {
    ends: &'a mut Ends<'b>,
    /// Where tgtadm reaches tgtd: not at that of the machine's own.
    socket: String,
    disk: PathBuf,
    server: Option<Server>,
}

impl<'a, 'b> Target<'a, 'b> {
    fn new(ends: &'a mut Ends<'b>) -> Result<Self, String> {
        let (disk, socket) = (
            ends.runner.path("iser.disk"),
            ends.runner.path("tgt").display().to_string(),
        );
        let file = File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
        file.map_err(|error| format!("{}: {error}", disk.display()))?;
        let mut target = Self {
            ends,
            socket,
            disk,
            server: None,
        };
        let rockery = target.ends.runner.rockery().display().to_string();
        let mut command = target.command(0);
        command.args([&*rockery, "run", "--", "tgtd", "-f", "--iser", POOL]);
        target.server = Some(target.ends.runner.start(&command)?);
        target.administer("target --op new --tid 1 -T", TARGET)?;
        let disk = target.disk.display().to_string();
        target.administer("logicalunit --op new --tid 1 --lun 1 -b", &disk)?;
        // Over iSER tgt accepts a login only if the initiator's name and its address are both in its lists.
        target.administer("target --op bind --tid 1 -I", "ALL")?;
        target.administer("target --op bind --tid 1 -Q", INITIATOR)?;
        Ok(target)
    }

    /// A program at an end, with the place of tgtd's socket.
    fn command(&self, end: usize) -> Command {
        let mut command = self
            .ends
            .end(end)
            .map_or_else(|| Command::new("false"), Held::enter);
        command
            .arg("env")
            .arg(format!("TGT_IPC_SOCKET={}", self.socket));
        command
    }

    /// Runs tgtadm. Its last argument is passed as it is, since it may contain blanks.
    fn administer(&mut self, words: &str, last: &str) -> Result<(), String> {
        let mut command = self.command(0);
        command
            .args(["tgtadm", "--lld", "iser", "--mode"])
            .args(words.split(' '))
            .arg(last);
        self.ends
            .runner
            .ask("crs504-iser-tgtadm", &command, START)?;
        Ok(())
    }

    /// Runs a job over a way.
    fn measure(
        &mut self,
        job: Job,
        end: usize,
        options: &[&str],
        name: &str,
    ) -> Result<f64, String> {
        let rockery = self.ends.runner.rockery().display().to_string();
        let mut command = self.command(end);
        command
            .args([&*rockery, "run"])
            .args(options)
            .arg("--")
            .args(job.words(self.ends.runner.is_quick()));
        let text = self.ends.runner.ask(name, &command, START)?;
        job.rate(&text)
            .ok_or_else(|| format!("{} printed no rate", job.program.name()))
    }
}

impl Drop for Target<'_, '_> {
    fn drop(&mut self) {
        // tgtd does not end by SIGTERM, so this takes until timeout(1) kills it.
        drop(self.server.take());
        // Files that are not there need not be removed.
        for file in [".0", ".0.lock"] {
            _ = fs::remove_file(format!("{}{file}", self.socket));
        }
        _ = fs::remove_file(&self.disk);
    }
}

/// Measures what can be expressed; the rest is among the document's missing parts.
pub(super) fn measure(runner: &mut Runner, document: &mut Document) -> Vec<Series> {
    for program in ["tgtd", "tgtadm"] {
        if let Err(reason) = installed(program) {
            document.miss("iSER", format!("{reason} (package tgt)"));
            return Vec::new();
        }
    }
    let jobs = expressible(document);
    let found = Ends::new(runner).and_then(|mut ends| all(&mut ends, &jobs, document));
    document.or_missing("iSER", found).unwrap_or_default()
}

/// The rows that can be measured, each with its name as a job; reasons for the others go to the document.
fn expressible(document: &mut Document) -> Vec<(String, Job)> {
    let mut jobs = Vec::new();
    let mut missing: Vec<(String, Vec<String>)> = Vec::new();
    for what in ["read", "write"] {
        for (name, how, many) in MATRIX {
            let job = Job::of(how, what, many)
                .map_err(str::to_owned)
                .and_then(|job| {
                    let packages = job.program.packages();
                    installed(job.program.name())
                        .map_err(|reason| format!("{reason} ({packages})"))?;
                    Ok(job)
                });
            match job {
                Ok(job) => jobs.push((format!("{how}{what}:{many}"), job)),
                Err(reason) => match missing.iter_mut().find(|known| known.0 == reason) {
                    Some(known) => known.1.push(format!("{what} {name}")),
                    None => missing.push((reason, vec![format!("{what} {name}")])),
                },
            }
        }
    }
    for (reason, rows) in missing {
        document.miss(&format!("iSER, {}", rows.join(", ")), reason);
    }
    jobs
}

fn all(
    ends: &mut Ends<'_>,
    jobs: &[(String, Job)],
    document: &mut Document,
) -> Result<Vec<Series>, String> {
    let mut series = Vec::new();
    let mut target = Target::new(ends)?;
    for (way, end, options) in WAYS {
        let mut rates = Vec::new();
        for (name, job) in jobs {
            let output = format!("crs504-iser-{end}-{}", name.replace(':', "-"));
            let rate = target.measure(*job, end, options, &output);
            rates.extend(
                document
                    .or_missing(&format!("{way}, {name}"), rate)
                    .map(|rate| (name.clone(), rate)),
            );
        }
        series.push(Series { name: way, rates });
    }
    let (mut devices, rockery) = (target.command(0), target.ends.runner.rockery().to_owned());
    devices.arg(rockery).args(["devices", "--json"]);
    let devices = target.ends.runner.run("crs504-iser-devices", &devices);
    document.or_missing("iSER, counters of the target's device", devices);
    document.remarks.push(
        "iSER: the document names it as one of its protocols and has no figures of it: its own are those of \
         SMB Direct"
            .to_owned(),
    );
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_program_or_a_reason() {
        let job = Job::of("rand", "read", "4k:32").unwrap();
        assert_eq!(
            job,
            Job {
                program: Program::IscsiPerf,
                bytes: 4096,
                depth: 32,
                is_random: true
            }
        );
        assert!(
            job.words(true)
                .join(" ")
                .contains("-t 1 -r -m 32 -b 8 iser://198.18.0.1:3260/")
        );
        let job = Job::of("", "write", "128k:32").unwrap();
        assert_eq!(job.program, Program::QemuImg);
        assert!(
            job.words(true)
                .join(" ")
                .starts_with("qemu-img bench -w -t none -c 512 -d 32 -s 131072 ")
        );
        for (how, what, many, reason) in [
            ("", "read", "1m:8t1", "256 KiB"),
            ("rand", "write", "4k:1", "only reads"),
            ("rand", "read", "4k:32t16", "one thread"),
        ] {
            assert!(
                Job::of(how, what, many).is_err_and(|it| it.contains(reason)),
                "{many}"
            );
        }
    }

    #[test]
    fn rates_are_those_that_programs_print_and_nothing_moved_is_no_rate() {
        let job = Job::of("rand", "read", "4k:32").unwrap();
        let text = "\r00:00:01 - lba 22528, iops current 7 (1 MB/s), iops average 8 (1 MB/s), in_flight 8\r\
                    iops average 29801 (116 MB/s)      \n\nfinished.\n";
        assert_eq!(job.rate(text), Some(29801.0 * 4096.0));
        assert_eq!(job.rate("iops average 0 (0 MB/s)\n"), None);
        assert_eq!(job.rate("failed to send read16 command\n"), None);
        let job = Job::of("", "write", "128k:32").unwrap();
        let text = "Sending 1000 write requests, 131072 bytes each, 32 in parallel (starting at offset 0)\n\
                    Run completed in 0.500 seconds.\n";
        assert_eq!(job.rate(text), Some(2000.0 * 131_072.0));
    }
}
