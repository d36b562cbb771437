//! This repository's own workflows: each command of them, and a release with programs in place of those that
//! would publish it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use programs::{Packages, workspace, yaml};
use serde_json::Value;

use crate::runner::Runner;

fn workflow(name: &str) -> Value {
    yaml::document(&workspace().join(".github/workflows").join(name))
}

fn jobs(workflow: &Value) -> Vec<(&String, &Value)> {
    workflow["jobs"].as_object().expect("jobs").iter().collect()
}

fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

/// A command that ran, or would run, where it is tested.
fn expect_success(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Commands that take minutes are what other tests and `.ci/run` run: here make lists what it would run for
/// them, without running it. The others run.
#[test]
fn each_command_of_our_own_workflows_is_known_and_works() {
    let workspace = workspace();
    let workflows = [workflow("ci.yml"), workflow("site.yml")];
    let makefile = fs::read_to_string(workspace.join("Makefile")).expect("our own Makefile");
    let jobs = workflows.iter().flat_map(jobs);
    let commands = jobs.flat_map(|(_, job)| steps(job));
    let commands: Vec<&str> = commands.filter_map(|it| it["run"].as_str()).collect();
    for step in &commands {
        expect_success(Command::new("bash").args(["-n", "-c", step]));
        match *step {
            "scripts/packages.sh build" => {
                expect_success(
                    Command::new("bash")
                        .args(["-c", step])
                        .current_dir(&workspace),
                );
            }
            "make check"
            | "make quick"
            | "make test"
            | "make dist ARCH=\"x86_64 aarch64\""
            | "make site" => {
                let words = step.trim_start_matches("make ");
                let target = words.split(' ').next().unwrap_or_default();
                assert!(
                    makefile.contains(&format!("\n{target}:")),
                    "{step} has no target"
                );
                let listed = Command::new("make")
                    .args(["--dry-run", target])
                    .current_dir(&workspace)
                    .output();
                assert!(listed.is_ok_and(|output| output.status.success()), "{step}");
            }
            _ if step.starts_with("apt-get update && apt-get install ") => {
                let install = step.replace(
                    "apt-get update && apt-get install",
                    "apt-get install --simulate",
                );
                expect_success(Command::new("bash").args(["-c", &install]));
            }
            _ => panic!("no test runs this step of the workflow: {step}"),
        }
    }
    assert_eq!(commands.len(), 7, "{commands:?}");
}

/// The site is an artifact, and is published where the owner has said so, by a job that may do nothing else.
#[test]
fn the_site_is_published_where_the_owner_wants_it() {
    let site = workflow("site.yml");
    let publish = &site["jobs"]["publish"];
    assert_eq!(publish["if"], "vars.PUBLISH_SITE == 'true'");
    assert_eq!(publish["needs"], "build");
    let rights = serde_json::json!({ "contents": "read", "pages": "write", "id-token": "write" });
    assert_eq!(publish["permissions"], rights);
    let actions: Vec<&str> = steps(publish)
        .filter_map(|it| it["uses"].as_str())
        .collect();
    assert_eq!(actions, ["actions/deploy-pages@v4"]);
    let build = &site["jobs"]["build"];
    assert!(build["permissions"].is_null() && !build.to_string().contains("secrets."));
    let upload = steps(build).find(|it| it["uses"] == "actions/upload-pages-artifact@v3");
    assert_eq!(upload.expect("an artifact")["with"]["path"], "dist/site");
}

/// What a workflow refers to is there: jobs, steps, artifacts, and versions of actions.
#[test]
fn workflows_refer_to_what_there_is() {
    let mut uploaded = BTreeSet::new();
    let mut downloaded = BTreeSet::new();
    for name in ["ci.yml", "release.yml", "site.yml"] {
        let workflow = workflow(name);
        assert_eq!(workflow["permissions"]["contents"], "read", "{name}");
        for (id, job) in jobs(&workflow) {
            if let Some(needed) = job["needs"].as_str() {
                assert!(
                    workflow["jobs"][needed].is_object(),
                    "{name}: {id} needs {needed}"
                );
            }
            if let Some(file) = job["uses"].as_str() {
                assert!(workspace().join(file).is_file(), "{name}: {file}");
            }
            let ids: Vec<&str> = steps(job).filter_map(|it| it["id"].as_str()).collect();
            for place in job.to_string().split("steps.").skip(1) {
                let step = place.split('.').next().unwrap_or_default();
                assert!(ids.contains(&step), "{name}: {id} has no step {step}");
            }
            for step in steps(job) {
                let Some(action) = step["uses"].as_str() else {
                    continue;
                };
                assert!(
                    action.starts_with("actions/") && action.contains("@v"),
                    "{action}"
                );
                let artifact = step["with"]["name"].as_str().unwrap_or_default().to_owned();
                if action.contains("/upload-artifact@") {
                    uploaded.insert(artifact);
                } else if action.contains("/download-artifact@") {
                    downloaded.insert(artifact);
                }
            }
        }
    }
    assert!(
        downloaded.is_subset(&uploaded),
        "{downloaded:?} of {uploaded:?}"
    );
    let release = workflow("release.yml");
    assert_eq!(release["on"]["push"]["tags"], serde_json::json!(["v*"]));
    // Tokens are where publishing is, and that is for tags only.
    let all = steps(&release["jobs"]["release"]);
    let with_secrets: Vec<&Value> = all
        .filter(|it| it.to_string().contains("secrets."))
        .collect();
    let [publish] = &*with_secrets else {
        panic!("one step has secrets: {with_secrets:?}")
    };
    assert_eq!(publish["if"], "github.ref_type == 'tag'");
    assert_eq!(publish["run"], "scripts/release.sh publish dist");
}

/// A release: a runner with the packages in `dist`, and programs in place of docker, gh and pipx that print
/// their arguments.
struct Release {
    runner: Runner,
}

const FAKE: &str = r#"#!/bin/sh
echo "called: $(basename "$0") $*"
case "$(basename "$0") $1" in
  'docker run') case $* in *--version) echo "rockery VERSION" ;; *) cat "$HOME/image-says" ;; esac ;;
  'docker save') echo image ;;
  'docker login') sed 's/^/password: /' ;;
  gh*) echo "token: $GH_TOKEN" ;;
  pipx*) echo "token: $TWINE_USERNAME:$TWINE_PASSWORD" ;;
