//! The site of `make site`: each link of each page resolves, and Chromium reads lesson one in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use programs::{Browser, Chromium, workspace};
use serde_json::json;

use crate::playground::Server;

/// A page, or a run in the playground, on a busy machine.
const SECONDS: u64 = 240;
const PLAYGROUND: &str = "playground/index.html#";

/// The site, built once. The first time mdBook is compiled.
fn site() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = workspace().join("target/site/test");
        let output = Command::new(workspace().join("scripts/site.py"))
            .arg(&folder)
            .output()
            .expect("python3 starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        folder
    })
}

/// The values of an attribute.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    let parts = page.split(&*begin).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}

/// The pages of mdBook with their texts. Its page for missing addresses is relative to the server.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![site().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)
            .expect("a folder of the site")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "html") && !path.ends_with("404.html")
            {
                let text = fs::read_to_string(&path).expect("a page");
                pages.insert(path, text);
            }
        }
    }
    pages
}

/// A link as seen from a page, without `..`.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.to_owned();
    if !link.is_empty() {
        path.pop();
    }
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[test]
fn each_link_of_each_page_resolves() {
    let pages = pages();
    let mut count = 0;
    for (path, text) in &pages {
        let links = [attributes(text, "href"), attributes(text, "src")].concat();
        for link in links.into_iter().filter(|it| !it.contains(':')) {
            count += 1;
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = resolved(path, file);
            assert!(target.is_file(), "{} links to {link}", path.display());
            let is_place = !fragment.is_empty() && !link.contains(PLAYGROUND);
            if let Some(page) = pages.get(&target).filter(|_| is_place) {
                assert!(
                    attributes(page, "id").contains(&fragment),
                    "{} links to {link}, and that page has no such place",
                    path.display()
                );
            }
        }
    }
    assert!(
        pages.len() > 40 && count > 1500,
        "{count} links in {} pages",
        pages.len()
    );
}

/// Clicks, and waits until an expression is true in the page that comes. While it loads there is none to ask.
fn click(browser: &mut Chromium, element: &str, expected: &str) {
    browser
        .value(&format!("{element}.click()"))
        .unwrap_or_else(|error| panic!("{element}: {error}"));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    while !browser.value(expected).is_ok_and(|value| value == true) {
        assert!(
            Instant::now() < until,
            "{element}: {expected} does not come"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The link of the text of a page whose address ends with this.
fn link(end: &str) -> String {
    format!("document.querySelector('main a[href$=\"{end}\"]')")
}

fn heading(words: &str) -> String {
    format!(
        "document.querySelector('main h1')?.textContent === {}",
        json!(words)
    )
}

#[test]
fn lesson_one_is_read_and_tried_in_the_browser() {
    let server = Server::of_folder(site());
    let mut browser = Chromium::start().expect("chromium starts");
    browser.load(&server.address).expect("the site");
    let is_loaded = heading("rockery");
    browser
        .wait_for(&is_loaded, SECONDS)
        .expect("the first page");
    click(&mut browser, &link("guide/index.html"), &heading("Guide"));
    let lesson = heading("A lossless network, and what ECN does");
    click(&mut browser, &link("lossless-network.html"), &lesson);
    let pictures = "[...document.querySelectorAll('main img')].every((it) => it.naturalWidth > 0)";
    browser.wait_for(pictures, SECONDS).expect("pictures");
    let answer = "document.querySelector('main details')";
    assert_eq!(
        browser
            .value(&format!("{answer}.open"))
            .expect("a question"),
        false
    );
    click(
        &mut browser,
        &format!("{answer}.querySelector('summary')"),
        &format!("{answer}.open && {answer}.textContent.includes('not the flow')"),
    );
    let finding = "document.querySelector('#report .finding')?.textContent.includes('ECN is off')";
    click(
        &mut browser,
        &link(&format!("{PLAYGROUND}crs504/ecn-off")),
        finding,
    );
    let choices =
        "JSON.stringify([...document.querySelectorAll('#example option')].map((it) => it.value))";
    let choices: BTreeSet<String> = serde_json::from_str(&browser.text(choices)).expect("examples");
    let mut tried = BTreeSet::new();
    for (path, text) in &pages() {
        for link in attributes(text, "href") {
            if let Some((_, example)) = link.split_once(PLAYGROUND) {
                assert!(
                    choices.contains(example),
                    "{}: no example {example}",
                    path.display()
                );
                tried.insert(example.to_owned());
            }
        }
    }
    assert!(tried.len() >= 10, "{tried:?}");
}

#[test]
fn the_site_is_searched_and_follows_screen_and_colours() {
    let server = Server::of_folder(site());
    let mut browser = Chromium::start().expect("chromium starts");
    let lesson = format!("{}docs/guide/lossless-network.html", server.address);
    for (scheme, theme) in [("light", "light"), ("dark", "navy")] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser
            .command("Emulation.setEmulatedMedia", features)
            .expect("a colour scheme");
        browser.load(&lesson).expect("a page");
        let is_it = format!("document.documentElement?.classList.contains('{theme}') === true");
        browser.wait_for(&is_it, SECONDS).expect(theme);
    }
    let search = format!("{lesson}?search=subnet%20manager");
    browser.load(&search).expect("a page");
    let found = "[...document.querySelectorAll('#mdbook-searchresults a')]\
                 .some((it) => it.href.includes('guide/infiniband.html'))";
    browser
        .wait_for(found, SECONDS)
        .expect("a result of the search");
    let size = json!({ "width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    browser
        .command("Emulation.setDeviceMetricsOverride", size)
        .expect("a small screen");
    for page in [
        "index.html",
        "docs/guide/lossless-network.html",
        "docs/reference/cli.html",
    ] {
        browser
            .load(&format!("{}{page}", server.address))
            .expect("a page");
        let is_there =
            format!("location.pathname === '/{page}' && document.readyState === 'complete'");
        browser.wait_for(&is_there, SECONDS).expect(page);
        let width = browser.value("document.documentElement.scrollWidth");
        let width = width.expect("a width").as_u64();
        assert!(width.is_some_and(|width| width <= 390), "{page}: {width:?}");
    }
}
