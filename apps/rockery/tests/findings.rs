//! Formats of the findings of `rockery doctor`: SARIF, JUnit's XML and workflow commands of GitHub.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A name with what XML, URIs, workflow commands and terminals obey.
const HOSTILE: &str = "a,b:c%0A <&\"'>]]>\u{202e}\u{7}\n::set-env name=x::y.txt";

/// Files in a folder, and what doctor says of them.
struct Inputs(TempDir);

impl Inputs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A healthy host.
    fn host(self, name: &str) -> Self {
        self.text(name, &healthy())
    }

    /// A host whose card has a MaxReadReq of 128 bytes, which is too small.
    fn slow_host(self, name: &str) -> Self {
        self.text(
            name,
            &healthy().replace("MaxReadReq 4096", "MaxReadReq 128"),
        )
    }

    fn text(self, name: &str, text: &str) -> Self {
        fs::write(self.0.path().join(name), text).unwrap();
        self
    }

    fn doctor(&self, format: &str, files: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_rockery"))
            .current_dir(self.0.path())
            .args(["doctor", "--format", format])
            .args(files)
            .output()
            .unwrap()
    }

    fn sarif(&self, files: &[&str]) -> (Value, Option<i32>) {
        let output = self.doctor("sarif", files);
        let log = serde_json::from_slice(&output.stdout).unwrap();
        (log, output.status.code())
    }

    fn text_of(&self, format: &str, files: &[&str]) -> String {
        String::from_utf8(self.doctor(format, files).stdout).unwrap()
    }
}

/// A file of the repository.
fn repository(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(folder.join(path)).unwrap()
}

fn healthy() -> String {
    repository("network/doctor/tests/hosts/mlx5.txt")
}

/// The number of the line that has this text.
fn line_of(text: &str, part: &str) -> usize {
    text.lines().position(|line| line.contains(part)).unwrap() + 1
}