esac
"#;

impl Release {
    fn new() -> Self {
        let runner = Runner::new();
        let fake = FAKE.replace("VERSION", env!("CARGO_PKG_VERSION"));
        fs::write(runner.home().join("fake"), fake).expect("our own file");
        fs::write(runner.home().join("image-says"), "state: PORT_ACTIVE\n").expect("our own file");
        runner
            .step("mkdir bin; for name in docker gh pipx; do install -m 755 fake bin/$name; done");
        runner.step("echo \"$PWD/bin\" >>$GITHUB_PATH");
        // As `make dist` for both processors has them in one folder.
        let (packages, for_arm) = (Packages::made(), Packages::made_for_arm());
        let (packages, for_arm) = (packages.folder().display(), for_arm.folder().display());
        runner.step(&format!(
            "mkdir dist && cp {for_arm}/* dist && cp {packages}/* dist && \
             sort -u -k 2 {packages}/SHA256SUMS {for_arm}/SHA256SUMS >dist/SHA256SUMS"
        ));
        Self { runner }
    }

    fn script(&self, command: &str) -> String {
        format!(
            "{}/scripts/release.sh {command} dist",
            workspace().display()
        )
    }

    /// Runs the script with variables; whether it succeeded, and what it printed.
    fn tried(&self, command: &str, variables: &[(&str, &str)]) -> (bool, String) {
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        let mut all = vec![
            ("GITHUB_REF_TYPE", "tag"),
            ("GITHUB_REF_NAME", &*version),
            ("GITHUB_REPOSITORY", "OWNER/rockery"),
            ("GITHUB_ACTOR", "somebody"),
        ];
        all.extend(variables);
        let all: Vec<(String, String)> = all
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let ran = self.runner.tried(&self.script(command), &all);
        (ran.succeeded(), ran.output)
    }

    #[track_caller]
    fn passed(&self, command: &str, variables: &[(&str, &str)]) -> String {
        let (is_well, said) = self.tried(command, variables);
        assert!(is_well, "{command}: {said}");
        said
    }

    #[track_caller]
    fn refused(&self, command: &str, variables: &[(&str, &str)], why: &str) {
        let (is_well, said) = self.tried(command, variables);
        assert!(!is_well && said.contains(why), "{command}: {said}");
        assert!(!said.contains("called: gh"), "nothing is published: {said}");
    }

