//! A drawing of results: each ratio beside its goal, on a logarithmic scale.

use std::fmt::Write as _;

use crate::measured::{Held, Measured};
use crate::results::Results;
use crate::row::Bound;

const WIDTH: f64 = 960.0;
const ROW: f64 = 18.0;
/// Where the scale begins and ends, right of the names.
const LEFT: f64 = 620.0;
const RIGHT: f64 = 940.0;
/// Room above the first line, for the marks of the scale.
const TOP: f64 = 48.0;
/// The ends of the scale: the goal divided and multiplied by this.
const REACH: f64 = 16.0;
const MARKS: [f64; 5] = [1.0 / 16.0, 0.25, 1.0, 4.0, 16.0];

/// How many times as good as its goal a figure or a ratio is.
fn times(goal: Bound, figure: f64) -> f64 {
    match goal {
        Bound::AtLeast(least) => figure / least,
        Bound::AtMost(most) => most / figure,
    }
}

/// The place on the scale; what is beyond an end is drawn at the end.
fn place(times: f64) -> f64 {
    let part = times.clamp(1.0 / REACH, REACH).log(REACH).mul_add(0.5, 0.5);
    part.mul_add(RIGHT - LEFT, LEFT)
}

fn escaped(text: &str) -> String {
    text.replace('`', "")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
}

/// What a line is about: the row and its peer.
fn label(row: &Measured, held: &Held) -> String {
    match &held.peer {
        Some(peer) => format!("{} / {peer}", row.name),
        None => row.name.clone(),
    }
}

/// All ratios and figures that have a goal: a dot at the median, a line from the lowest to the highest round.
/// Right of the middle the goal is met.
pub(crate) fn svg(results: &Results) -> String {
    let mut lines = Vec::new();
    for row in &results.rows {
        for held in row.held() {
            if let Some(goal) = held.goal {
                lines.push((label(row, &held), held.summary, goal));
            }
        }
    }
    let height = ROW.mul_add(
        f64::from(u32::try_from(lines.len()).unwrap_or(0)),
        TOP + 8.0,
    );
    let head = escaped(&results.head());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\">\n<title>{head}</title>\n\
         <style>text {{ font: 12px sans-serif; fill: #24292f }} .end {{ text-anchor: end }} \
         .middle {{ text-anchor: middle }} line {{ stroke: #8c959f }} \
         .met {{ fill: #1a7f37; stroke: #1a7f37 }} .missed {{ fill: #cf222e; stroke: #cf222e }} \
         .between {{ fill: #9a6700; stroke: #9a6700 }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} \
         rect {{ fill: #0d1117 }} }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"16\">times as good as the goal: worse left, better right</text>\n"
    );
    for mark in MARKS {
        let (x, bottom) = (place(mark), height - 8.0);
        // A `String` takes all that is written.
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\" stroke-width=\"{}\"/>\
             <text class=\"middle\" x=\"{x:.1}\" y=\"{}\">{mark}</text>",
            TOP - 8.0,
            if mark == 1.0 { 2 } else { 1 },
            TOP - 12.0
        );
    }
    for (index, (label, summary, goal)) in lines.iter().enumerate() {
        let y = ROW.mul_add(f64::from(u32::try_from(index).unwrap_or(0)), TOP + 8.0);
        let class = match goal.verdict(summary.low, summary.high) {
            "met" => "met",
            "missed" => "missed",
            _ => "between",
        };
        let ends = [summary.low, summary.median, summary.high].map(|it| place(times(*goal, it)));
        let _ = writeln!(
            svg,
            "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>\
             <line class=\"{class}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" \
             stroke-width=\"3\"/>\
             <circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y}\" r=\"4\"/>",
            LEFT - 12.0,
            y + 4.0,
            escaped(label),
            ends[0],
            ends[2],
            ends[1]
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn the_goal_is_in_the_middle_and_better_is_right_of_it() {
        let middle = f64::midpoint(LEFT, RIGHT);
        let is_right = |goal, figure| place(times(goal, figure)) > middle + 1.0;
        assert!((place(times(Bound::AtLeast(2.0), 2.0)) - middle).abs() < 1e-9);
        assert!(is_right(Bound::AtLeast(2.0), 2.2) && !is_right(Bound::AtLeast(2.0), 1.8));
        assert!(is_right(Bound::AtMost(2.0), 1.8) && !is_right(Bound::AtMost(2.0), 2.2));
        assert!((place(1e6) - RIGHT).abs() < 1e-9 && (place(0.0) - LEFT).abs() < 1e-9);
    }

    #[test]
    fn each_goal_has_a_line_in_the_colour_of_its_verdict() {
        let svg = svg(&results("AMD"));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a copy / memcpy") && svg.contains("class=\"between\""));
    }
}
