//! RDMA by one line in services of CI (docs/ci.md): our action for GitHub, the component for GitLab, and what
//! Jenkins, Buildkite and development containers run, with packages of this tree in place of a release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{Job, Machine, Namespace, Packages, workspace, yaml};
use serde_json::Value;

use crate::ci::examples;
use crate::runner::{Ran, Runner};

/// Addresses of the examples, which name the release of a version.
const RELEASE: &str = "https://github.com/OWNER/rockery/releases/download/v0.1.0";
/// The device that all programs have.
const DEVICE: &str = "rk_lo";

fn packages() -> PathBuf {
    Packages::made().folder().to_owned()
}

/// A web server with the packages as a release has them.
struct Releases<'a> {
    folder: tempfile::TempDir,
    _server: Box<dyn Job + 'a>,
}

impl<'a> Releases<'a> {
    const SERVER: &'static str = "http://127.0.0.1:8017";

    fn served(machine: &'a Namespace) -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let release = folder.path().join("OWNER/rockery/releases/download");
        fs::create_dir_all(&release).expect("our own folder");
        std::os::unix::fs::symlink(packages(), release.join("v0.1.0")).expect("our own folder");
        let at = folder.path().to_string_lossy().into_owned();
        let words = ["python3", "-u", "-m", "http.server", "8017"];
        let words = [&words[..], &["--bind", "127.0.0.1", "--directory", &at]].concat();
        let server = machine.start_plain(&words).expect("a web server");
        machine.wait_for_listener(8017, 20).expect("it listens");
        Self {
            folder,
            _server: Box::new(server),
        }
    }

    /// The packages with a tarball that is another one.
    fn forge(&self) {
        let release = self
            .folder
            .path()
            .join("OWNER/rockery/releases/download/v0.1.0");
        fs::remove_file(&release).expect("the link");
        fs::create_dir(&release).expect("our own folder");
        for file in fs::read_dir(packages()).expect("the packages") {
            let file = file.expect("an entry").path();
            let copy = release.join(file.file_name().expect("a name"));
            fs::copy(&file, &copy).expect("our own folder");
            if copy.extension().is_some_and(|end| end == "gz") {
                let mut bytes = fs::read(&copy).expect("the tarball");
                bytes.push(0);
                fs::write(&copy, bytes).expect("our own file");
            }
        }
    }
}

fn action() -> Value {
    yaml::document(&workspace().join("action.yml"))
}

/// Runs the action as `uses: OWNER/rockery@REF` with inputs.
fn use_action(runner: &Runner, reference: &str, inputs: &[(&str, &str)]) -> Ran {
    let path = workspace();
    let github = [
        ("action_path", &*path.to_string_lossy()),
        ("action_ref", reference),
        ("action_repository", "OWNER/rockery"),
        ("repository", "ANOTHER/project"),
        ("server_url", Releases::SERVER),
    ];
    runner.action(&action(), inputs, &github)
}

/// The tarball of the packages, with its checksum.
fn tarball() -> (PathBuf, String) {
    let made = Packages::made();
    let name = made.named("rockery-", "-linux.tar.gz");
    let sums = fs::read_to_string(made.folder().join("SHA256SUMS")).expect("the checksums");
    let line = sums.lines().find(|line| line.ends_with(&name));
    let sum = line.expect("the tarball's").split(' ').next();
    (made.folder().join(name), sum.unwrap_or_default().to_owned())
}

#[test]
fn the_action_installs_the_release_that_it_is_used_by() {
    let runner = Runner::new();
    let _releases = Releases::served(&runner.alone);
    let (said, outputs) = use_action(&runner, "v0.1.0", &[]).expect_success();
    assert!(said.contains(DEVICE), "it shows the devices: {said}");
    assert_eq!(outputs["version"], env!("CARGO_PKG_VERSION"));
    let home = runner.home().to_string_lossy();
    assert_eq!(outputs["prefix"], format!("{home}/.local/rockery"));
    // The steps of a user's workflow that follow it. The namespace has no network, from which crates would
    // come.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut fetch = Command::new(cargo);
    fetch.args(["fetch", "--quiet", "--locked", "--manifest-path"]);
    let fetched = fetch.arg(examples().join("rust/Cargo.toml")).status();
    assert!(fetched.is_ok_and(|status| status.success()), "{fetch:?}");
    let workflow = yaml::document(&examples().join("workflow.yml"));
    let steps = workflow["jobs"]["test"]["steps"].as_array().unwrap().iter();
    let uses: Vec<&str> = steps.clone().filter_map(|it| it["uses"].as_str()).collect();
    assert_eq!(uses, ["actions/checkout@v4", "OWNER/rockery@v0.1.0"]);
    let scripts = steps.filter_map(|step| step["run"].as_str());
    let said: Vec<String> = scripts
        .filter(|script| !script.contains("apt-get"))
        .map(|script| runner.step(script))
        .collect();
    let [c, rust, python] = &*said else {
        panic!("three kinds of tests: {said:?}")
    };
    assert!(c.contains("100000 bytes sent"), "{c}");
    assert!(rust.contains("test result: ok. 1 passed"), "{rust}");
    assert!(
        python.contains("Ran 2 tests") && python.contains("OK"),
        "{python}"
    );
}