#[test]
fn sarif_has_the_line_of_each_finding_and_the_rule_that_it_names() {
    let inputs = Inputs::new().slow_host("slow.txt");
    let (log, status) = inputs.sarif(&["--host", "./slow.txt"]);
    let run = &log["runs"][0];
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(
        (status, &run["invocations"][0]["exitCode"]),
        (Some(1), &1.into())
    );
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let first = &run["results"][0];
    assert_eq!(
        (&first["ruleId"], &first["level"]),
        (&"pcie-read-request".into(), &"warning".into())
    );
    let place = &first["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "slow.txt");
    let line = line_of(&healthy(), "MaxReadReq 4096");
    assert_eq!(place["region"]["startLine"], line);
    let text = first["message"]["text"].as_str().unwrap();
    assert!(
        text.contains("Consequence: ") && text.contains("Fix: "),
        "{text}"
    );
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    for result in run["results"].as_array().unwrap() {
        assert!(
            rules.iter().any(|rule| rule["id"] == result["ruleId"]),
            "{result:#}"
        );
    }
}

#[test]
fn sarif_names_lines_that_were_not_understood_and_files_that_were_not_read() {
    let script = repository("examples/crs504/roce.rsc");
    let strange = "/interface ethernet switch qos priority-flow-control set roce-pfc maybe=1";
    let number = script.lines().count() + 1;
    let inputs = Inputs::new()
        .text("leaf.rsc", &format!("{script}{strange}\n"))
        .text("none.txt", "no snapshot\n");
    let (log, status) = inputs.sarif(&["--switch", "leaf.rsc", "--host", "none.txt"]);
    let run = &log["runs"][0];
    assert_eq!(
        (status, &run["invocations"][0]["executionSuccessful"]),
        (Some(2), &false.into())
    );
    let notes = run["invocations"][0]["toolExecutionNotifications"].to_string();
    assert!(
        notes.contains("cannot read line 1 of none.txt") && notes.contains("not seen"),
        "{notes}"
    );
    let results = run["results"].as_array().unwrap();
    let left = results
        .iter()
        .find(|result| result["ruleId"] == "not-understood")
        .unwrap();
    let place = &left["locations"][0]["physicalLocation"];
    assert_eq!(
        (&left["level"], &place["region"]["startLine"]),
        (&"warning".into(), &number.into())
    );
    // The same line is an error of JUnit and a warning of GitHub.
    let shown = inputs.text_of("junit", &["--switch", "leaf.rsc"]);
    let case = format!("name=\"line {number} of leaf.rsc\"><error type=\"not-understood\"");
    assert!(shown.contains(&case), "{shown}");
    let shown = inputs.text_of("github", &["--switch", "leaf.rsc"]);
    let command = format!("::warning file=leaf.rsc,line={number},title=not-understood::");
    assert!(shown.contains(&command), "{shown}");
}

#[test]
fn names_of_others_are_text_in_every_format() {
    let inputs = Inputs::new().slow_host(HOSTILE);
    let files = ["--host", HOSTILE];
    let (log, _) = inputs.sarif(&files);
    let first = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    let uri = first["artifactLocation"]["uri"].as_str().unwrap();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._~/%".contains(letter);
    assert!(uri.chars().all(allowed), "{uri}");
    assert!(
        uri.starts_with("a%2Cb%3Ac%250A%20%3C%26%22%27%3E%5D%5D%3E%E2%80%AE%07%0A%3A%3A"),
        "{uri}"
    );

    let shown = inputs.text_of("github", &files);
    for line in shown.lines() {
        let level = ["::error ", "::warning ", "::notice "];
        assert!(
            level.iter().any(|level| line.starts_with(level)),
            "{line:?}"
        );
    }
    let name = "::warning file=a%2Cb%3Ac%250A <&\"'>]]>\\u{202e}\\u{7}%0A%3A%3Aset-env \
                name=x%3A%3Ay.txt,line=";
    assert!(shown.contains(name), "{shown}");

    let shown = inputs.text_of("junit", &files);
    let name = "name=\"a,b:c%0A &lt;&amp;&quot;&apos;&gt;]]&gt;\\u{202e}\\u{7}&#10;::set-env name=x::y.txt\"";
    assert!(
        shown.contains(&format!("<testsuite {name} tests=")),
        "{shown}"
    );
}

#[test]
fn junit_has_a_case_for_each_adapter_and_skips_what_is_unknown() {
    let inputs = Inputs::new().host("fast.txt").slow_host("slow.txt");
    let output = inputs.doctor("junit", &["--host", "fast.txt", "--host", "slow.txt"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    let suite = |name: &str| {
        let from = shown
            .split(&format!("<testsuite name=\"{name}\""))
            .nth(1)
            .unwrap();
        from.split("</testsuite>").next().unwrap().to_owned()
    };
    let (fast, slow) = (suite("fast.txt"), suite("slow.txt"));
    assert!(
        fast.contains(" failures=\"0\"") && slow.contains(" failures=\"1\""),
        "{shown}"
    );
    let case = "<testcase classname=\"slow.txt\" name=\"mlx5_0: ";
    let failed = slow.lines().find(|line| line.contains(case)).unwrap();
    assert!(
        failed.contains("><failure type=\"pcie-read-request\" message=\""),
        "{failed}"
    );
    assert!(
        fast.contains("name=\"mlx5_0: ") && !fast.contains("<failure"),
        "{fast}"
    );
    // Without the output of the firewall nothing is known of it.
    let unknown = "name=\"firewall\"><skipped message=\"not seen, so unknown\"/>";
    let page = inputs.text_of("text", &["--host", "fast.txt"]);
    assert_eq!(
        fast.contains(unknown),
        page.contains("firewall"),
        "{page}{fast}"
    );
}

#[test]
fn the_option_json_is_the_format_json() {
    let inputs = Inputs::new().slow_host("slow.txt");
    let shown = inputs.text_of("json", &["--host", "slow.txt"]);
    let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
        .current_dir(inputs.0.path())
        .args(["doctor", "--json", "--host", "slow.txt"])
        .output()
        .unwrap();
    assert_eq!(shown, String::from_utf8(output.stdout).unwrap());
    let both = inputs.doctor("sarif", &["--json", "--host", "slow.txt"]);
    assert_eq!(both.status.code(), Some(2));
}

/// A project with configurations of switches and snapshots of hosts, one of each with a fault.
fn project() -> Inputs {
    let inputs = Inputs::new();
    for folder in ["switches", "hosts"] {
        fs::create_dir(inputs.0.path().join(folder)).unwrap();
    }
    let script = repository("examples/crs504/roce.rsc");
    inputs
        .text("switches/a.rsc", &script)
        .text("switches/b.rsc", &script)
        .host("hosts/fast.txt")
        .slow_host("hosts/slow.txt")
}

/// Runs a command of a shell with rockery on PATH; its status and output.
fn shell(inputs: &Inputs, command: &str) -> (Option<i32>, String) {
    let own = Path::new(env!("CARGO_BIN_EXE_rockery"));
    let path = format!("{}:/usr/bin:/bin", own.parent().unwrap().display());
    let output = Command::new("sh")
        .current_dir(inputs.0.path())
        .env("PATH", path)
        .args(["-c", command])
        .output()
        .unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).unwrap())
}

#[test]
fn hooks_of_pre_commit_name_the_faults_of_the_files_that_they_get() {
    let inputs = project();
    let hooks = repository(".pre-commit-hooks.yaml");
    let value = |key: &str| -> Vec<String> {
        let lines = hooks
            .lines()
            .filter_map(|line| line.trim().strip_prefix(key));
        lines
            .map(|value| value.trim_matches([' ', '[', ']']).to_owned())
            .collect()
    };
    let (entries, args) = (value("entry:"), value("args:"));
    let files = [
        "switches/a.rsc switches/b.rsc",
        "hosts/fast.txt hosts/slow.txt",
    ];
    assert_eq!((entries.len(), args.len()), (2, 2), "{hooks}");
    for ((entry, args), files) in entries.iter().zip(&args).zip(files) {
        // The program appends the files that have changed.
        let (status, shown) = shell(&inputs, &format!("{entry} {args} {files}"));
        assert_eq!(status, Some(1), "{shown}");
        let last = files.split(' ').next_back().unwrap();
        assert!(shown.contains(&format!("seen         {last}:")), "{shown}");
    }
}

#[test]
fn the_example_job_writes_its_files_and_ends_with_the_findings() {
    let inputs = project();
    let job = repository("examples/ci/doctor.yml");
    let commands = job
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    let ended: Vec<_> = commands.map(|command| shell(&inputs, command)).collect();
    let statuses: Vec<_> = ended.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [Some(0), Some(0), Some(1)], "{ended:?}");
    let written = |name: &str| fs::read_to_string(inputs.0.path().join(name)).unwrap();
    let log: Value = serde_json::from_str(&written("doctor.sarif")).unwrap();
    let count = log["runs"][0]["results"].as_array().unwrap().len();
    assert!(count >= 3, "{log:#}");
    assert!(written("doctor.xml").contains("<testsuite name=\"switches/b.rsc\""));
    let shown = &ended[2].1;
    assert!(shown.contains("file=switches/b.rsc,line="), "{shown}");
}
