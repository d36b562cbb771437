//! NVMe over Fabrics: RDMA against TCP.

use serde_json::Value;

use super::report::{Document, Row, Table};
use super::runner::{Runner, number};
use crate::matrix::{JOBS, sequential};
use crate::published::{Published, RDMA, TCP};

/// Short measurements: five documents take less than 15 minutes with them.
pub(super) const TIMES: [&str; 6] = ["--seconds", "0.5", "--warm-up", "0.1", "--repeats", "3"];

/// Limits that the document names, in percent of the host's processors: RDMA below, TCP above.
const CPU: [f64; 2] = [15.0, 90.0];
/// Failed commands at QD 128 in percent.
const ERRORS: [f64; 2] = [0.0, 2.0];

/// Runs `rockery bench nvme`, and returns its series.
pub(super) fn series(
    runner: &mut Runner,
    name: &str,
    words: &[&str],
) -> Result<(Vec<Value>, Vec<String>), String> {
    let mut all = vec!["bench", "nvme"];
    all.extend(words);
    match runner.is_quick() {
        true => all.push("--quick"),
        false => all.extend(TIMES),
    }
    let report = runner.json(name, &all)?;
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let remarks = list("remarks")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    Ok((list("series"), remarks))
}

/// The job of a series.
pub(super) fn job<'a>(series: &'a Value, job: &str) -> Option<&'a Value> {
    series["jobs"]
        .as_array()?
        .iter()
        .find(|it| it["job"] == job)
}