    /// The commands of the workflow up to what is published.
    fn prepared() -> Self {
        let release = Self::new();
        let workflow = workflow("release.yml");
        let commands = steps(&workflow["jobs"]["release"]).filter_map(|it| it["run"].as_str());
        let ours = commands.filter_map(|it| it.strip_prefix("scripts/release.sh "));
        let words: Vec<&str> = ours.filter_map(|it| it.strip_suffix(" dist")).collect();
        assert_eq!(words, ["image", "notes", "check", "publish"]);
        for word in &words[..3] {
            release.passed(word, &[]);
        }
        release
    }

    fn dist(&self, name: &str) -> PathBuf {
        self.runner.home().join("dist").join(name)
    }
}

#[test]
fn a_release_publishes_what_there_is_a_token_for() {
    let release = Release::prepared();
    let notes = fs::read_to_string(release.dist("release-notes.md")).expect("the notes");
    assert!(notes.contains("**Faults on purpose**"), "{notes}");
    assert!(!notes.contains("\n## "), "one section: {notes}");
    // The statement of the workflow's provenance comes after the checksums.
    fs::write(release.dist("provenance.sigstore.jsonl"), "{}").expect("our own file");
    let said = release.passed("publish", &[]);
    assert!(!said.contains("called:"), "{said}");
    for token in ["RELEASE_TOKEN", "PYPI_TOKEN", "REGISTRY_TOKEN"] {
        assert!(said.contains(&format!("there is no {token}")), "{said}");
    }
    let tokens = [
        ("RELEASE_TOKEN", "first"),
        ("PYPI_TOKEN", "second"),
        ("REGISTRY_TOKEN", "third"),
    ];
    let said = release.passed("publish", &tokens);
    let version = env!("CARGO_PKG_VERSION");
    let begin = format!("called: gh release create v{version} --repo OWNER/rockery --verify-tag");
    let published = said.lines().find(|line| line.starts_with(&begin));
    let published = published.unwrap_or_else(|| panic!("a release: {said}"));
    for file in fs::read_dir(release.runner.home().join("dist")).expect("the files") {
        let name = file.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(
            published.split(' ').any(|word| word == name),
            "{name} is not in {published}"
        );
    }
    assert!(
        said.contains("token: first\n") && said.contains("token: __token__:second\n"),
        "{said}"
    );
    assert!(said.contains("called: pipx run twine upload"), "{said}");
    let login =
        "called: docker login --username somebody --password-stdin ghcr.io\npassword: third";
    assert!(said.contains(login), "{said}");
    let address = format!("ghcr.io/owner/rockery:{version}");
    let create = format!("docker manifest create {address} {address}-amd64 {address}-arm64");
    for call in [
        &format!("docker push {address}-amd64"),
        &format!("docker push {address}-arm64"),
        &create,
        &format!("docker manifest push {address}"),
    ] {
        assert!(
            said.contains(&format!("called: {call}\n")),
            "{call}: {said}"
        );
    }
}

/// A dry run names what it would call, and calls nothing.
#[test]
fn a_dry_run_of_a_release_publishes_nothing() {
    let release = Release::prepared();
    let said = release.passed("publish", &[("DRY_RUN", "1")]);
    assert!(!said.contains("called:"), "{said}");
    for command in ["gh release create", "pipx run twine upload", "docker push"] {
        assert!(said.contains(&format!("would call: {command}")), "{said}");
    }
}

#[test]
fn a_release_of_wrong_files_is_refused() {
    let release = Release::prepared();
    let token = [("RELEASE_TOKEN", "first")];
    let other = [("RELEASE_TOKEN", "first"), ("GITHUB_REF_NAME", "v9.9.9")];
    release.refused("publish", &other, "the tag is v9.9.9");
    fs::write(release.dist("stray"), "").expect("our own file");
    release.refused("publish", &token, "SHA256SUMS does not have stray");
    fs::remove_file(release.dist("stray")).expect("our own file");
    let sums = fs::read_to_string(release.dist("SHA256SUMS")).expect("the checksums");
    let without: Vec<&str> = sums
        .lines()
        .filter(|it| !it.ends_with("_arm64.deb"))
        .collect();
    fs::write(release.dist("SHA256SUMS"), without.join("\n") + "\n").expect("our own file");
    release.refused("publish", &token, "has no rockery_");
    fs::write(release.dist("SHA256SUMS"), sums).expect("our own file");
    fs::write(release.dist("get.sh"), "another").expect("our own file");
    release.refused("publish", &token, "files are not those of SHA256SUMS");
    // An image in which programs have no device.
    fs::write(
        release.runner.home().join("image-says"),
        "No IB devices found\n",
    )
    .expect("our own file");
    release.refused("image", &[], "programs have no device in the image");
}
