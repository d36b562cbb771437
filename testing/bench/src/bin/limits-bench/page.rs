//! The tables that are made of results: `docs/performance.md` has ratios, `docs/lab-book/bench.md` figures
//! and drawings.

use std::path::Path;
use std::{fs, io};

use bench::Table;

use crate::drawing;
use crate::measured::{Held, Measured};
use crate::results::Results;

/// The folder of the results, in `docs`.
pub(crate) const RESULTS: &str = "lab-book/bench";

const RATIOS: &str = "performance.md";
const FIGURES: &str = "lab-book/bench.md";
const BEGIN: &str = "<!-- made by `make bench` -->";
const END: &str = "<!-- end of what `make bench` makes -->";

/// Writes both pages and the drawings, from the results that are kept.
pub(crate) fn write_all(docs: &Path) -> io::Result<()> {
    let all = Results::last(&docs.join(RESULTS))?;
    for results in &all {
        let name = format!("{}.svg", results.file_stem());
        fs::write(docs.join(RESULTS).join(name), drawing::svg(results))?;
    }
    write(&docs.join(RATIOS), &ratios(&all))?;
    write(&docs.join(FIGURES), &drawn_figures(&all))
}

/// The names of all rows, in the order of the first results that have them.
fn names(all: &[Results]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in all.iter().flat_map(|it| &it.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

fn row<'a>(results: &'a Results, name: &str) -> Option<&'a Measured> {
    results.rows.iter().find(|row| row.name == name)
}

fn heads(all: &[Results]) -> String {
    all.iter().map(|it| format!("- {}\n", it.head())).collect()
}

/// A line for each figure with a goal, and for each peer: the ratio, the goal, and whether it is met.
pub(crate) fn ratios(all: &[Results]) -> String {
    let columns = all
        .iter()
        .flat_map(|it| [format!("ratio, {}", it.machine.processor), "met".to_owned()]);
    let first = ["what", "peer", "goal"].map(str::to_owned);
    let mut table = Table::new(3, first.into_iter().chain(columns));
    for name in names(all) {
        let mut held: Vec<Vec<Held>> = Vec::new();
        held.extend(
            all.iter()
                .map(|it| row(it, name).map(Measured::held).unwrap_or_default()),
        );
        let longest = held.iter().max_by_key(|lines| lines.len());
        for line in longest.into_iter().flatten() {
            let cells = held.iter().flat_map(|lines| {
                let one = lines.iter().find(|it| it.peer == line.peer);
                one.map_or_else(|| ["not measured".to_owned(), String::new()], ratio_cells)
            });
            let first = [
                name.to_owned(),
                line.peer.clone().unwrap_or_default(),
                line.goal_text.clone(),
            ];
            table.push(first.into_iter().chain(cells));
        }
    }
    format!("{}\n{}", heads(all), table.markdown())
}

fn ratio_cells(held: &Held) -> [String; 2] {
    let verdict = held
        .goal
        .map(|goal| goal.verdict(held.summary.low, held.summary.high));
    let met = match verdict {
        None => "",
        Some("met") => "yes",
        Some("missed") => "**no**",
        Some(between) => between,
    };
    [held.text.clone(), met.to_owned()]
}

/// A table of all figures, with the spread of their repeats, with a column for each processor.
pub(crate) fn figures(all: &[Results]) -> String {
    let heads_of_columns = all.iter().map(|it| it.machine.processor.clone());
    let columns = ["what".to_owned()]
        .into_iter()
        .chain(heads_of_columns.flat_map(|name| [name, "goal".to_owned()]));
    let mut table = Table::new(1, columns);
    for name in names(all) {
        let cells = all.iter().flat_map(|it| {
            let row = row(it, name);
            let figure = row.map_or_else(|| "not measured".to_owned(), |row| row.figure());
            let ratios = row.map(|row| row.ratios()).filter(|it| !it.is_empty());
            let measured =
                ratios.map_or_else(|| figure.clone(), |ratios| format!("{figure}: {ratios}"));
            [measured, row.map(|row| row.verdicts()).unwrap_or_default()]
        });
        table.push([name.to_owned()].into_iter().chain(cells));
    }
    format!("{}\n{}", heads(all), table.markdown())
}