/// Names of the series.
pub(super) fn columns(series: &[Value]) -> Vec<String> {
    series
        .iter()
        .map(|it| it["transport"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Measures all but CrystalDiskMark's matrix, which is the CRS504's.
pub(super) fn measure(runner: &mut Runner) -> Document {
    let mut document = Document::new(
        "\"RDMA網絡對服務器存儲性能的影響：NVMe-oF與TCP/IP的基準測試對比\" (RDMA's influence on server storage: \
         NVMe-oF against TCP/IP), a cloud provider's developer forum",
        "3 September 2025",
        "Two hosts of 48 cores, RoCEv2 at 100 Gb/s and TCP at 40 Gb/s, SPDK's target, two drives of 7 GB/s.",
    );
    let words = [
        "--transport",
        "rdma,rdma-udp,tcp",
        "--part",
        "latency,throughput,stability",
    ];
    let found = series(runner, "nvme-nvme", &words);
    let Some((series, remarks)) = document.or_missing("NVMe over RDMA and TCP", found) else {
        return document;
    };
    document.remarks = remarks;
    document.add(Table {
        title: "NVMe over Fabrics".to_owned(),
        here: columns(&series),
        published: vec!["RDMA", "TCP"],
        rows: rows(&series),
        differs: "The published disks are drives behind two networks and two machines; here the disk is \
                  memory, and host and target share the processors of one machine, which also do \
                  the adapter's work: \
                  ratios between columns can be compared, and processor use cannot.",
    });
    document
}

fn rows(series: &[Value]) -> Vec<Row> {
    let mut rows = StorageRows {
        series,
        rows: Vec::new(),
    };
    rows.add_latency();
    rows.add_bandwidth();
    rows.add_deep_queue();
    rows.rows
}

/// The job with 128 outstanding reads.
const DEEP: &str = "randread:4k:128";

/// The rows of the table, each with a figure of every series.
struct StorageRows<'a> {
    series: &'a [Value],
    rows: Vec<Row>,
}

impl StorageRows<'_> {
    fn add(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        of: impl Fn(&Value) -> Option<f64>,
        published: Vec<Option<f64>>,
    ) {
        self.rows.push(Row {
            what: what.into(),
            unit,
            here: self.series.iter().map(of).collect(),
            published,
        });
    }

    /// Latency of single reads, and what a queue adds to it.
    fn add_latency(&mut self) {
        for (what, path, index) in [
            ("mean", "/mean-us", 0),
            ("p99", "/p99-us", 1),
            ("longest", "/max-us", 2),
        ] {
            let published = both(|it| it.latency_us.get(index).copied());
            let what = format!("4 KiB random read, QD 1, {what}");
            let latency = |series: &Value| figure(series, "randread:4k:1", path);
            self.add(what, "us", latency, published);
        }
        let mean = |series: &Value, depth: u16| {
            figure(series, &format!("randread:4k:{depth}"), "/mean-us")
        };
        let growth = |series: &Value| Some(mean(series, 16)? - mean(series, 1)?);
        let published = both(|it| Some(it.growth_us));
        self.add("the same, QD 16: mean added", "us", growth, published);
    }

    /// The best rates of long sequential commands.
    fn add_bandwidth(&mut self) {
        for (index, what) in ["read", "write"].into_iter().enumerate() {
            let peak = |series: &Value| {
                let rates = JOBS.iter().filter_map(|count| {
                    Some(figure(series, &sequential(what, *count), "/bytes-per-second")? / 1e9)
                });
                rates.reduce(f64::max)
            };
            let published = both(|it| it.bandwidth.get(index).copied());
            let what = format!("1 MiB sequential {what}, most of 1 to 64 jobs");
            self.add(what, "GB/s", peak, published);
        }
    }

    /// A deep queue of random reads: rate, failures, and the host's processors.
    fn add_deep_queue(&mut self) {
        let rate = |series: &Value| figure(series, DEEP, "/per-second");
        let published = both(|it| Some(it.rate[1]));
        self.add("4 KiB random read, QD 128", "per second", rate, published);
        let errors = |series: &Value| {
            let [good, bad] = [
                figure(series, DEEP, "/commands")?,
                figure(series, DEEP, "/errors")?,
            ];
            Some(bad / (good + bad).max(1.0) * 100.0)
        };
        let published = ERRORS.map(Some).to_vec();
        self.add("the same: failed commands", "%", errors, published);
        for (what, path) in [
            ("host's context switches", "/host-switches"),
            ("target's context switches", "/target-switches"),
            ("the machine's interrupts", "/interrupts"),
        ] {
            let each = |series: &Value| {
                Some(figure(series, DEEP, path)? / figure(series, DEEP, "/per-second")?.max(1.0))
            };
            let what = format!("the same: {what}");
            self.add(what, "per command", each, vec![None; 2]);
        }
        let cpu = |series: &Value| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            Some(figure(series, DEEP, "/host-processor")? / cores * 100.0)
        };
        let what = "the same: host's processors (published: RDMA below, TCP above)";
        self.add(what, "%", cpu, CPU.map(Some).to_vec());
    }
}

/// A published figure of RDMA and of TCP.
fn both(of: impl Fn(&Published) -> Option<f64>) -> Vec<Option<f64>> {
    [RDMA, TCP].iter().map(of).collect()
}

/// A figure of a series' job.
fn figure(series: &Value, name: &str, path: &str) -> Option<f64> {
    number(job(series, name)?, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_made_of_jobs_and_a_missing_job_is_no_figure() {
        let job = |job: &str, mean: f64| {
            json!({"job": job, "mean-us": mean, "p99-us": 9.0, "max-us": 10.0, "per-second": 5.0,
                   "commands": 3,
                   "errors": 1, "host-processor": 1.0, "bytes-per-second": 7e9})
        };
        let jobs = [
            job("randread:4k:1", 2.0),
            job("randread:4k:16", 3.5),
            job("read:1m:1t8", 1.0),
        ];
        let rows = rows(&[json!({"transport": "TCP", "jobs": jobs})]);
        let of = |what: &str| {
            rows.iter()
                .find(|row| row.what.contains(what))
                .map(|row| row.here[0])
        };
        assert_eq!(of("mean added"), Some(Some(1.5)));
        assert_eq!(
            (of("sequential read"), of("sequential write")),
            (Some(Some(7.0)), Some(None))
        );
        assert_eq!(of("failed"), Some(None));
        assert!(
            rows.iter()
                .all(|row| row.here.len() == 1 && row.published.len() == 2)
        );
    }
}
