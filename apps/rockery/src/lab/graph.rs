//! `rockery lab graph`: the network of a lab, or of a fabric file, as a picture or a graph.

use std::path::PathBuf;

use ::lab::{Client, Shape, ShapeKind};
use report::{Drawing, DrawnLink, DrawnNode};

use crate::{Error, output};

/// The options of `rockery lab graph`.
#[derive(Debug, clap::Args)]
pub(crate) struct Graph {
    /// Fabric file (TOML), which need not run. Without it: the lab that runs, with the links that are down.
    #[arg(conflicts_with = "lab")]
    file: Option<PathBuf>,
    /// Name of the lab, if several run.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Value that replaces the file's, as `--set` of `rockery sim`. May be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = crate::args::setting, requires = "file")]
    set: Vec<(String, String)>,
    /// What is printed.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Dot)]
    format: Format,
    /// Write to a file in place of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A language of graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Graphviz: `rockery lab graph | dot -Tpng -o lab.png`
    Dot,
    /// Mermaid, which GitHub and GitLab draw in Markdown
    Mermaid,
    /// A picture that browsers show
    Svg,
    /// Nodes, addresses and links
    Json,
}

/// Prints the graph.
///
/// # Errors
/// When the file has a mistake, no lab runs, or the output cannot be written.
pub(super) fn act(what: &Graph) -> Result<(), Error> {
    let shape = match &what.file {
        Some(file) => super::plan(file, &what.set, None)?.shape(),
        None => Client::connect(what.lab.as_deref())?.shape()?,
    };
    let text = match what.format {
        Format::Dot => drawing(&shape).dot(),
        Format::Mermaid => drawing(&shape).mermaid(),
        Format::Svg => drawing(&shape).svg_file(),
        Format::Json => serde_json::to_string(&shape).unwrap_or_default() + "\n",
    };
    match &what.output {
        Some(path) => std::fs::write(path, text).map_err(Error::file(path)),
        None => output::document(text),
    }
}

fn drawing(shape: &Shape) -> Drawing {
    let nodes = shape.nodes.iter().map(|node| {
        let mut details = node.addresses.clone();
        if node.kind == ShapeKind::Simulated {
            details.push("simulated".to_owned());
        }
        DrawnNode {
            name: node.name.clone(),
            is_host: node.kind != ShapeKind::Switch,
            details,
        }
    });
    let links = shape.links.iter().map(|link| {
        let label = match link.up {
            true => rate(link.rate_bps),
            false => format!("{}, down", rate(link.rate_bps)),
        };
        let end = |end: &::lab::ShapeEnd| {
            let port = end.port.as_ref().map(|port| format!(":{port}"));
            format!("{}{}", shape.nodes[end.node].name, port.unwrap_or_default())
        };
        let [one, other] = &link.ends;
        DrawnLink {
            nodes: [one.node, other.node],
            ports: [one, other].map(|end| end.port.clone().unwrap_or_default()),
            said: format!("{} \u{2013} {}: {label}", end(one), end(other)),
            label,
            is_down: !link.up,
            ..DrawnLink::default()
        }
    });
    let title = match shape.title.as_str() {
        "" => &shape.name,
        title => title,
    };
    Drawing {
        title: title.to_owned(),
        nodes: nodes.collect(),
        links: links.collect(),
    }
}

/// A rate in the largest unit that needs no more than one decimal place.
fn rate(bps: u64) -> String {
    let units = [
        (1_000_000_000_000, "Tb/s"),
        (1_000_000_000, "Gb/s"),
        (1_000_000, "Mb/s"),
    ];
    let unit = units
        .into_iter()
        .find(|(one, _)| bps >= *one && (bps * 10).is_multiple_of(*one));
    match unit {
        Some((one, name)) if bps.is_multiple_of(one) => format!("{} {name}", bps / one),
        Some((one, name)) => format!("{}.{} {name}", bps / one, bps * 10 / one % 10),
        None => format!("{bps} b/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_and_short() {
        let cases = [
            (100_000_000_000, "100 Gb/s"),
            (2_500_000_000, "2.5 Gb/s"),
            (1_600_000_000_000, "1.6 Tb/s"),
            (53_125_000_000, "53125 Mb/s"),
            (10_000_000, "10 Mb/s"),
            (1_234, "1234 b/s"),
        ];
        for (bps, expected) in cases {
            assert_eq!(rate(bps), expected);
        }
    }
}
