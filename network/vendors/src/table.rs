//! Tables of switches: a line of heads, a line of dashes below the columns, and rows.

use crate::sections::Section;
use crate::text::Line;

/// A table; cells are without blanks at their ends.
pub(crate) struct Table<'a, 'b> {
    heads: Vec<String>,
    pub(crate) rows: Vec<(&'b Line<'a>, Vec<String>)>,
}

impl Table<'_, '_> {
    /// The number of a column.
    pub(crate) fn column(&self, head: &str) -> Option<usize> {
        self.heads
            .iter()
            .position(|own| own.eq_ignore_ascii_case(head))
    }
}

/// The tables of a section. A table ends before the heads of the next one, and at a line that has a word in
/// the space between two columns.
pub(crate) fn tables<'a, 'b>(section: &'b Section<'a>) -> Vec<Table<'a, 'b>> {
    let mut found: Vec<Table<'a, 'b>> = Vec::new();
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for (index, line) in section.lines.iter().enumerate() {
        let next_is_dashes = section.lines.get(index + 1).is_some_and(is_dashes);
        if is_dashes(line) {
            columns = spans(line);
            let heads = index
                .checked_sub(1)
                .and_then(|before| section.lines.get(before));
            let heads = heads
                .and_then(|heads| cells(heads, &columns))
                .unwrap_or_default();
            found.push(Table {
                heads,
                rows: Vec::new(),
            });
        } else if next_is_dashes {
            columns.clear();
        } else if let (Some(cells), Some(table)) = (cells(line, &columns), found.last_mut()) {
            table.rows.push((line, cells));
        } else {
            columns.clear();
        }
    }
    found
}

fn is_dashes(line: &Line<'_>) -> bool {
    line.text.contains("--") && line.text.chars().all(|letter| matches!(letter, '-' | ' '))
}

/// Letters with the place of each, from the begin of the line.
fn letters<'a>(line: &'a Line<'_>) -> impl Iterator<Item = (usize, char)> + 'a {
    (line.indent..).zip(line.text.chars())
}

fn spans(dashes: &Line<'_>) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (at, letter) in letters(dashes) {
        match (letter, spans.last_mut()) {
            ('-', Some((_, end))) if *end == at => *end = at + 1,
            ('-', _) => spans.push((at, at + 1)),
            _ => {}
        }
    }
    spans
}

/// A row whose cells are wider than its columns: a word for each column.
fn words_as_cells(line: &Line<'_>, count: usize) -> Option<Vec<String>> {
    let words = line.words();
    let is_row = words.len() == count && count > 1;
    is_row.then(|| words.into_iter().map(str::to_owned).collect())
}

/// The cells of a row; `None` where the line is no row of these columns.
fn cells(line: &Line<'_>, columns: &[(usize, usize)]) -> Option<Vec<String>> {
    if columns.is_empty() {
        return None;
    }
    let mut cells = vec![String::new(); columns.len()];
    for (at, letter) in letters(line) {
        let column = columns
            .iter()
            .position(|(from, to)| (*from..*to).contains(&at));
        match column {
            Some(column) => cells[column].push(letter),
            // Text beyond the dashes of the last column belongs to that column.
            None if columns.last().is_some_and(|(_, end)| at >= *end) => {
                cells[columns.len() - 1].push(letter)
            }
            None if letter.is_whitespace() => {}
            None => return words_as_cells(line, columns.len()),
        }
    }
    Some(
        cells
            .into_iter()
            .map(|cell| cell.trim().to_owned())
            .collect(),
    )
}
