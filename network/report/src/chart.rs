//! Lines in a frame, as SVG.

use std::fmt::Write;

use super::escape;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;

/// Points of a line with steps that are drawn at most: more points than pixels are not visible.
const STEPS_MAX: usize = 800;

/// Points of another line that are drawn one by one: of more, slopes up and down would run into one block.
const POINTS_MAX: usize = 200;

/// Groups of points of a longer line: each is four units wide.
const GROUPS: usize = 100;

/// Colours that people with any colour vision tell apart (Okabe and Ito, 2008).
pub(crate) const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a",
];

/// One line of a chart, with its name in the legend.
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Abscissa and ordinate of each point, in order of the abscissa.
    pub points: Vec<(f64, f64)>,
}

/// A line chart with titles of its axes.
pub struct Chart<'a> {
    /// The title below the chart.
    pub title: &'a str,
    /// The title of the abscissa, with its unit.
    pub x: &'a str,
    /// The title of the ordinate, with its unit.
    pub y: &'a str,
    /// The lines, each in a colour of its own.
    pub lines: Vec<Line>,
    /// Steps between points, not slopes.
    pub step: bool,
}

/// A mapping from values to positions.
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64>, start: f64, end: f64, from_zero: bool) -> Self {
        let (mut from, mut to) = values.fold((f64::MAX, f64::MIN), |(from, to), value| {
            (from.min(value), to.max(value))
        });
        if from_zero {
            from = from.min(0.0);
        }
        if to - from < f64::EPSILON * to.abs().max(1.0) {
            to = from + if from == 0.0 { 1.0 } else { from.abs() * 0.01 };
        }
        Self {
            from,
            to,
            start,
            end,
        }
    }

    fn at(&self, value: f64) -> f64 {
        self.start + (value - self.from) / (self.to - self.from) * (self.end - self.start)
    }

    /// Round numbers within the scale: 1, 2 or 5 times a power of ten apart.
    fn ticks(&self) -> Vec<f64> {
        let step = self.step();
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }

    /// The distance of ticks.
    fn step(&self) -> f64 {
        let rough = (self.to - self.from) / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough);
        step.unwrap_or(rough)
    }
}

/// A tick, with as many digits as tell it from those beside it at this distance.
fn label(value: f64, step: f64) -> String {
    let (value, step, unit) = match value.abs().max(step) {
        size if size >= 1e6 => (value / 1e6, step / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, step / 1e3, "k"),
        _ => (value, step, ""),
    };
    let digits = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
    match value {
        0.0 => "0".to_owned(),
        _ => format!("{value:.digits$}{unit}"),
    }
}

/// The unit of an axis whose values are in `unit`, and how many of the values it is: times are shown in the
/// unit that keeps their numbers short.
fn shown_in(unit: &str, scale: &Scale) -> (String, f64) {
    match scale.to {
        to if unit == "µs" && to >= 1e7 => ("s".to_owned(), 1e6),
        to if unit == "µs" && to >= 1e4 => ("ms".to_owned(), 1e3),
        _ => (unit.to_owned(), 1.0),
    }
}

