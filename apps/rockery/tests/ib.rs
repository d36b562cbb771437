//! `rockery ib` as a person calls it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn rockery(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_exported_subnet_is_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/infiniband/two-hosts.toml");
    for format in ["ibnetdiscover", "ibsim"] {
        let exported = rockery(&[
            "ib",
            "export",
            example.to_str().unwrap(),
            "--format",
            format,
        ]);
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let net = folder.path().join(format);
        fs::write(&net, &exported.stdout).unwrap();
        let imported = rockery(&["ib", "import", net.to_str().unwrap()]);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        assert_eq!(text(&imported.stderr), "");
        let file = text(&imported.stdout);
        for expected in [
            "name = \"alice\"\nguid = \"0x0002c903000a1b20\"\ndescription = \"alice mlx4_0\"\n",
            "between = [\"alice\", \"bob\"]\ninfiniband = \"4x QDR\"\n",
        ] {
            assert!(file.contains(expected), "{file}");
        }
        let again = folder.path().join("again.toml");
        fs::write(&again, &file).unwrap();
        let exported_again =
            rockery(&["ib", "export", again.to_str().unwrap(), "--format", format]);
        assert_eq!(text(&exported_again.stdout), text(&exported.stdout));
    }
}

#[test]
fn files_that_are_no_subnet_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.txt");
    fs::write(&file, "Switch 4 \"s0\"\n[5] \"h0\"[1]\n").unwrap();
    let imported = rockery(&["ib", "import", file.to_str().unwrap()]);
    assert_eq!(imported.status.code(), Some(1));
    let message = text(&imported.stderr);
    assert!(
        message.contains("cluster.txt:2: there is no port 5: the node has 4"),
        "{message}"
    );
    fs::write(&file, "topology = { kind = \"star\", hosts = 2 }\n").unwrap();
    let exported = rockery(&["ib", "export", file.to_str().unwrap(), "--format", "dot"]);
    assert_eq!(exported.status.code(), Some(1));
    let message = text(&exported.stderr);
    assert!(
        message.contains("the links are Ethernet: set link-layer"),
        "{message}"
    );
}
