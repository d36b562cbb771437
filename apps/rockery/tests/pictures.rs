//! The pictures of the README and of the guide, in `docs/pictures`: each is made of what the command prints.
//!
//! `UPDATE_DOCS=1 cargo test -p rockery --test pictures` writes them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A picture of a simulation.
struct Picture {
    /// The name of the file, without `.svg`.
    name: &'static str,
    /// The arguments of the command.
    arguments: &'static [&'static str],
    kind: Kind,
}

enum Kind {
    /// What a terminal shows: parts of the output, by their first words and numbers of lines.
    Terminal(&'static [(&'static str, usize)]),
    /// The drawing of the HTML report whose label begins with this text.
    Drawing(&'static str),
    /// What `rockery lab graph` draws.
    Graph,
    /// Bars of the latencies of storage in several runs.
    Latencies(&'static [Run]),
}

/// A run with a bar: what stands beside the bar, the file, and its settings.
struct Run {
    label: &'static str,
    file: &'static str,
    settings: &'static [&'static str],
}

const TCP: &str = "examples/nvme/tcp.toml";

const PICTURES: &[Picture] = &[
    Picture {
        name: "ecn-off",
        arguments: &["examples/crs504/ecn-off.toml"],
        kind: Kind::Terminal(&[("workload", 3), ("Findings", 7)]),
    },
    Picture {
        name: "lossless-dropped",
        arguments: &["examples/crs504/as-written.toml"],
        kind: Kind::Drawing("the network"),
    },
    Picture {
        name: "lossless-paused",
        arguments: &["examples/crs504/ecn-off.toml"],
        kind: Kind::Drawing("the network"),
    },
    Picture {
        name: "functions",
        arguments: &["examples/functions.toml"],
        kind: Kind::Drawing("the network"),
    },
    Picture {
        name: "spraying",
        arguments: &["examples/spraying/two-paths.toml", "--point", "1"],
        kind: Kind::Drawing("the network"),
    },
    Picture {
        name: "spraying-reorder",
        arguments: &["examples/spraying/two-paths.toml", "--point", "1"],
        kind: Kind::Drawing("Reorder distance"),
    },
    Picture {
        name: "spraying-recovery",
        arguments: &["examples/spraying/recovery.toml"],
        kind: Kind::Drawing("Goodput"),
    },
    Picture {
        name: "nvme-latency",
        arguments: &[],
        kind: Kind::Latencies(&[
            Run {
                label: "RDMA",
                file: "examples/nvme/rdma.toml",
                settings: &[],
            },
            Run {
                label: "TCP",
                file: TCP,
                settings: &[],
            },
            Run {
                label: "TCP, no moderation",
                file: TCP,
                settings: &[
                    "processor.default.moderation=0us",
                    "processor.initiator.moderation=0us",
                ],
            },
            Run {
                label: "TCP, no interrupts",
                file: TCP,
                settings: &[
                    "processor.default.moderation=0us",
                    "processor.initiator.moderation=0us",
                    "processor.default.interrupt=0us",
                    "processor.initiator.interrupt=0us",
                ],
            },
        ]),
    },
    Picture {
        name: "infiniband",
        arguments: &["examples/infiniband/fat-tree.toml"],
        kind: Kind::Graph,
    },
];