#[test]
fn the_action_installs_packages_that_are_named() {
    let (tarball, sum) = tarball();
    let (folder, tarball) = (packages(), tarball.to_string_lossy().into_owned());
    let address = format!("file://{tarball}");
    for inputs in [
        vec![("packages", &*folder.to_string_lossy())],
        vec![("packages", &*tarball)],
        vec![("packages", &*address), ("sha256", &*sum)],
    ] {
        let runner = Runner::new();
        use_action(&runner, "main", &inputs).expect_success();
        let said = runner.step("rockery run -- ibv_devices");
        assert!(said.contains(DEVICE), "{inputs:?}: {said}");
    }
}

/// `every-step` of a build from the action's own commit, which is what a branch stands for.
#[test]
fn the_action_builds_a_branch_and_runs_every_step_on_it() {
    let runner = Runner::new();
    let (said, outputs) = use_action(&runner, "main", &[("every-step", "true")]).expect_success();
    assert!(said.contains("installed in"), "{said}");
    assert_eq!(outputs["version"], env!("CARGO_PKG_VERSION"));
    let said = runner.step("cc -o message message.c -libverbs && ./message");
    assert!(said.contains("100000 bytes sent"), "{said}");
}

#[test]
fn the_action_refuses_what_is_not_what_it_seems() {
    let runner = Runner::new();
    let releases = Releases::served(&runner.alone);
    let refused = |reference: &str, inputs: &[(&str, &str)], why: &str| {
        let said = use_action(&runner, reference, inputs).expect_failure();
        assert!(said.contains(why), "{inputs:?}: {said}");
        assert!(!runner.home().join(".local/rockery").exists(), "{inputs:?}");
    };
    refused("main", &[("version", "0.1.0")], "version is '0.1.0'");
    refused(
        "v9.9.9",
        &[],
        "cannot get http://127.0.0.1:8017/OWNER/rockery/releases/download/v9.9.9",
    );
    let both = [("version", "v0.1.0"), ("packages", "dist")];
    refused("main", &both, "both given");
    refused(
        "main",
        &[("packages", "/no/folder")],
        "cannot read /no/folder/SHA256SUMS",
    );
    refused(
        "main",
        &[("packages", "ftp://host/dist")],
        "addresses begin with",
    );
    let other = "0".repeat(64);
    refused("v0.1.0", &[("sha256", &other)], "and not 000000");
    let name = tarball()
        .0
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let address = format!(
        "{}/OWNER/rockery/releases/download/v0.1.0/{name}",
        Releases::SERVER
    );
    refused("main", &[("packages", &address)], "set ROCKERY_SHA256");
    releases.forge();
    refused("v0.1.0", &[], "nothing is installed");
}

