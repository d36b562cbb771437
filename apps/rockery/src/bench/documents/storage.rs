//! NVMe over Fabrics: RDMA against TCP.

use serde_json::Value;

use super::report::{Document, Row, Table};
use super::runner::{Runner, number};
use crate::bench::matrix::{JOBS, sequential};
use crate::bench::published::{Published, RDMA, TCP};

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
    let both = |of: fn(&Published) -> f64| {
        [RDMA, TCP]
            .iter()
            .map(|it| Some(of(it)))
            .collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    let mut add =
        |what: &str, unit, of: &dyn Fn(&Value) -> Option<f64>, published: Vec<Option<f64>>| {
            let here = series.iter().map(of).collect();
            rows.push(Row {
                what: what.to_owned(),
                unit,
                here,
                published,
            });
        };
    let figure = |series: &Value, name: &str, path: &str| number(job(series, name)?, path);
    let alone = "randread:4k:1";
    for (what, path, index) in [
        ("mean", "/mean-us", 0),
        ("p99", "/p99-us", 1),
        ("longest", "/max-us", 2),
    ] {
        let published = [RDMA, TCP]
            .iter()
            .map(|it| it.latency_us.get(index).copied())
            .collect();
        let what = format!("4 KiB random read, QD 1, {what}");
        add(
            &what,
            "us",
            &|series| figure(series, alone, path),
            published,
        );
    }
    let mean =
        |series: &Value, depth: u16| figure(series, &format!("randread:4k:{depth}"), "/mean-us");
    let growth = |series: &Value| Some(mean(series, 16)? - mean(series, 1)?);
    add(
        "the same, QD 16: mean added",
        "us",
        &growth,
        both(|it| it.growth_us),
    );
    for (index, what) in ["read", "write"].into_iter().enumerate() {
        let peak = |series: &Value| {
            let rates = JOBS.iter().filter_map(|count| {
                Some(figure(series, &sequential(what, *count), "/bytes-per-second")? / 1e9)
            });
            rates.reduce(f64::max)
        };
        let published = [RDMA, TCP]
            .iter()
            .map(|it| it.bandwidth.get(index).copied())
            .collect();
        add(
            &format!("1 MiB sequential {what}, most of 1 to 64 jobs"),
            "GB/s",
            &peak,
            published,
        );
    }
    let deep = "randread:4k:128";
    let rate = |series: &Value| figure(series, deep, "/per-second");
    add(
        "4 KiB random read, QD 128",
        "per second",
        &rate,
        both(|it| it.rate[1]),
    );
    let errors = |series: &Value| {
        let [good, bad] = [
            figure(series, deep, "/commands")?,
            figure(series, deep, "/errors")?,
        ];
        Some(bad / (good + bad).max(1.0) * 100.0)
    };
    add(
        "the same: failed commands",
        "%",
        &errors,
        ERRORS.map(Some).to_vec(),
    );
    let cpu = |series: &Value| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        Some(figure(series, deep, "/host-processor")? / cores * 100.0)
    };
    let what = "the same: host's processors (published: RDMA below, TCP above)";
    add(what, "%", &cpu, CPU.map(Some).to_vec());
    rows
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