/// Width and height of a character, the size of the font, and the border around the text, in pixels.
const COLUMN: f64 = 8.4;
const ROW: usize = 20;
const FONT: usize = 14;
const BORDER: usize = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `rockery sim` prints.
fn simulated(arguments: &[&str]) -> String {
    printed(&[&["sim"], arguments].concat())
}

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rockery"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The chosen parts of an output, with `…` in place of what is left out.
fn parts(printed: &str, chosen: &[(&str, usize)]) -> Vec<String> {
    let lines: Vec<&str> = printed.lines().collect();
    let mut shown = Vec::new();
    let mut end = 0;
    for (words, count) in chosen {
        let rest = lines[end..].iter();
        let at = rest
            .take_while(|line| !line.trim_start().starts_with(words))
            .count()
            + end;
        assert!(at + count <= lines.len(), "nothing begins with {words}");
        shown.push("…".to_owned());
        shown.extend(lines[at..at + count].iter().map(|line| (*line).to_owned()));
        end = at + count;
    }
    shown
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A line, with the weight of a finding in a colour of its own.
fn coloured(line: &str) -> String {
    for (word, class) in [("slow", "slow"), ("broken", "broken"), ("note", "note")] {
        let begin = format!("  {word}  ");
        if let Some(rest) = line.strip_prefix(&begin) {
            return format!(
                "  <tspan class=\"{class}\">{word}</tspan>  {}",
                escaped(rest)
            );
        }
    }
    match line.strip_prefix("$ ") {
        Some(command) => format!("<tspan class=\"soft\">$</tspan> {}", escaped(command)),
        None => escaped(line),
    }
}

/// A terminal with these lines. Lines have the width that their number of characters asks for in each font.
fn terminal(title: &str, lines: &[String]) -> String {
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap();
    let pixels = |columns: usize| COLUMN * f64::from(u32::try_from(columns).unwrap());
    let border = f64::from(u32::try_from(BORDER).unwrap());
    let width = (2.0 * border + pixels(columns)).ceil();
    let height = 2 * BORDER + lines.len() * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\">\n\
         <title>{}</title>\n\
         <style>text {{ font: {FONT}px ui-monospace, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; \
         fill: #e6e9ee; white-space: pre; }} .soft {{ fill: #9aa4b2; }} .slow {{ fill: #ffb74d; }} \
         .broken {{ fill: #ff8a80; }} .note {{ fill: #90caf9; }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#14171b\"/>\n",
        escaped(title)
    );
    for (row, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        writeln!(
            svg,
            "<text x=\"{BORDER}\" y=\"{}\" textLength=\"{:.1}\" xml:space=\"preserve\">{}</text>",
            BORDER + row * ROW + FONT,
            pixels(line.chars().count()),
            coloured(line)
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

/// A drawing of a report as a file of its own: with the name space, and the style that the page has.
fn drawing(arguments: &[&str], label: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let page_name = page.to_str().unwrap();
    simulated(&[arguments, &["--html", page_name]].concat());
    let page = fs::read_to_string(&page).unwrap();
    let drawings = page.split("<svg ").skip(1);
    let mut with_label = drawings.filter(|it| it.contains(&format!("aria-label=\"{label}")));
    let drawing = with_label
        .next()
        .unwrap_or_else(|| panic!("no drawing {label} of {arguments:?}"));
    let (head, body) = drawing.split_once(">\n").unwrap();
    let body = body.split("</svg>").next().unwrap();
    alone(head, body)
}

/// A drawing as a file of its own. Pages show networks smaller than they are, so names are larger.
fn alone(head: &str, body: &str) -> String {
    let view_box = head.split("viewBox=\"0 0 ").nth(1).unwrap();
    let width = view_box.split(' ').next().unwrap();
    let font = if width == "1000" { 17 } else { 11 };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" {head}>\n\
         <style>text {{ font: {font}px system-ui, sans-serif; fill: #667; }} .axis {{ stroke: #d8dde3; }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #9aa4b2; }} .axis {{ stroke: #333a44; }} }}\
         </style>\n{body}</svg>\n"
    )
}

/// The mean and the 99th percentile of the storage workload of a run, in microseconds.
fn latency(run: &Run) -> [f64; 2] {
    let settings = run.settings.iter().flat_map(|it| ["--set", it]);
    let arguments: Vec<&str> = [run.file, "--json", "-"]
        .into_iter()
        .chain(settings)
        .collect();
    let report: serde_json::Value = serde_json::from_str(&simulated(&arguments)).unwrap();
    let latency = &report["workloads"][0]["latency_us"];
    ["mean", "p99"].map(|name| latency[name].as_f64().unwrap())
}

/// A bar for each run, as long as its mean latency, with a line to its 99th percentile.
fn bars(runs: &[Run]) -> String {
    const LEFT: f64 = 170.0;
    const PIXELS: f64 = 4.0;
    let latencies: Vec<[f64; 2]> = runs.iter().map(latency).collect();
    let longest = latencies.iter().flatten().copied().fold(0.0, f64::max);
    let width = PIXELS.mul_add(longest, LEFT + 190.0).ceil();
    let height = 2 * BORDER + (runs.len() + 1) * 2 * ROW;
    let mut body = format!(
        "<text x=\"{LEFT}\" y=\"{}\">a read of 4 KiB, simulated: mean, and a line to p99</text>\n",
        BORDER + FONT
    );
    for (index, (run, [mean, p99])) in runs.iter().zip(&latencies).enumerate() {
        let top = BORDER + (index + 1) * 2 * ROW;
        let middle = top + ROW / 2;
        let ends = [mean, p99].map(|it| PIXELS.mul_add(*it, LEFT));
        writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{ROW}\" fill=\"#4c8bf5\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#9aa4b2\" \
             stroke-width=\"2\"/><text x=\"{:.1}\" y=\"{}\">{mean:.1} us, p99 {p99:.1} us</text>",
            LEFT - 10.0,
            top + FONT,
            escaped(run.label),
            PIXELS * mean,
            ends[0],
            ends[1],
            ends[1] + 8.0,
            top + FONT
        )
        .unwrap();
    }
    let head = format!("viewBox=\"0 0 {width} {height}\" role=\"img\"");
    alone(&head, &body).replace("font: 11px", "font: 14px")
}

impl Picture {
    fn made(&self) -> String {
        match self.kind {
            Kind::Terminal(chosen) => {
                let command = format!("$ rockery sim {}", self.arguments.join(" "));
                let printed = parts(&simulated(self.arguments), chosen);
                let lines = [vec![command.clone()], printed].concat();
                terminal(&command, &lines)
            }
            Kind::Drawing(label) => drawing(self.arguments, label),
            Kind::Latencies(runs) => bars(runs),
            Kind::Graph => {
                printed(&[&["lab", "graph", "--format", "svg"], self.arguments].concat())
            }
        }
    }
}

#[test]
fn pictures_are_what_the_command_prints() {
    let folder = root().join("docs/pictures");
    for picture in PICTURES {
        let path = folder.join(format!("{}.svg", picture.name));
        let made = picture.made();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, made).unwrap();
        } else {
            let kept = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                kept == made,
                "{} is not what the command prints: UPDATE_DOCS=1 cargo test -p rockery --test pictures",
                path.display()
            );
        }
    }
}

#[test]
fn each_picture_is_made_here_and_shown_in_a_page() {
    let mut pages = fs::read_to_string(root().join("README.md")).unwrap();
    for page in fs::read_dir(root().join("docs/guide")).unwrap() {
        pages += &fs::read_to_string(page.unwrap().path()).unwrap();
    }
    for file in fs::read_dir(root().join("docs/pictures")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            PICTURES
                .iter()
                .any(|one| format!("{}.svg", one.name) == name),
            "no test makes {name}"
        );
        assert!(
            pages.contains(&format!("pictures/{name})")),
            "no page shows {name}"
        );
    }
}

/// Parts are found in their order, and what is not there is named.
#[test]
fn parts_are_in_order() {
    let printed = "title\n\n  a 1\n  b\nfindings\n  slow  x\n";
    assert_eq!(
        parts(printed, &[("a", 1), ("findings", 2)]),
        ["…", "  a 1", "…", "findings", "  slow  x"]
    );
    assert_eq!(
        coloured("  slow  a < b"),
        "  <tspan class=\"slow\">slow</tspan>  a &lt; b"
    );
}