/// Machines for which there is no tarball, and a C library that is not glibc, are named.
#[test]
fn get_sh_says_where_nothing_of_a_package_runs() {
    let runner = Runner::new();
    let script = workspace().join("packaging/get.sh");
    let get = format!("sh {} {} prefix", script.display(), packages().display());
    let other = "mkdir -p bin; printf '#!/bin/sh\\necho riscv64\\n' >bin/uname; chmod +x bin/uname; \
                 PATH=$PWD/bin:$PATH";
    let said = runner.tried(&format!("{other} {get}"), &[]);
    assert!(
        !said.succeeded() && said.output.contains("has no tarball for riscv64"),
        "{said:?}"
    );
    // The packages of a machine are those of its processor. Here their command cannot be started.
    let for_arm = Packages::made_for_arm();
    let of_arm = format!(
        "sh {} {} prefix",
        script.display(),
        for_arm.folder().display()
    );
    let said = runner.tried(
        &format!("{} {of_arm}", other.replace("riscv64", "aarch64")),
        &[],
    );
    assert!(
        !said.succeeded() && said.output.contains("glibc 2.28 or newer on aarch64"),
        "{said:?}"
    );
    let said = runner.tried(&of_arm, &[]);
    assert!(
        !said.succeeded() && said.output.contains("has no tarball for x86_64"),
        "{said:?}"
    );
    // A tarball whose command cannot be started.
    let (tarball, _) = tarball();
    let broken = format!(
        "tar -xzf {} && echo '#!/no/loader' >$(echo rockery-*/bin/rockery) && \
         tar -czf broken.tar.gz rockery-* && sh {} broken.tar.gz prefix",
        tarball.display(),
        script.display()
    );
    let said = runner.tried(&broken, &[]);
    assert!(
        !said.succeeded() && said.output.contains("glibc 2.28 or newer"),
        "{said:?}"
    );
    assert!(!runner.home().join("prefix").exists());
}

/// Text of an example with the packages of this tree in place of the release.
fn of_this_tree(text: &str) -> String {
    assert!(text.contains(RELEASE), "{text}");
    text.replace(RELEASE, &format!("file://{}", packages().display()))
}

/// The component with the inputs of the example, as GitLab puts it together with a job.
#[test]
fn the_component_of_gitlab_gives_jobs_the_command() {
    let component = yaml::documents(&workspace().join("templates/rdma.yml"));
    let [header, body] = &*component else {
        panic!("a header and a body: {component:?}")
    };
    let example = yaml::document(&examples().join("gitlab.yml"));
    let include = &example["include"][0];
    assert_eq!(
        include["component"],
        "$CI_SERVER_FQDN/OWNER/rockery/rdma@v0.1.0"
    );
    let inputs = header["spec"]["inputs"].as_object().expect("inputs");
    let mut text = body.to_string();
    for (name, input) in inputs {
        let given = include["inputs"][name]
            .as_str()
            .or(input["default"].as_str());
        let given = given.unwrap_or_else(|| panic!("{name} has to be given"));
        let place = format!("$[[ inputs.{name} ]]");
        assert!(text.contains(&place), "{name} is not used");
        text = text.replace(&place, given);
    }
    assert!(
        !text.contains("$[["),
        "an input that is not declared: {text}"
    );
    let given = include["inputs"].as_object().expect("inputs");
    assert!(given.keys().all(|name| inputs.contains_key(name)));
    let body: Value = serde_json::from_str(&of_this_tree(&text)).expect("JSON");
    let job = &example["rdma"];
    let base = &body[job["extends"].as_str().expect("a job to extend")];
    let mut variables = Vec::new();
    for (name, value) in base["variables"].as_object().expect("variables") {
        variables.push((name.clone(), value.as_str().expect("text").to_owned()));
    }
    // GitLab runs `before_script` and `script` in one shell.
    let lines = [&base["before_script"], &job["script"]];
    let lines = lines.into_iter().flat_map(|it| it.as_array().unwrap());
    let script: String = lines
        .map(|it| format!("{}\n", it.as_str().unwrap()))
        .collect();
    let runner = Runner::new();
    runner.step("printf '#!/bin/sh\\nexec ibv_devices\\n' >my-test; chmod +x my-test");
    let said = runner.tried(&script, &variables).expect_success().output;
    assert!(
        said.matches(DEVICE).count() >= 2,
        "of check and of the test: {said}"
    );
    // And with a folder, as of an earlier job.
    variables[0].1 = packages().to_string_lossy().into_owned();
    let runner = Runner::new();
    runner.step("printf '#!/bin/sh\\nexec ibv_devices\\n' >my-test; chmod +x my-test");
    runner.tried(&script, &variables).expect_success();
}

/// Shell scripts of a Jenkinsfile: `sh '…'` and `sh '''…'''`.
fn shells(jenkinsfile: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in jenkinsfile.split("sh '").skip(1) {
        let text = part
            .strip_prefix("''")
            .and_then(|part| part.split("'''").next());
        let script = text.or_else(|| part.split('\'').next()).unwrap_or_default();
        found.push(script.to_owned());
    }
    found
}

