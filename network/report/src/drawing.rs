//! Networks as drawings: SVG, and graphs in the languages of Graphviz and Mermaid.

use std::fmt::Write;

use crate::escape;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 110.0;
const MARGIN: f64 = 30.0;

/// Width of a letter of a name at most, and the distance between names.
const LETTER: f64 = 6.5;

/// What an SVG file of its own has, which a page has in its style.
const STYLE: &str = "<style>text { font: 11px sans-serif; fill: #444; } \
                     @media (prefers-color-scheme: dark) { text { fill: #bbb; } }</style>\n";

/// A network to be drawn: hosts below, and switches in rows by their distance from the hosts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Drawing {
    /// What is drawn.
    pub title: String,
    /// Hosts and switches.
    pub nodes: Vec<DrawnNode>,
    /// Links between them.
    pub links: Vec<DrawnLink>,
}

/// A host or a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrawnNode {
    /// The name, which is unique.
    pub name: String,
    /// Whether it is a host.
    pub is_host: bool,
    /// What is written beside the name, such as addresses.
    pub details: Vec<String>,
}

/// A link between two nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DrawnLink {
    /// The places of its nodes in the list.
    pub nodes: [usize; 2],
    /// The names of its ports; empty where a node has one only.
    pub ports: [String; 2],
    /// What is written at it, such as its rate.
    pub label: String,
    /// Whether it is out of operation.
    pub is_down: bool,
    /// The part of its rate that is used, where that is known.
    pub load: Option<f64>,
    /// What is shown where a pointer rests on it.
    pub said: String,
    /// What is shown at the end of a port that lost packets.
    pub lost: [Option<String>; 2],
}

/// A place in the picture.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

impl Drawing {
    /// The row of each node, 0 at the top; hosts are in the last one.
    fn rows(&self) -> Vec<usize> {
        let mut distance: Vec<Option<usize>> = self
            .nodes
            .iter()
            .map(|node| node.is_host.then_some(0))
            .collect();
        let mut furthest = 0;
        // Each round reaches one row further up; there are no more rows than nodes.
        for row in 1..=self.nodes.len() {
            let mut reached = Vec::new();
            for link in &self.links {
                for [below, above] in [link.nodes, [link.nodes[1], link.nodes[0]]] {
                    if distance[below] == Some(row - 1) && distance[above].is_none() {
                        reached.push(above);
                    }
                }
            }
            if reached.is_empty() {
                break;
            }
            furthest = row;
            reached
                .into_iter()
                .for_each(|node| distance[node] = Some(row));
        }
        // What no host reaches is at the top.
        let row = |distance: Option<usize>| furthest - distance.unwrap_or(furthest);
        distance.into_iter().map(row).collect()
    }

    /// The nodes of each row.
    fn nodes_by_row(&self) -> Vec<Vec<usize>> {
        let rows = self.rows();
        let mut found = vec![Vec::new(); rows.iter().max().map_or(0, |last| last + 1)];
        for (node, row) in rows.into_iter().enumerate() {
            found[row].push(node);
        }
        found
    }

    /// The picture as an element of a page.
    pub fn svg(&self) -> String {
        self.picture("")
    }

    /// The picture as a file of its own.
    pub fn svg_file(&self) -> String {
        let title = escape(&self.title);
        let more = format!(" xmlns=\"http://www.w3.org/2000/svg\"><title>{title}</title>\n{STYLE}");
        self.picture(&more)
    }

    /// The element, with `more` before the end of its tag, or behind it.
    fn picture(&self, more: &str) -> String {
        let rows = self.nodes_by_row();
        let height = MARGIN * 2.0 + ROW * (rows.len().saturating_sub(1)) as f64;
        let (class, end) = match more {
            "" => (" class=\"network\"", ">\n"),
            more => ("", more),
        };
        let mut svg = format!(
            "<svg{class} viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"the network\"{end}"
        );
        let places = places(&rows, self.nodes.len(), height);
        for (number, link) in self.links.iter().enumerate() {
            draw_link(&mut svg, number, link, link.nodes.map(|node| places[node]));
        }
        for row in &rows {
            let letters = row
                .iter()
                .map(|node| self.nodes[*node].name.chars().count());
            let name = LETTER * (1 + letters.max().unwrap_or(0)) as f64;
            let is_named = name * row.len() as f64 <= WIDTH - 2.0 * MARGIN;
            for node in row {
                draw_node(&mut svg, &self.nodes[*node], places[*node], is_named);
            }
        }
        svg + "</svg>\n"
    }