impl Chart<'_> {
    /// The chart as a figure; empty if no line has points.
    pub fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        if all().next().is_none() {
            return String::new();
        }
        let x = Scale::new(all().map(|point| point.0), LEFT, WIDTH - RIGHT, false);
        let y = Scale::new(all().map(|point| point.1), HEIGHT - BOTTOM, TOP, true);
        let mut svg = format!(
            "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.title)
        );
        self.axes(&mut svg, &x, &y);
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let title = escape(&line.name);
            if self.is_envelope(line) {
                let _ = writeln!(
                    svg,
                    "<path class=\"envelope\" d=\"{}\" fill=\"{colour}\" fill-opacity=\"0.15\">\
                     <title>{title}</title></path>",
                    outline(line, &x, &y)
                );
            }
            let _ = writeln!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                    stroke-width=\"1.5\"><title>{title}</title></path>",
                self.path(line, &x, &y)
            );
        }
        svg += "</svg><figcaption>";
        let _ = write!(svg, "{}: ", escape(self.title));
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let _ = write!(
                svg,
                "<span style=\"color:{colour}\">■</span> {} ",
                escape(&line.name)
            );
        }
        if self.lines.iter().any(|line| self.is_envelope(line)) {
            svg += "(line: mean; area: lowest to highest) ";
        }
        svg + "</figcaption></figure>\n"
    }

    fn axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (unit, size) = shown_in(self.x, x);
        for tick in x.ticks() {
            let (at, bottom) = (x.at(tick), HEIGHT - BOTTOM);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            );
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 14.0,
                label(tick / size, x.step() / size)
            );
        }
        for tick in y.ticks() {
            let (at, right) = (y.at(tick), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                at + 4.0,
                label(tick, y.step())
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(&unit)
        );
        let height = (TOP + HEIGHT - BOTTOM) / 2.0;
        let turn = format!("transform=\"rotate(-90 12 {height})\"");
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{height}\" text-anchor=\"middle\" {turn}>{}</text>",
            escape(self.y)
        );
    }

    /// Whether a line is drawn as the mean of groups of its points, in the area from lowest to highest.
    fn is_envelope(&self, line: &Line) -> bool {
        !self.step && line.points.len() > POINTS_MAX
    }

    /// The points of a line that are drawn: all, or the mean of each group. Of a line with steps, which rises
    /// only, every so many and the last.
    fn drawn(&self, line: &Line) -> Vec<(f64, f64)> {
        if self.is_envelope(line) {
            return groups(line).map(|group| (group.at, group.mean)).collect();
        }
        if self.step && line.points.len() > STEPS_MAX {
            let every = line.points.len().div_ceil(STEPS_MAX);
            let some = line.points.iter().step_by(every);
            return some.chain(line.points.last()).copied().collect();
        }
        line.points.clone()
    }

    fn path(&self, line: &Line, x: &Scale, y: &Scale) -> String {
        let mut path = String::new();
        for (count, (across, up)) in self.drawn(line).into_iter().enumerate() {
            let (across, up) = (x.at(across), y.at(up));
            let _ = match count {
                0 => write!(path, "M{across:.1} {up:.1}"),
                _ if self.step => write!(path, "H{across:.1}V{up:.1}"),
                _ => write!(path, "L{across:.1} {up:.1}"),
            };
        }
        path
    }
}

/// Neighbouring points of a long line.
struct Group {
    at: f64,
    lowest: f64,
    mean: f64,
    highest: f64,
}

/// The points of a line in groups of the same number. The first group begins, and the last one ends, where
/// the line does.
fn groups(line: &Line) -> impl DoubleEndedIterator<Item = Group> {
    let each = line.points.len().div_ceil(GROUPS);
    let last = line.points.len().div_ceil(each) - 1;
    let group = move |(number, points): (usize, &[(f64, f64)])| {
        let up = || points.iter().map(|point| point.1);
        let (first, end) = (points[0].0, points[points.len() - 1].0);
        Group {
            at: match number {
                0 => first,
                number if number == last => end,
                _ => f64::midpoint(first, end),
            },
            lowest: up().fold(f64::MAX, f64::min),
            mean: up().sum::<f64>() / points.len() as f64,
            highest: up().fold(f64::MIN, f64::max),
        }
    };
    let chunks: Vec<_> = line.points.chunks(each).enumerate().map(group).collect();
    chunks.into_iter()
}

