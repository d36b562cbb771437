//! The Helm chart and the files for kind, without a cluster and without helm: `probe/chart.py` renders the
//! expressions that the templates use, and refuses others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use programs::Rockery;
use serde_json::{Value, json};

fn packaging(path: &str) -> PathBuf {
    programs::workspace().join("packaging").join(path)
}

fn python(arguments: &[&str]) -> Value {
    let output: Output = Command::new("/usr/bin/python3")
        .args(arguments)
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "packages python3-yaml and python3-jsonschema are needed: {said}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rendered(values: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe/chart.py");
    let folder = packaging("helm/rockery");
    python(&[
        &script.to_string_lossy(),
        &folder.to_string_lossy(),
        &values.to_string(),
    ])
}

/// All documents of a YAML file.
fn yaml(path: &str) -> Value {
    programs::yaml::documents(&packaging(path)).into()
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn names(value: &Value) -> BTreeSet<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect()
}

#[test]
fn values_meet_their_schema_and_wrong_ones_do_not() {
    let schema = packaging("helm/rockery/values.schema.json");
    let validate = "import json, sys, jsonschema
schema = json.load(open(sys.argv[1])); jsonschema.Draft7Validator.check_schema(schema)
errors = jsonschema.Draft7Validator(schema).iter_errors(json.loads(sys.argv[2]))
print(json.dumps([it.message for it in errors]))";
    let errors = |values: &Value| {
        python(&[
            "-c",
            validate,
            &schema.to_string_lossy(),
            &values.to_string(),
        ])
    };
    let values = &rendered(&json!({}))["values"];
    assert_eq!(errors(values), json!([]));
    for (name, value) in [
        ("count", json!(0)),
        ("count", json!("100")),
        ("resource", json!("hca")),
        ("cdi", json!("yes")),
        ("hostFolder", json!("opt")),
        ("misspelt", json!(1)),
    ] {
        let mut wrong = values.clone();
        wrong[name] = value;
        assert_eq!(
            errors(&wrong).as_array().map(Vec::len),
            Some(1),
            "{name}: {wrong}"
        );
    }
}

#[test]
fn the_daemon_set_is_consistent() {
    let objects = rendered(&json!({}));
    assert_eq!(objects["chart"]["apiVersion"], "v2");
    assert_eq!(objects["chart"]["appVersion"], env!("CARGO_PKG_VERSION"));
    let [set] = objects["objects"].as_array().unwrap().as_slice() else {
        panic!("one object: {objects}")
    };
    assert_eq!(
        (&set["apiVersion"], &set["kind"]),
        (&json!("apps/v1"), &json!("DaemonSet"))
    );
    let template = &set["spec"]["template"];
    assert_eq!(
        set["spec"]["selector"]["matchLabels"],
        template["metadata"]["labels"]
    );
    let pod = &template["spec"];
    let volumes = names(&pod["volumes"]);
    let containers = [&pod["initContainers"], &pod["containers"]];
    for container in containers
        .into_iter()
        .flat_map(|all| all.as_array().unwrap())
    {
        assert!(
            names(&container["volumeMounts"]).is_subset(&volumes),
            "{container}"
        );
        assert_eq!(container["image"], "rockery:0.1.0");
        let security = &container["securityContext"];
        assert!(security["privileged"].is_null(), "{container}");
    }
    // Mounts that the plugin names are paths of the node: it sees its folder at the node's own path.
    let folder = "/opt/rockery";
    let volume = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "libraries")
        .unwrap();
    assert_eq!(volume["hostPath"]["path"], folder);
    let plugin = &pod["containers"][0];
    let mounts = plugin["volumeMounts"].as_array().unwrap();
    let of = |name: &str| &mounts.iter().find(|it| it["name"] == name).unwrap()["mountPath"];
    assert_eq!(
        (of("libraries"), of("kubelet")),
        (&json!(folder), &json!("/var/lib/kubelet/device-plugins"))
    );
    assert_eq!(
        texts(&plugin["command"])[0],
        format!("{folder}/bin/rockery")
    );
}

/// The commands of the containers are ones that rockery has, with values of every kind.
#[test]
fn the_commands_are_those_of_this_version() {
    let rockery = Rockery::built();
    for values in [
        json!({}),
        json!({ "cdi": true, "resource": "example.com/rdma", "count": 7 }),
    ] {
        let objects = rendered(&values);
        let pod = &objects["objects"][0]["spec"]["template"]["spec"];
        let plugin = texts(&pod["containers"][0]["command"]);
        assert_eq!(
            plugin.contains(&"--cdi"),
            values["cdi"] == true,
            "{plugin:?}"
        );
        let count = if values["cdi"] == true { "7" } else { "100" };
        assert!(
            plugin.windows(2).any(|two| two == ["--count", count]),
            "{plugin:?}"
        );
        for command in [plugin, texts(&pod["initContainers"][1]["command"])] {
            // --help ends the command after its options were read.
            let output = Command::new(rockery.path())
                .args(&command[1..])
                .arg("--help")
                .output()
                .unwrap();
            assert!(output.status.success(), "{command:?}: {output:?}");
        }
    }
    let script =
        &rendered(&json!({}))["objects"][0]["spec"]["template"]["spec"]["initContainers"][0];
    let words = texts(&script["command"]);
    let checked = Command::new("sh")
        .args(["-n", "-c", words[2]])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn the_files_for_kind_are_what_they_say() {
    let cluster = yaml("kind/cluster.yaml");
    assert_eq!(
        (&cluster[0]["kind"], &cluster[0]["apiVersion"]),
        (&json!("Cluster"), &json!("kind.x-k8s.io/v1alpha4"))
    );
    let workers = cluster[0]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["role"] == "worker");
    assert_eq!(workers.count(), 2, "the pods are on two nodes");
    let pods = yaml("kind/pods.yaml");
    let resource = rendered(&json!({}))["values"]["resource"]
        .as_str()
        .unwrap()
        .to_owned();
    let all = pods.as_array().unwrap();
    let asking = all
        .iter()
        .filter(|it| it["kind"] == "Pod")
        .map(|pod| &pod["spec"]["containers"][0]);
    assert!(
        asking
            .clone()
            .all(|container| container["resources"]["limits"][&resource] == 1),
        "{pods}"
    );
    assert_eq!(asking.count(), 2);
    let service = all.iter().find(|it| it["kind"] == "Service").unwrap();
    let server = all
        .iter()
        .find(|it| it["metadata"]["name"] == "rdma-server" && it["kind"] == "Pod")
        .unwrap();
    for (name, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(
            &server["metadata"]["labels"][name], value,
            "the service finds the server"
        );
    }
}
