//! Tables as text for a terminal, and as Markdown.

/// Rows of cells under a head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    left: usize,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads. Text aligns the first `left` columns to the left and the others, which are
    /// figures, to the right.
    pub fn new<H: Into<String>>(left: usize, heads: impl IntoIterator<Item = H>) -> Self {
        Self {
            left,
            lines: vec![heads.into_iter().map(Into::into).collect()],
        }
    }

    /// Appends a row.
    pub fn push<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.lines.push(cells.into_iter().map(Into::into).collect());
    }

    /// Columns as wide as their widest cells, with two blanks between them.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let mut text = String::new();
        for line in &self.lines {
            let aligned = line.iter().enumerate().map(|(column, cell)| {
                let width = width(column);
                if column < self.left {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            text += aligned.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// A table of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (index, line) in self.lines.iter().enumerate() {
            text += &format!("| {} |\n", line.join(" | "));
            if index == 0 {
                text += &format!("|{}\n", "---|".repeat(line.len()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(1, ["what", "µs"]);
        table.push(["a".to_owned(), format!("{:.1}", 10.25)]);
        table
    }

    #[test]
    fn text_is_aligned_by_characters() {
        assert_eq!(table().text(), "what    µs\na     10.2\n");
    }

    #[test]
    fn markdown_has_a_line_below_the_head() {
        assert_eq!(
            table().markdown(),
            "| what | µs |\n|---|---|\n| a | 10.2 |\n"
        );
    }
}
