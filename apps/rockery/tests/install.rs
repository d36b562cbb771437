//! Tests of the files that `make install` puts beside the binary: manual pages, and the example of a systemd
//! unit.

use std::path::Path;
use std::process::{Command, Output};

fn rockery(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(arguments)
        .output()
        .expect("rockery starts")
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("rockery-man-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let made = rockery(&["man", &folder.to_string_lossy()]);
    assert!(made.status.success(), "{made:?}");
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let help = String::from_utf8(rockery(&["--help"]).stdout).expect("text");
    let (_, commands) = help.split_once("Commands:").expect("a list of commands");
    let (commands, _) = commands.split_once("\n\n").expect("an end of the list");
    let names = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|it| !it.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next());
    // `help` prints what `--help` prints, and has no page of its own.
    for name in names.filter(|name| *name != "help") {
        let text = page(&format!("rockery-{name}.1"));
        assert!(text.contains(".TH"), "no page for {name}: {commands}");
    }
    let nvme = page("rockery-serve-nvme.1");
    assert!(
        nvme.contains("\\-\\-congestion") && nvme.contains("system"),
        "{nvme}"
    );
    assert!(
        !page("rockery.1").contains("rockery\\-man("),
        "the command that writes the pages is hidden"
    );
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

#[test]
fn the_systemd_units_have_options_that_exist() {
    for (unit, configuration) in [
        ("systemd/rockery-nvme@.service", "%d/%i.toml"),
        (
            "smb/rockery-smb-gateway.service",
            "/etc/rockery/smb-gateway.toml",
        ),
        ("smb/rockery-smb-dial.service", "/etc/rockery/smb-dial.toml"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(unit);
        let text = std::fs::read_to_string(&path).expect("the unit");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/"))
            .expect("a command");
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let refused = rockery(&words);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            errors.contains(configuration),
            "{unit}: only the configuration is missing: {errors}"
        );
        assert!(
            text.contains("\nDynamicUser=yes\n") && !text.contains("User=root"),
            "{unit}: it needs no root"
        );
        // systemd checks the rest. The binary is not installed where the unit expects it.
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join(path.file_name().expect("a name"));
        std::fs::write(&copy, text.replace("/usr/local/bin/rockery", "/bin/true")).expect("a copy");
        let verified = Command::new("systemd-analyze")
            .args(["--man=no", "verify"])
            .arg(&copy)
            .output();
        let verified = verified.expect("systemd-analyze, of the package systemd");
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(
            verified.status.success() && said.is_empty(),
            "{unit}: {said}"
        );
    }
}