#[test]
fn the_pipeline_of_jenkins_does_what_it_says() {
    let text = fs::read_to_string(examples().join("Jenkinsfile")).expect("the example");
    let depth = text
        .chars()
        .fold(0_i32, |depth, character| match character {
            '{' => depth + 1,
            '}' => depth - 1,
            _ => depth,
        });
    assert_eq!(depth, 0, "blocks end");
    let text = of_this_tree(&text);
    let line = text
        .lines()
        .find(|line| line.contains("ROCKERY_PACKAGES = "));
    let address = line
        .and_then(|line| line.split('\'').nth(1))
        .expect("an address");
    let runner = Runner::new();
    runner.step("printf '#!/bin/sh\\nexec ibv_devices\\n' >my-test; chmod +x my-test");
    let variables = [("ROCKERY_PACKAGES".to_owned(), address.to_owned())];
    let scripts = shells(&text);
    assert_eq!(scripts.len(), 2, "{scripts:?}");
    for script in scripts {
        let said = runner.tried(&script, &variables).expect_success().output;
        assert!(said.contains(DEVICE), "{said}");
    }
}

#[test]
fn the_pipeline_of_buildkite_does_what_it_says() {
    let pipeline = yaml::document(&examples().join("buildkite.yml"));
    let address = of_this_tree(pipeline["env"]["ROCKERY_PACKAGES"].as_str().unwrap());
    let commands = pipeline["steps"][0]["command"]
        .as_array()
        .expect("commands");
    let lines = commands.iter().map(|it| it.as_str().expect("text"));
    // The agent runs all lines of a step in one shell, after `$$` became `$`.
    let script = lines.collect::<Vec<_>>().join("\n").replace("$$", "$");
    let runner = Runner::new();
    runner.step("printf '#!/bin/sh\\nexec ibv_devices\\n' >my-test; chmod +x my-test");
    let said = runner.tried(&script, &[("ROCKERY_PACKAGES".to_owned(), address)]);
    assert!(said.expect_success().output.matches(DEVICE).count() >= 2);
}

/// Its commands, and then a terminal, whose programs have devices.
#[test]
fn programs_in_the_development_container_have_devices() {
    let text = fs::read_to_string(examples().join("devcontainer.json")).expect("the example");
    let container: Value = serde_json::from_str(&text).expect("JSON without comments");
    let address = of_this_tree(
        container["containerEnv"]["ROCKERY_PACKAGES"]
            .as_str()
            .unwrap(),
    );
    let create = &container["onCreateCommand"];
    assert!(
        create["programs"]
            .as_str()
            .unwrap()
            .starts_with("sudo apt-get update && sudo apt-get install ")
    );
    let runner = Runner::new();
    let variables = [("ROCKERY_PACKAGES".to_owned(), address)];
    let shell = |script: &Value| {
        let quoted = script.as_str().unwrap().replace('\'', "'\\''");
        let ran = runner.tried(&format!("sh -c '{quoted}'"), &variables);
        ran.expect_success().output
    };
    shell(&create["rockery"]);
    assert!(shell(&container["postStartCommand"]).contains(DEVICE));
    let said = runner.step("bash -ic ibv_devices 2>/dev/null");
    assert!(said.contains(DEVICE), "{said}");
}

/// A version that a release has another one of is an address that does not exist.
#[test]
fn examples_name_the_version_of_this_tree() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(RELEASE.rsplit('v').next(), Some(version));
    let mut files = vec![
        workspace().join("templates/rdma.yml"),
        workspace().join("action.yml"),
    ];
    files.extend(
        [
            "workflow.yml",
            "doctor.yml",
            "gitlab.yml",
            "Jenkinsfile",
            "buildkite.yml",
            "devcontainer.json",
        ]
        .map(|it| examples().join(it)),
    );
    files.push(workspace().join("docs/ci.md"));
    for file in files {
        expect_version(&file, version);
    }
}

fn expect_version(file: &Path, version: &str) {
    let text = fs::read_to_string(file).expect("an example");
    let places = text.match_indices("v0.").map(|(at, _)| &text[at + 1..]);
    let mut count = 0;
    for place in places {
        assert!(
            place.starts_with(version),
            "{}: {place:.20}",
            file.display()
        );
        count += 1;
    }
    assert!(count > 0, "{} names no version", file.display());
}