/// The outline of the area between lowest and highest points: along the highest, and back along the lowest.
fn outline(line: &Line, x: &Scale, y: &Scale) -> String {
    let above = groups(line).map(|group| (group.at, group.highest));
    let below = groups(line).rev().map(|group| (group.at, group.lowest));
    let mut path = String::new();
    for (across, up) in above.chain(below) {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x.at(across), y.at(up));
    }
    path + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale::new([0.0, 97.0].into_iter(), 0.0, 100.0, true);
        assert_eq!(scale.ticks(), [0.0, 50.0]);
        let scale = Scale::new([3.2, 4.4].into_iter(), 0.0, 100.0, false);
        let ticks = scale.ticks();
        assert_eq!(ticks.len(), 2);
        assert!((ticks[0] - 3.5).abs() < 1e-9);
        assert!(
            Scale::new([7.0].into_iter(), 0.0, 1.0, false)
                .at(7.0)
                .is_finite()
        );
    }

    #[test]
    fn labels_tell_ticks_apart_and_long_times_are_in_milliseconds() {
        let labels = |from, to| {
            let scale = Scale::new([from, to].into_iter(), 0.0, 100.0, false);
            let step = scale.step();
            let ticks = scale.ticks();
            ticks
                .into_iter()
                .map(|tick| label(tick, step))
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(0.0, 4.0), ["0", "1", "2", "3", "4"]);
        assert_eq!(labels(8.12, 8.24), ["8.15", "8.20"]);
        assert_eq!(labels(0.0, 30_000.0), ["0", "10k", "20k", "30k"]);
        assert_eq!(
            labels(0.0, 0.004),
            ["0", "0.001", "0.002", "0.003", "0.004"]
        );
        let scale = |to| Scale::new([0.0, to].into_iter(), 0.0, 100.0, false);
        assert_eq!(shown_in("µs", &scale(10_000.0)), ("ms".to_owned(), 1e3));
        assert_eq!(shown_in("µs", &scale(9_000.0)), ("µs".to_owned(), 1.0));
        assert_eq!(shown_in("Gb/s", &scale(1e9)), ("Gb/s".to_owned(), 1.0));
    }

    /// A line that alternates between 0 and 1, with one peak.
    fn alternating(count: u32) -> Line {
        let mut points: Vec<_> = (0..count)
            .map(|at| (f64::from(at), f64::from(at % 2)))
            .collect();
        points[77].1 = 9.0;
        Line {
            name: "a".to_owned(),
            points,
        }
    }

    #[test]
    fn a_long_line_is_drawn_as_its_mean_within_lowest_and_highest() {
        let chart = |step, count| Chart {
            title: "t",
            x: "x",
            y: "y",
            lines: vec![alternating(count)],
            step,
        };
        let long = chart(false, 20_000);
        let drawn = long.drawn(&long.lines[0]);
        assert_eq!(drawn.len(), GROUPS);
        assert_eq!((drawn[0].0, drawn[GROUPS - 1].0), (0.0, 19_999.0));
        assert!(drawn[1..].iter().all(|(_, mean)| *mean == 0.5), "{drawn:?}");
        let svg = long.svg();
        // The top of the frame is the peak, the bottom is 0.
        let area = svg
            .split("class=\"envelope\" d=\"")
            .nth(1)
            .expect("an area");
        assert!(
            area.starts_with("M56.0 12.0L") && area.contains("L56.0 220.0Z"),
            "{area}"
        );
        assert!(svg.contains("area: lowest to highest"));
        // Drawn point by point: a short line, and steps.
        let short = chart(false, 200);
        assert_eq!(short.drawn(&short.lines[0]), short.lines[0].points);
        assert!(!short.svg().contains("envelope") && !short.svg().contains("area:"));
        let steps = chart(true, 20_000);
        let drawn = steps.drawn(&steps.lines[0]);
        assert!(drawn.len() <= STEPS_MAX + 1 && drawn.ends_with(&[(19_999.0, 1.0)]));
        assert!(!steps.svg().contains("envelope"));
    }

    #[test]
    fn a_chart_of_nothing_is_nothing_and_names_are_escaped() {
        let empty = Chart {
            title: "t",
            x: "x",
            y: "y",
            lines: Vec::new(),
            step: false,
        };
        assert_eq!(empty.svg(), "");
        let line = Line {
            name: "a<b".to_owned(),
            points: vec![(0.0, 0.0), (1.0, 2.0)],
        };
        let svg = Chart {
            lines: vec![line],
            ..empty
        }
        .svg();
        assert!(
            svg.contains("a&lt;b")
                && !svg.contains("a<b")
                && svg.contains("<path d=\"M56.0 220.0L468.0 12.0\"")
        );
    }
}
