//! The examples of docs/ci.md, run by an ordinary user without privileges; and the commands of this
//! repository's own workflow.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::Job;
use programs::{Namespace, Packages, Rockery};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// Go compiles its library first.
const GO_SECONDS: u64 = 300;
/// A step may build all of rockery.
const STEP_SECONDS: u64 = 1200;

fn examples() -> PathBuf {
    let path = programs::workspace().join("examples/ci");
    path.canonicalize().expect("examples/ci")
}

fn build(command: &mut Command) {
    let status = command.status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{command:?} failed"
    );
}

/// A folder that anyone can read, with what is copied there.
fn readable(files: &[&Path]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        let name = file.file_name().expect("a file has a name");
        fs::copy(file, folder.path().join(name))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    folder
}

/// Runs a program over the loopback of a namespace, as the user `nobody`, without capabilities and without a
/// way to gain any.
fn run_as_nobody(argv: &[&str]) -> String {
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    let run = [
        "--bounding-set=-all",
        &*rockery.to_string_lossy(),
        "run",
        "--",
    ];
    let mut job = alone
        .start_plain(&[&nobody[..], &run, argv].concat())
        .expect("setpriv");
    job.wait(SECONDS).expect("in time").expect_success().output
}

#[test]
fn a_program_in_c_passes() {
    let folder = readable(&[]);
    let program = folder.path().join("message");
    let source = examples().join("c/message.c");
    build(
        Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-libverbs"),
    );
    let said = run_as_nobody(&[&program.to_string_lossy()]);
    assert!(
        said.contains("100000 bytes sent, 100000 bytes written"),
        "{said}"
    );
}

#[test]
fn a_program_in_rust_passes() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(examples().join("rust/Cargo.toml"));
    build(command.env("CARGO_TARGET_DIR", &target));
    let folder = readable(&[&target.join("debug/message")]);
    let said = run_as_nobody(&[&folder.path().join("message").to_string_lossy()]);
    assert!(said.contains("100000 bytes sent"), "{said}");
}

#[test]
fn tests_in_python_pass() {
    let folder = readable(&[&examples().join("python/test_message.py")]);
    let test = folder.path().join("test_message.py");
    let said = run_as_nobody(&["/usr/bin/python3", "-B", &test.to_string_lossy()]);
    assert!(
        said.contains("Ran 2 tests") && said.ends_with("OK\n"),
        "{said}"
    );
}

/// `go test -exec`, as docs/ci.md has it, because the program `go` is static; and the example as an ordinary
/// user.
#[test]
fn tests_in_go_pass() {
    let files =
        ["go.mod", "message.go", "message_test.go"].map(|it| examples().join("go").join(it));
    let folder = readable(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let at = folder.path().display();
    let alone = Namespace::alone().expect("a namespace");
    let (_prefix, rockery) = Rockery::built().installed();
    let go = |words: &[&str]| {
        let places = [
            format!("--chdir={at}"),
            format!("GOCACHE={at}/cache"),
            format!("GOPATH={at}/path"),
        ];
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let argv = [&["env"], &places[..], &["GOTOOLCHAIN=local", "go"], words].concat();
        let mut job = alone.start_plain(&argv).expect("go");
        job.wait(GO_SECONDS)
            .expect("in time")
            .expect_success()
            .output
    };
    let exec = format!("{} run --", rockery.display());
    let said = go(&["test", "-count=1", "-v", "-exec", &exec, "./..."]);
    assert!(said.contains("--- PASS: TestMessage"), "{said}");
    go(&["build", "-buildvcs=false", "-o", "message", "."]);
    let said = run_as_nobody(&[&folder.path().join("message").to_string_lossy()]);
    assert!(
        said.contains("devices [rk_lo]") && said.contains("100000 bytes written"),
        "{said}"
    );
}

/// The script of docs/ci.md: UCX's benchmark over verbs alone.
#[test]
fn the_benchmark_of_ucx_passes() {
    let folder = readable(&[&examples().join("ucx.sh")]);
    let said = run_as_nobody(&[&folder.path().join("ucx.sh").to_string_lossy()]);
    assert!(said.contains("Final:"), "{said}");
}

/// The steps of a workflow or an action that are commands, in their order. The files are written by hand and
/// plain: `run: COMMAND`, or `run: |` and lines that are further in.
fn commands(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a workflow or an action");
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some((before, command)) = line.split_once("run: ") else {
            continue;
        };
        if !before.trim_matches([' ', '-']).is_empty() {
            continue;
        }
        if command != "|" {
            found.push(command.to_owned());
            continue;
        }
        let is_inside = |line: &&str| line.len() - line.trim_start().len() > before.len();
        let block: Vec<&str> = std::iter::from_fn(|| lines.next_if(is_inside)).collect();
        found.push(block.join("\n"));
    }
    found
}

