//! fio on a local file, past the page cache: the rates of the storage without a network.

use std::process::Command;

use ::nvme::host::job::Spec;
use serde_json::Value;

use super::perftest::installed;
use super::report::Document;
use super::runner::{Runner, number};
use crate::disk_file::DiskFile;

/// The column of these rates.
pub(super) const COLUMN: &str = "fio, local file";
/// Bytes of the file, and of a check.
const SIZE: u64 = 256 << 20;
const QUICK_SIZE: u64 = 16 << 20;

/// Rates in bytes per second, by job.
#[derive(Debug, Default)]
pub(super) struct Local(Vec<(String, f64)>);

impl Local {
    /// The rate of a job.
    pub(super) fn rate(&self, job: &str) -> Option<f64> {
        let found = self.0.iter().find(|(name, _)| name == job);
        found.map(|(_, rate)| *rate)
    }
}

/// Measures jobs with fio; what could not be measured is missing in the document.
pub(super) fn measure(
    runner: &mut Runner,
    of: &str,
    jobs: &[String],
    document: &mut Document,
) -> Local {
    let measured = attempt(runner, of, jobs);
    document.or_missing(COLUMN, measured).unwrap_or_default()
}

fn attempt(runner: &mut Runner, of: &str, jobs: &[String]) -> Result<Local, String> {
    installed("fio")?;
    let bytes = if runner.is_quick() { QUICK_SIZE } else { SIZE };
    let file = DiskFile::new(&std::env::temp_dir(), bytes).map_err(|error| error.to_string())?;
    // What was never written is read without a disk.
    let fill: Spec = "write:1m:8".parse()?;
    let mut filling = command(&fill, &file, bytes);
    filling.arg("--end_fsync=1");
    runner.run(&format!("{of}-fio-fill"), &filling)?;
    let mut all = Vec::new();
    for job in jobs {
        let mut timed = command(&job.parse()?, &file, bytes);
        let times = match runner.is_quick() {
            true => ["--runtime=200ms", "--ramp_time=0"],
            false => ["--runtime=2", "--ramp_time=1"],
        };
        timed.arg("--time_based").args(times);
        let name = format!("{of}-fio-{}", job.replace(':', "-"));
        let text = runner.run(&name, &timed)?;
        all.push((job.clone(), rate(&text).ok_or("fio printed no rate")?));
    }
    Ok(Local(all))
}

/// fio with a job that is described as those of rockery are.
fn command(spec: &Spec, file: &DiskFile, bytes: u64) -> Command {
    let how = if spec.random { "rand" } else { "" };
    let what = if spec.write { "write" } else { "read" };
    let mut command = Command::new("fio");
    command
        .args(["--name=rockery", "--ioengine=libaio", "--direct=1"])
        .args(["--thread", "--group_reporting", "--output-format=json"])
        .arg(format!("--filename={}", file.path().display()))
        .arg(format!("--size={bytes}"))
        .arg(format!("--rw={how}{what}"))
        .arg(format!("--bs={}", spec.bytes))
        .arg(format!("--iodepth={}", spec.depth))
        .arg(format!("--numjobs={}", spec.queues));
    command
}

/// The rate in a report of fio, in bytes per second: of the direction that moved anything.
fn rate(text: &str) -> Option<f64> {
    // Warnings come before the report.
    let report: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    let of = |what: &str| number(&report, &format!("/jobs/0/{what}/bw_bytes"));
    [of("read"), of("write")]
        .into_iter()
        .flatten()
        .find(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_direction_that_moved_anything() {
        let text = r#"fio: a warning
            {"jobs": [{"read": {"bw_bytes": 0}, "write": {"bw_bytes": 735800000}}]}"#;
        assert_eq!(rate(text), Some(735_800_000.0));
        assert_eq!(rate("fio: no such file"), None);
    }

    #[test]
    fn jobs_are_those_of_the_matrix() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = DiskFile::new(folder.path(), 4096).expect("a file");
        let words = |job: &str| {
            let command = command(&job.parse().expect("a job"), &file, 4096);
            format!("{command:?}")
        };
        let text = words("randwrite:4k:32t16");
        for wanted in [
            "--rw=randwrite",
            "--bs=4096",
            "--iodepth=32",
            "--numjobs=16",
            "--direct=1",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(words("read:1m:8").contains("--rw=read\""));
    }
}
