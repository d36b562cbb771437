//! Columns of text, and numbers in units that keep them short.

use fabric::columns;

/// Columns of a terminal for the table of workloads, which has the most columns.
const COLUMNS: usize = 100;

/// Rows with columns as wide as their widest cell; the first column is text, the others are numbers.
pub(super) struct Rows(pub(super) Vec<Vec<String>>);

impl Rows {
    pub(super) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|cell| (*cell).to_owned()).collect()])
    }

    /// Leaves out columns in which no row has a value, from the right, until the table fits [`COLUMNS`].
    pub(super) fn fitting(mut self) -> Self {
        let says_nothing = |cell: &String| matches!(cell.as_str(), "-" | "0" | "0.00%");
        for column in (1..self.0[0].len()).rev() {
            let width = self.text().lines().map(|line| line.chars().count()).max();
            if width <= Some(COLUMNS) {
                break;
            }
            if self.0[1..].iter().all(|row| says_nothing(&row[column])) {
                for row in &mut self.0 {
                    row.remove(column);
                }
            }
        }
        self
    }

    pub(super) fn text(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.0 {
            let mut line = String::from(" ");
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if index == 0 {
                    line += " ";
                    line += &columns::left(cell, *width);
                } else {
                    line += "  ";
                    line += &columns::right(cell, *width);
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Microseconds, in the unit that keeps them short.
pub(super) fn time(us: f64) -> String {
    match us {
        0.0 => "0".to_owned(),
        us if us < 1.0 => format!("{:.0}ns", us * 1e3),
        us if us < 1e3 => format!("{us:.2}us"),
        us if us < 1e6 => format!("{:.3}ms", us / 1e3),
        us => format!("{:.3}s", us / 1e6),
    }
}

pub(super) fn size(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1024.0 => format!("{bytes:.0}B"),
        bytes if bytes < 1024.0 * 1024.0 => format!("{:.1}KiB", bytes / 1024.0),
        bytes => format!("{:.2}MiB", bytes / 1024.0 / 1024.0),
    }
}
