//! `rockery bench smb`, for the documents about files.

use serde_json::Value;

use super::report::Document;
use super::runner::Runner;

/// Transports that need no namespaces, and those that do: a user without them gets the first.
const GROUPS: [&str; 2] = ["local,tcp,direct", "tcp-veth,direct-udp"];

/// Series of `rockery bench smb`, in the order of the transports.
pub(super) struct Files(Vec<Value>);

/// Measures a part over all transports; what could not be measured is missing in the document.
pub(super) fn measure(runner: &mut Runner, of: &str, part: &str, document: &mut Document) -> Files {
    let mut series = Vec::new();
    for transports in GROUPS {
        let mut words = vec!["bench", "smb", "--part", part, "--transport", transports];
        match runner.is_quick() {
            true => words.extend(["--quick", "--size", "16MiB"]),
            false => words.extend(super::storage::TIMES),
        }
        let name = format!("{of}-smb-{transports}");
        let report = runner.json(&name, &words);
        let Some(report) = document.or_missing(&format!("files over {transports}"), report) else {
            continue;
        };
        series.extend(report["series"].as_array().into_iter().flatten().cloned());
        let remarks = report["remarks"].as_array().into_iter().flatten();
        document
            .remarks
            .extend(remarks.filter_map(Value::as_str).map(str::to_owned));
    }
    Files(series)
}

impl Files {
    /// Names of the transports.
    pub(super) fn columns(&self) -> Vec<String> {
        let name = |series: &Value| series["transport"].as_str().unwrap_or_default().to_owned();
        self.0.iter().map(name).collect()
    }

    /// A figure of a job, for each transport.
    pub(super) fn each(&self, job: &str, of: impl Fn(&Value) -> Option<f64>) -> Vec<Option<f64>> {
        self.0
            .iter()
            .map(|series| super::storage::job(series, job).and_then(&of))
            .collect()
    }
}