    /// The graph in Graphviz's language.
    pub fn dot(&self) -> String {
        let quoted =
            |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut text = format!("graph {} {{\n", quoted(&self.title));
        text +=
            "  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n";
        for node in &self.nodes {
            let shape = if node.is_host { "ellipse" } else { "box" };
            let lines: Vec<&str> = core::iter::once(&node.name)
                .chain(&node.details)
                .map(String::as_str)
                .collect();
            // Lines of a label are separated by the two characters \n.
            let label = quoted(&lines.join("\n")).replace('\n', "\\n");
            let _ = writeln!(
                text,
                "  {} [shape={shape}, label={label}];",
                quoted(&node.name)
            );
        }
        for row in self.nodes_by_row() {
            let names: Vec<String> = row
                .iter()
                .map(|node| quoted(&self.nodes[*node].name))
                .collect();
            let _ = writeln!(text, "  {{ rank=same; {}; }}", names.join("; "));
        }
        for link in self.downwards() {
            let [above, below] = link.nodes.map(|node| quoted(&self.nodes[node].name));
            let mut with = Vec::new();
            for (name, value) in [
                ("taillabel", &link.ports[0]),
                ("headlabel", &link.ports[1]),
                ("label", &link.label),
            ] {
                if !value.is_empty() {
                    with.push(format!("{name}={}", quoted(value)));
                }
            }
            if link.is_down {
                with.push("style=dashed, color=red".to_owned());
            }
            let _ = writeln!(text, "  {above} -- {below} [{}];", with.join(", "));
        }
        text + "}\n"
    }

    /// The graph in Mermaid's language, as Markdown pages show it.
    pub fn mermaid(&self) -> String {
        let shown = |text: &str| {
            let escaped = text.replace('#', "#35;").replace('"', "#quot;");
            escaped.replace('<', "#lt;").replace('>', "#gt;")
        };
        let mut text = "graph TD\n".to_owned();
        for (number, node) in self.nodes.iter().enumerate() {
            let lines = core::iter::once(&node.name).chain(&node.details);
            let label: Vec<String> = lines.map(|line| shown(line)).collect();
            let label = label.join("<br>");
            let _ = match node.is_host {
                true => writeln!(text, "  n{number}([\"{label}\"])"),
                false => writeln!(text, "  n{number}[\"{label}\"]"),
            };
        }
        for link in self.downwards() {
            let ports: Vec<&str> = link.ports.iter().map(String::as_str).collect();
            let ports = ports.join(" ");
            let parts = [ports.trim(), link.label.as_str()];
            let parts: Vec<String> = parts
                .iter()
                .filter(|part| !part.is_empty())
                .map(|part| shown(part))
                .collect();
            let label = match parts.is_empty() {
                true => String::new(),
                false => format!("|\"{}\"|", parts.join("<br>")),
            };
            let line = if link.is_down { "-.-" } else { "---" };
            let [above, below] = link.nodes;
            let _ = writeln!(text, "  n{above} {line}{label} n{below}");
        }
        text
    }

    /// The links, each with its upper end first.
    fn downwards(&self) -> impl Iterator<Item = DrawnLink> {
        let rows = self.rows();
        self.links.iter().map(move |link| {
            let mut link = link.clone();
            if rows[link.nodes[0]] > rows[link.nodes[1]] {
                link.nodes.reverse();
                link.ports.reverse();
            }
            link
        })
    }
}

fn places(rows: &[Vec<usize>], count: usize, height: f64) -> Vec<Point> {
    let mut places = vec![Point { x: 0.0, y: 0.0 }; count];
    let step = (height - 2.0 * MARGIN) / rows.len().saturating_sub(1).max(1) as f64;
    for (row, nodes) in rows.iter().enumerate() {
        for (index, node) in nodes.iter().enumerate() {
            let x = MARGIN + (WIDTH - 2.0 * MARGIN) * (index as f64 + 0.5) / nodes.len() as f64;
            let y = MARGIN + step * row as f64;
            places[*node] = Point { x, y };
        }
    }
    places
}

/// From grey over green and orange to red.
fn colour(load: f64) -> String {
    match load {
        load if load < 0.01 => "#9994".to_owned(),
        load => format!("hsl({:.0} 75% 42%)", 130.0 - 130.0 * load.min(1.0)),
    }
}

fn draw_link(svg: &mut String, number: usize, link: &DrawnLink, ends: [Point; 2]) {
    let [Point { x: x1, y: y1 }, Point { x: x2, y: y2 }] = ends;
    let stroke = match (link.is_down, link.load) {
        (true, _) => "#c62828\" stroke-dasharray=\"6 5".to_owned(),
        (false, Some(load)) => colour(load),
        (false, None) => "#888".to_owned(),
    };
    let width = 1.0 + 2.0 * link.load.unwrap_or(0.25);
    let _ = writeln!(
        svg,
        "<line data-link=\"{number}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
         stroke=\"{stroke}\" stroke-width=\"{width:.1}\"><title>{}</title></line>",
        escape(&link.said)
    );
    for (lost, [from, to]) in link.lost.iter().zip([ends, [ends[1], ends[0]]]) {
        if let Some(said) = lost {
            let (x, y) = (
                from.x + (to.x - from.x) * 0.15,
                from.y + (to.y - from.y) * 0.15,
            );
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#c62828\"><title>{}</title></circle>",
                escape(said)
            );
        }
    }
}