/// A runner of GitHub's, as far as the example needs one: steps are bash scripts that pass variables and
/// folders with programs to the next ones through files.
struct Runner {
    alone: Namespace,
    folder: TempDir,
}

impl Runner {
    /// One whose workspace holds a project with the three examples, and where rockery was checked out.
    fn new() -> Self {
        let folder = readable(&[
            &examples().join("c/message.c"),
            &examples().join("python/test_message.py"),
        ]);
        let (project, rust) = (folder.path(), examples().join("rust"));
        fs::create_dir(project.join("src")).expect("our own folder");
        for file in ["Cargo.toml", "Cargo.lock", "src/main.rs"] {
            fs::copy(rust.join(file), project.join(file)).expect("the example in Rust");
        }
        let root = programs::workspace();
        std::os::unix::fs::symlink(root, project.join(".rockery")).expect("our own folder");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci");
        fs::create_dir_all(&target).expect("cargo's folder");
        std::os::unix::fs::symlink(target, project.join("target")).expect("our own folder");
        Self {
            alone: Namespace::alone().expect("a namespace"),
            folder,
        }
    }

    fn told(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// Runs a step, and returns what it printed.
    fn step(&self, script: &str) -> String {
        let home = self.folder.path().display();
        let mut path = std::env::var("PATH").expect("a shell's variable");
        for folder in self.told("path").lines() {
            path = format!("{folder}:{path}");
        }
        let mut words = vec![
            "env".to_owned(),
            format!("--chdir={home}"),
            format!("PATH={path}"),
        ];
        // The toolchain and the crates stay where they are.
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
            let before = std::env::var("HOME").expect("a shell's variable");
            let before = std::env::var(name).unwrap_or_else(|_| format!("{before}/{folder}"));
            words.push(format!("{name}={before}"));
        }
        words.push(format!("HOME={home}"));
        // `make install` installs what the packages are made of, instead of building the same once more.
        words.push(format!("BUILT={}", Packages::built().display()));
        words.extend(
            ["env", "output", "path"]
                .map(|file| format!("GITHUB_{}={home}/{file}", file.to_uppercase())),
        );
        words.extend(self.told("env").lines().map(str::to_owned));
        words.extend(
            [
                "bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                "-c",
                script,
            ]
            .map(str::to_owned),
        );
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut job = self.alone.start_plain(&words).expect("bash");
        job.wait(STEP_SECONDS)
            .expect("in time")
            .expect_success()
            .output
    }
}