/// The drawings of all results, and their figures.
fn drawn_figures(all: &[Results]) -> String {
    let picture = |it: &Results| {
        let (processor, stem) = (&it.machine.processor, it.file_stem());
        format!("![Ratios on {processor} beside their goals](bench/{stem}.svg)\n\n")
    };
    let pictures: String = all.iter().map(picture).collect();
    format!("\n{pictures}{}", figures(all))
}

/// Puts a text between the marks of a page.
fn write(page: &Path, made: &str) -> io::Result<()> {
    let text = fs::read_to_string(page)?;
    let marks = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = marks else {
        let page = page.display();
        return Err(io::Error::other(format!(
            "{page}: the marks between which the table goes are gone: {BEGIN} and {END}"
        )));
    };
    fs::write(page, format!("{before}{BEGIN}\n{made}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    fn cells(line: &str) -> Vec<&str> {
        line.split('|').map(str::trim).collect()
    }

    #[test]
    fn processors_stand_side_by_side() {
        let mut other = results("Other");
        other.rows.clear();
        let text = figures(&[results("AMD"), other]);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines[0], "| what | AMD | goal | Other | goal |");
        let cells = cells(lines[2]);
        assert_eq!(cells[1], "a copy");
        assert_eq!(
            cells[2],
            "10.00 GB/s (-10/+10 %): 0.90 (-11/+11 %) of memcpy, 11.00 GB/s"
        );
        assert_eq!(
            cells[3],
            "at least 10 GB/s: within the noise; at least 0.8 of memcpy: met"
        );
        assert_eq!(cells[4..6], ["not measured", ""]);
    }

    #[test]
    fn ratios_have_a_line_for_each_goal_and_peer() {
        let mut other = results("Other");
        other.rows.clear();
        let text = ratios(&[results("AMD"), other]);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(
            lines[0],
            "| what | peer | goal | ratio, AMD | met | ratio, Other | met |"
        );
        let own = [
            "a copy",
            "",
            "at least 10 GB/s",
            "10.00 GB/s",
            "within the noise",
            "not measured",
            "",
        ];
        assert_eq!(cells(lines[2])[1..8], own);
        let beside = ["a copy", "memcpy", "at least 0.8", "0.90", "yes"];
        assert_eq!(cells(lines[3])[1..6], beside);
    }

    #[test]
    fn a_table_replaces_the_one_between_the_marks() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let page = folder.path().join("page.md");
        fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).expect("a page");
        write(&page, "new\n").expect("the marks are there");
        let text = fs::read_to_string(&page).expect("the page");
        assert_eq!(text, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        fs::write(&page, "no marks").expect("a page");
        assert!(write(&page, "new\n").is_err());
    }

    /// `UPDATE_DOCS=1` writes the pages.
    #[test]
    fn the_pages_are_made_of_the_results_that_are_kept() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            write_all(&docs).expect("the pages");
        }
        let all = Results::last(&docs.join(RESULTS)).expect("results");
        assert!(!all.is_empty(), "no results in docs/{RESULTS}");
        let text = |path: &str| fs::read_to_string(docs.join(path)).expect(path);
        for (page, made) in [(RATIOS, ratios(&all)), (FIGURES, drawn_figures(&all))] {
            let is_there = text(page).contains(&format!("{BEGIN}\n{made}{END}"));
            assert!(is_there, "docs/{page} differs from docs/{RESULTS}/*.json");
        }
        for results in &all {
            let name = format!("{RESULTS}/{}.svg", results.file_stem());
            assert_eq!(text(&name), drawing::svg(results), "{name}");
        }
    }

    /// A cell that has to be read twice belongs into the lab book.
    #[test]
    fn no_cell_of_the_table_of_ratios_has_more_than_twelve_words() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = fs::read_to_string(docs.join(RATIOS)).expect("the page");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        for cell in rows.flat_map(|line| line.split('|')) {
            let words = cell.split_whitespace().count();
            assert!(words <= 12, "{words} words: {cell}");
        }
    }
}
