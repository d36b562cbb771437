//! The table in `docs/performance.md`: all processors with results, side by side.

use std::path::Path;
use std::{fs, io};

use bench::Table;

use crate::results::Results;

const BEGIN: &str = "<!-- made by `make bench` -->";
const END: &str = "<!-- end of what `make bench` makes -->";

/// A table with a column for each processor.
pub(crate) fn table(all: &[Results]) -> String {
    let heads = all.iter().map(|it| it.machine.processor.clone());
    let heads = ["what".to_owned()]
        .into_iter()
        .chain(heads.flat_map(|name| [name, "goal".to_owned()]));
    let mut table = Table::new(1, heads);
    let mut names: Vec<&str> = Vec::new();
    for row in all.iter().flat_map(|it| &it.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    for name in names {
        let cells = all.iter().flat_map(|it| {
            let row = it.rows.iter().find(|row| row.name == name);
            let figure = row.map_or_else(|| "not measured".to_owned(), |row| row.figure());
            let ratios = row.map(|row| row.ratios()).filter(|it| !it.is_empty());
            let measured =
                ratios.map_or_else(|| figure.clone(), |ratios| format!("{figure}: {ratios}"));
            [measured, row.map(|row| row.verdicts()).unwrap_or_default()]
        });
        table.push([name.to_owned()].into_iter().chain(cells));
    }
    let machines: Vec<String> = all.iter().map(|it| format!("- {}\n", it.head())).collect();
    format!("{}\n{}", machines.concat(), table.markdown())
}

/// Puts a table between its marks in the page.
pub(crate) fn write(page: &Path, table: &str) -> io::Result<()> {
    let text = fs::read_to_string(page)?;
    let marks = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = marks else {
        return Err(io::Error::other(
            "the marks between which the table goes are gone",
        ));
    };
    fs::write(page, format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn processors_stand_side_by_side() {
        let mut other = results("Other");
        other.rows.clear();
        let text = table(&[results("AMD"), other]);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines[0], "| what | AMD | goal | Other | goal |");
        let cells: Vec<&str> = lines[2].split('|').map(str::trim).collect();
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
}
