//! A runner of GitHub's, as far as our workflows and our action need one: expressions, and steps that are
//! bash scripts and pass variables, outputs and folders with programs to the next ones through files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use programs::machine::Finished;
use programs::{Job, Namespace, Packages};
use serde_json::Value;
use tempfile::TempDir;

use crate::ci::{examples, readable};

/// A step may build all of rockery.
const SECONDS: u64 = 1200;

pub(crate) struct Runner {
    pub(crate) alone: Namespace,
    folder: TempDir,
}

impl Runner {
    /// One whose workspace holds a project with the three examples.
    pub(crate) fn new() -> Self {
        let folder = readable(&[
            &examples().join("c/message.c"),
            &examples().join("python/test_message.py"),
        ]);
        let (project, rust) = (folder.path(), examples().join("rust"));
        fs::create_dir(project.join("src")).expect("our own folder");
        for file in ["Cargo.toml", "Cargo.lock", "src/main.rs"] {
            fs::copy(rust.join(file), project.join(file)).expect("the example in Rust");
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci");
        fs::create_dir_all(&target).expect("cargo's folder");
        std::os::unix::fs::symlink(target, project.join("target")).expect("our own folder");
        Self {
            alone: Namespace::alone().expect("a namespace"),
            folder,
        }
    }

    /// The folder of the project, which is also the home of its user.
    pub(crate) fn home(&self) -> &Path {
        self.folder.path()
    }

    fn told(&self, file: &str) -> String {
        fs::read_to_string(self.home().join(file)).unwrap_or_default()
    }

    /// Runs a script as a step with these variables beside those that earlier steps set.
    pub(crate) fn tried(&self, script: &str, variables: &[(String, String)]) -> Finished {
        let home = self.home().display();
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
        words.extend(
            ["env", "output", "path"]
                .map(|file| format!("GITHUB_{}={home}/{file}", file.to_uppercase())),
        );
        words.extend(self.told("env").lines().map(str::to_owned));
        words.extend(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        let bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"];
        words.extend(bash.into_iter().chain([script]).map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut job = self.alone.start_plain(&words).expect("bash");
        job.wait(SECONDS).expect("in time")
    }

    /// Runs a step that succeeds, and returns what it printed.
    #[track_caller]
    pub(crate) fn step(&self, script: &str) -> String {
        self.tried(script, &[]).expect_success().output
    }

    /// The outputs of the last step, which then are gone.
    fn outputs(&self) -> BTreeMap<String, String> {
        let told = self.told("output");
        _ = fs::remove_file(self.home().join("output"));
        let lines = told.lines().filter_map(|line| line.split_once('='));
        lines
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Runs the steps of an action with these inputs and values of the context `github`. Of other actions it
    /// knows the cache, which is empty.
    pub(crate) fn action(
        &self,
        action: &Value,
        inputs: &[(&str, &str)],
        github: &[(&str, &str)],
    ) -> Ran {
        let mut context = Context::default();
        for (name, input) in action["inputs"].as_object().expect("inputs") {
            let default = input["default"].as_str().expect("a default").to_owned();
            context.set(format!("inputs.{name}"), default);
        }
        for (name, value) in inputs {
            let name = format!("inputs.{name}");
            assert!(context.0.contains_key(&name), "{name} is no input");
            context.set(name, (*value).to_owned());
        }
        for (name, value) in github {
            context.set(format!("github.{name}"), (*value).to_owned());
        }
        for name in ["runner.os", "runner.arch"] {
            context.set(name.to_owned(), "any".to_owned());
        }
        let mut output = String::new();
        for step in action["runs"]["steps"].as_array().expect("steps") {
            let is_due = step["if"]
                .as_str()
                .is_none_or(|condition| !context.value(condition).is_empty());
            let mut outputs = BTreeMap::new();
            if let Some(uses) = step["uses"].as_str() {
                assert!(uses.starts_with("actions/cache@v"), "{uses}");
                context.text(step["with"]["key"].as_str().expect("a key"));
                outputs.insert("cache-hit".to_owned(), String::new());
            } else if is_due {
                assert_eq!(step["shell"], "bash");
                let variables = context.variables(&step["env"]);
                // What `uses` builds with is what packages are made of, instead of the same once more.
                let built = ("BUILT".to_owned(), Packages::built().display().to_string());
                let script = step["run"].as_str().expect("a script");
                assert!(!script.contains("${{"), "{script}: expressions are in env");
                let ran = self.tried(script, &[&variables[..], &[built]].concat());
                output += &ran.output;
                if !ran.succeeded() {
                    return Ran::Failed(output);
                }
                outputs = self.outputs();
            }
            if let Some(id) = step["id"].as_str() {
                context.set_outputs(id, outputs);
            }
        }
        let outputs = action["outputs"].as_object().expect("outputs");
        let outputs = outputs.iter().map(|(name, output)| {
            let value = output["value"].as_str().expect("a value");
            (name.clone(), context.text(value))
        });
        Ran::Passed(output, outputs.collect())
    }
}

/// What an action did.
#[derive(Debug)]
pub(crate) enum Ran {
    /// What its steps printed, and its outputs.
    Passed(String, BTreeMap<String, String>),
    /// What its steps printed up to the one that failed.
    Failed(String),
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect_success(self) -> (String, BTreeMap<String, String>) {
        match self {
            Self::Passed(output, outputs) => (output, outputs),
            Self::Failed(output) => panic!("the action failed: {output}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_failure(self) -> String {
        match self {
            Self::Failed(output) => output,
            Self::Passed(output, _) => panic!("the action succeeded: {output}"),
        }
    }
}

/// The values that expressions name. Outputs that a step did not set are empty; everything else that is not
/// here is a mistake.
#[derive(Default)]
pub(crate) struct Context(BTreeMap<String, String>);

impl Context {
    pub(crate) fn set(&mut self, name: String, value: String) {
        self.0.insert(name, value);
    }

    fn set_outputs(&mut self, id: &str, outputs: BTreeMap<String, String>) {
        self.set(format!("steps.{id}.outputs"), String::new());
        for (name, value) in outputs {
            self.set(format!("steps.{id}.outputs.{name}"), value);
        }
    }

    /// Variables of a step.
    pub(crate) fn variables(&self, env: &Value) -> Vec<(String, String)> {
        let env = env.as_object().into_iter().flatten();
        env.map(|(name, value)| (name.clone(), self.text(value.as_str().expect("text"))))
            .collect()
    }

    /// Text with expressions in it.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut parts = text.split("${{");
        let mut all = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once("}}").expect("the end of an expression");
            all += &self.value(expression);
            all += rest;
        }
        all
    }

    /// The value of an expression: `||`, then `&&`, then `==` and `!=`, then names and texts.
    pub(crate) fn value(&self, expression: &str) -> String {
        let both = |(left, right): (&str, &str)| (self.value(left), self.value(right));
        let truth = |is: bool| if is { "true" } else { "" }.to_owned();
        if let Some(parts) = expression.split_once("||") {
            let (left, right) = both(parts);
            return if left.is_empty() { right } else { left };
        }
        if let Some(parts) = expression.split_once("&&") {
            let (left, right) = both(parts);
            return if left.is_empty() { left } else { right };
        }
        if let Some(parts) = expression.split_once("==") {
            let (left, right) = both(parts);
            return truth(left == right);
        }
        if let Some(parts) = expression.split_once("!=") {
            let (left, right) = both(parts);
            return truth(left != right);
        }
        let name = expression.trim();
        if let Some(text) = name.strip_prefix('\'') {
            return text.strip_suffix('\'').expect("a text").to_owned();
        }
        if let Some(value) = self.0.get(name) {
            return value.clone();
        }
        let step = name.rsplit_once('.').map(|(step, _)| step);
        let is_output =
            step.is_some_and(|step| step.ends_with(".outputs") && self.0.contains_key(step));
        assert!(is_output, "nothing is called `{name}`");
        String::new()
    }
}