fn draw_node(svg: &mut String, node: &DrawnNode, at: Point, is_named: bool) {
    let Point { x, y } = at;
    let name = escape(&node.name);
    let lines = core::iter::once(&node.name).chain(&node.details);
    let said: Vec<String> = lines.map(|line| escape(line)).collect();
    let said = said.join("\n");
    let _ = match node.is_host {
        true => write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"#0072b2\"><title>{said}</title></circle>"
        ),
        false => write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"22\" height=\"14\" rx=\"3\" fill=\"#666\">\
             <title>{said}</title></rect>",
            x - 11.0,
            y - 7.0
        ),
    };
    if is_named {
        let below = if node.is_host { y + 20.0 } else { y - 12.0 };
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{name}</text>"
        );
    }
    svg.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts below a leaf, below a spine, and a switch that no host reaches.
    fn drawing() -> Drawing {
        let node = |name: &str, is_host| DrawnNode {
            name: name.to_owned(),
            is_host,
            details: Vec::new(),
        };
        let link = |nodes, port: &str, is_down| DrawnLink {
            nodes,
            ports: [String::new(), port.to_owned()],
            label: "100 Gb/s".to_owned(),
            is_down,
            ..DrawnLink::default()
        };
        let mut nodes = vec![
            node("h0", true),
            node("h\"1", true),
            node("leaf", false),
            node("spine", false),
            node("alone", false),
        ];
        nodes[0].details.push("10.0.0.1".to_owned());
        Drawing {
            title: "<a & \"b\">".to_owned(),
            nodes,
            links: vec![
                link([0, 2], "0", false),
                link([1, 2], "1", true),
                link([2, 3], "0", false),
            ],
        }
    }

    #[test]
    fn hosts_are_below_and_what_no_host_reaches_is_above() {
        assert_eq!(drawing().rows(), [2, 2, 1, 0, 0]);
        assert_eq!(Drawing::default().rows(), [0; 0]);
        assert!(Drawing::default().svg().starts_with("<svg"));
    }

    #[test]
    fn names_are_written_where_a_row_has_room_for_them() {
        let row = |count: usize| Drawing {
            nodes: (10..10 + count)
                .map(|number| DrawnNode {
                    name: format!("edge{number}"),
                    ..DrawnNode::default()
                })
                .collect(),
            ..Drawing::default()
        };
        let named = |count| row(count).svg().matches("<text").count();
        assert_eq!((named(20), named(21)), (20, 0));
    }

    #[test]
    fn graphviz_has_each_node_and_link_and_quotes_names() {
        let text = drawing().dot();
        for line in [
            "graph \"<a & \\\"b\\\">\" {",
            "  \"h0\" [shape=ellipse, label=\"h0\\n10.0.0.1\"];",
            "  \"leaf\" [shape=box, label=\"leaf\"];",
            "  { rank=same; \"h0\"; \"h\\\"1\"; }",
            "  \"leaf\" -- \"h0\" [taillabel=\"0\", label=\"100 Gb/s\"];",
            "  \"leaf\" -- \"h\\\"1\" [taillabel=\"1\", label=\"100 Gb/s\", style=dashed, color=red];",
            "  \"spine\" -- \"leaf\" [taillabel=\"0\", label=\"100 Gb/s\"];",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }

    #[test]
    fn mermaid_has_each_node_and_link_and_no_character_of_its_own_in_names() {
        assert_eq!(
            drawing().mermaid(),
            "graph TD\n  n0([\"h0<br>10.0.0.1\"])\n  n1([\"h#quot;1\"])\n  n2[\"leaf\"]\n  n3[\"spine\"]\n  \
             n4[\"alone\"]\n  n2 ---|\"0<br>100 Gb/s\"| n0\n  n2 -.-|\"1<br>100 Gb/s\"| n1\n  \
             n3 ---|\"0<br>100 Gb/s\"| n2\n"
        );
    }

    #[test]
    fn a_file_of_svg_names_its_language_and_escapes_its_title() {
        let file = drawing().svg_file();
        assert!(
            file.contains("xmlns=\"http://www.w3.org/2000/svg\""),
            "{file}"
        );
        assert!(
            file.contains("<title>&lt;a &amp; &quot;b&quot;&gt;</title>"),
            "{file}"
        );
        assert_eq!(file.matches("<line").count(), 3);
        assert_eq!(file.matches("stroke-dasharray").count(), 1);
        assert!(!drawing().svg().contains("xmlns"));
    }
}
