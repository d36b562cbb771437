//! Reports of `rockery sim --html` in Chromium: everything is within the page, and commands are copied.

use std::path::Path;
use std::process::Command;

use programs::{Browser, Chromium, Rockery, workspace};
use serde_json::json;
use tempfile::TempDir;

/// A page, on a busy machine.
const SECONDS: u64 = 240;

/// Sets the size of the screen.
pub(crate) fn show_at_width(browser: &mut Chromium, width: u32) {
    let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
    browser
        .command("Emulation.setDeviceMetricsOverride", size)
        .expect("a screen");
}

/// Elements of a part of the page that reach beyond the right edge of the screen, as text. Lines of
/// preformatted text are scrolled, and have no elements.
pub(crate) fn beyond_the_edge(browser: &mut Chromium, part: &str) -> String {
    browser.text(&format!(
        "[...document.querySelectorAll('{part} *')]\
         .filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5)\
         .map((it) => `${{it.tagName}}.${{it.className}}: ${{it.textContent.slice(0, 40)}}`)\
         .join('\\n')"
    ))
}

/// Writes the report of an example.
fn written(folder: &Path, example: &str, options: &[&str]) -> String {
    let page = folder.join("report.html");
    let output = Command::new(Rockery::built().path())
        .args(["sim", example, "--html"])
        .arg(&page)
        .args(options)
        .current_dir(workspace())
        .output()
        .expect("rockery");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {said}");
    format!("file://{}", page.display())
}

fn open(browser: &mut Chromium, address: &str) {
    browser.load(address).expect("the page");
    let is_there = format!(
        "location.href === {} && document.readyState === 'complete'",
        json!(address)
    );
    browser.wait_for(&is_there, SECONDS).expect("the page");
}

#[test]
fn nothing_is_beyond_the_edge_of_a_screen_or_of_a_telephone() {
    let folder = TempDir::new().expect("a folder");
    let mut browser = Chromium::start().expect("chromium starts");
    for example in [
        "examples/crs504/ecn-off.toml",
        "examples/fat-tree.toml",
        "examples/collectives/step.toml",
        // A sweep.
        "examples/spraying/recovery.toml",
    ] {
        let address = written(folder.path(), example, &[]);
        for width in [1280, 390] {
            show_at_width(&mut browser, width);
            open(&mut browser, &address);
            let beyond = beyond_the_edge(&mut browser, "body");
            assert_eq!(beyond, "", "{example} at {width} px");
        }
    }
}

#[test]
fn commands_of_findings_are_copied_and_dense_lines_are_areas() {
    let folder = TempDir::new().expect("a folder");
    let options = ["--sample", "5us"];
    let address = written(folder.path(), "examples/crs504/ecn-off.toml", &options);
    let mut browser = Chromium::start().expect("chromium starts");
    open(&mut browser, &address);
    let areas = "document.querySelectorAll('path.envelope').length";
    let areas = browser.value(areas).expect("a count").as_u64();
    assert!(areas > Some(1), "{areas:?} areas");

    let button = "document.querySelector('.finding button.copy')";
    let command = browser.text(&format!("{button}.previousElementSibling.textContent"));
    assert!(command.contains("set ecn=yes"), "{command}");
    let origin = json!({ "permissions": ["clipboardReadWrite"] });
    let granted = browser.command("Browser.grantPermissions", origin);
    granted.expect("the clipboard");
    browser
        .value(&format!("{button}.click()"))
        .expect("a click");
    let is_done = format!("{button}.textContent !== 'Copy'");
    browser.wait_for(&is_done, SECONDS).expect("an answer");
    // Without a focused window the browser refuses the clipboard, and the command is selected.
    let taken = match browser.text(&format!("{button}.textContent")).as_str() {
        "Copied" => browser.text("navigator.clipboard.readText()"),
        _ => browser.text("getSelection().toString()"),
    };
    assert_eq!(taken, command);
}