/// The script of a block `- |`, from its first line that has this text.
fn block(file: &str, first: &str) -> String {
    let text = fs::read_to_string(examples().join(file)).expect("an example");
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines
        .iter()
        .position(|line| line.contains(first))
        .expect("the block");
    let further_in = |line: &str| line.len() - line.trim_start().len();
    let depth = further_in(lines[begin]);
    lines[begin..]
        .iter()
        .take_while(|line| further_in(line) >= depth && !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The steps of the action and the template that install a package, with the tarball in place of a release.
#[test]
fn packages_are_installed_as_the_action_and_the_template_say() {
    let packages = Packages::made();
    let tarball = packages
        .folder()
        .join(packages.named("rockery-", ".tar.gz"));
    let sums = fs::read_to_string(packages.folder().join("SHA256SUMS")).expect("the checksums");
    let sum = sums
        .lines()
        .find(|line| line.ends_with(".tar.gz"))
        .expect("the tarball's")
        .split(' ')
        .next();
    let sum = sum.expect("a checksum").to_owned();
    let given = |sum: &str| {
        format!(
            "PACKAGE_URL=file://{} PACKAGE_SHA256={sum}\n",
            tarball.display()
        )
    };
    let action = commands(&examples().join("package/action.yml"));
    let [install, show] = &*action else {
        panic!("two steps: {action:?}")
    };
    let runner = Runner::new();
    runner.step(&(given(&sum) + install));
    assert!(runner.step(show).contains("rk_lo"));
    assert!(
        runner.step("rockery run -- ibv_devices").contains("rk_lo"),
        "for the steps that follow"
    );
    let template = block("gitlab.yml", "package=$(mktemp");
    let runner = Runner::new();
    let job = given(&sum) + &template + "rockery run -- ibv_devices\n";
    assert!(runner.step(&job).contains("rk_lo"));
    let forged = given(&"0".repeat(64)) + &template;
    let refused = "if bash -eo pipefail step; then exit 1; fi; test ! -e ~/.local/rockery";
    runner.step(&format!(
        "rm -rf ~/.local; cat >step <<'END'\n{forged}END\n{refused}"
    ));
}

/// Each command of the action and of the workflow, but for the packages, which are there.
#[test]
fn the_action_and_the_workflow_do_what_they_say() {
    let runner = Runner::new();
    let setup = commands(&examples().join("setup/action.yml"));
    assert_eq!(setup.len(), 4, "{setup:?}");
    let said: String = setup.iter().map(|command| runner.step(command)).collect();
    assert!(said.contains("rk_lo"), "it shows its devices: {said}");
    assert_eq!(runner.told("output").trim_end().len(), "hash=".len() + 40);
    let workflow = commands(&examples().join("workflow.yml"));
    let said: Vec<String> = workflow
        .iter()
        .filter(|command| !command.contains("apt-get"))
        .map(|command| runner.step(command))
        .collect();
    let [c, rust, python] = &*said else {
        panic!("three kinds of tests: {workflow:?}")
    };
    assert!(c.contains("100000 bytes sent"), "{c}");
    assert!(rust.contains("test result: ok. 1 passed"), "{rust}");
    assert!(
        python.contains("Ran 2 tests") && python.contains("OK"),
        "{python}"
    );
    // As `every-step` promises.
    assert!(runner.step("./message").contains("100000 bytes sent"));
}

/// A command of the workflow that ran, or would run, where it is tested.
fn expect_success(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// A release is made of packages whose checksums are right, with a program in place of GitHub's that prints
/// its arguments.
fn expect_release(step: &str) {
    let runner = Runner::new();
    let packages = Packages::made();
    let fake = "#!/bin/sh\necho gh \"$@\"";
    runner.step(&format!(
        "mkdir bin; cat >bin/gh <<'END'\n{fake}\nEND\nchmod +x bin/gh"
    ));
    runner.step("echo \"$PWD/bin\" >>$GITHUB_PATH");
    runner.step("echo GITHUB_REF_NAME=v0.0.0 >>$GITHUB_ENV; echo GITHUB_REPOSITORY=OWNER/NAME >>$GITHUB_ENV");
    runner.step(&format!("cp -r {} dist", packages.folder().display()));
    let said = runner.step(step);
    let released = said
        .lines()
        .find(|line| line.starts_with("gh release create v0.0.0 "))
        .expect("a release");
    assert!(released.contains("--repo OWNER/NAME"), "{said}");
    for name in [
        packages.named("rockery-", ".tar.gz"),
        packages.named("rockery_", ".deb"),
        "SHA256SUMS".into(),
    ] {
        assert!(
            released.split(' ').any(|word| word == name),
            "{name} is not released: {said}"
        );
    }
    runner.step("echo more >>dist/SHA256SUMS; echo more >>dist/$(ls dist | grep tar.gz)");
    let refused = "if bash -eo pipefail step >said; then exit 1; fi; ! grep '^gh ' said";
    runner.step(&format!("cat >step <<'END'\n{step}\nEND\n{refused}"));
}

/// Commands that take minutes are what other tests and `.ci/run` run: here make lists what it would run for
/// them, without running it. The others run.
#[test]
fn each_command_of_our_own_workflow_is_known_and_works() {
    let workspace = programs::workspace();
    let steps = commands(&workspace.join(".github/workflows/ci.yml"));
    let makefile = fs::read_to_string(workspace.join("Makefile")).expect("our own Makefile");
    for step in &steps {
        expect_success(Command::new("bash").args(["-n", "-c", step]));
        match step.as_str() {
            "scripts/packages.sh build" => {
                expect_success(
                    Command::new("bash")
                        .args(["-c", step])
                        .current_dir(&workspace),
                );
            }
            "make check" | "make quick" | "make test" | "make dist" => {
                let target = step.trim_start_matches("make ");
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
            _ if step.contains("gh release create") => expect_release(step),
            _ => panic!("no test runs this step of the workflow: {step}"),
        }
    }
    assert_eq!(steps.len(), 7, "{steps:?}");
}
