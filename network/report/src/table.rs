//! Tables that fit the page: where one is wider than what it stands in, each of its rows is a card.

use std::fmt::Write;

use crate::escape;

/// Widths of the surroundings, in rem, below which tables are cards. A table has the class of the least width
/// that it fits in; one that fits in none is always cards.
const WIDTHS: [usize; 7] = [18, 24, 32, 40, 48, 56, 64];

/// Letters that a cell has in one line; longer ones are broken.
const CELL_MAX: usize = 28;

/// Letters from which a value of a card takes twice the room.
const SHORT_MAX: usize = 15;

/// The style of tables, which [`crate::head`] has already.
pub fn table_style() -> String {
    let mut style = "\n.fit { container-type: inline-size; overflow-x: auto; }\n".to_owned();
    for width in WIDTHS {
        let _ = write!(
            style,
            "@container (max-width: {width}rem) {{\n{}}}\n",
            cards(&class(Some(width)))
        );
    }
    style + &cards(&class(None))
}

/// The class of tables that fit in a width, or in none.
fn class(width: Option<usize>) -> String {
    width.map_or_else(|| "wide".to_owned(), |width| format!("w{width}"))
}

/// The style of tables of a class as cards: the name of a column stands above its value.
fn cards(class: &str) -> String {
    format!(
        ".{class}, .{class} tbody {{ display: block; }} .{class} tr:first-child {{ display: none; }}\n\
         .{class} tr {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); \
         border-bottom: 1px solid var(--rule); padding: .3rem 0; }}\n\
         .{class} td {{ text-align: left; border: 0; padding: .1rem .5rem .1rem 0; white-space: normal; \
         overflow-wrap: anywhere; }}\n\
         .{class} td::before {{ content: attr(data-head); display: block; color: var(--soft); \
         font-size: .75rem; font-weight: 400; }}\n\
         .{class} td:first-child {{ grid-column: 1 / -1; font-weight: 600; }}\n\
         .{class} td.long {{ grid-column: span 2; }} .{class} td.none {{ display: none; }}\n"
    )
}

/// The width that a table needs in rem, with half of a rem for a letter.
fn width(head: &[&str], rows: &[Vec<String>]) -> usize {
    let letters = |text: &str| text.chars().count();
    let of_column = |column: usize| {
        let words = head[column].split_whitespace().map(letters);
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| letters(cell).min(CELL_MAX));
        words.chain(cells).max().unwrap_or(0)
    };
    // Both paddings of a cell are three letters wide.
    let letters: usize = (0..head.len()).map(|column| of_column(column) + 3).sum();
    letters.div_ceil(2)
}

/// A table of a head and rows.
pub fn rows(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let needed = width(head, &rows);
    let class = class(WIDTHS.into_iter().find(|width| *width >= needed));
    let names: Vec<String> = head.iter().map(|name| escape(name)).collect();
    let mut text = format!("<div class=\"fit\"><table class=\"{class}\"><tr>");
    for name in &names {
        let _ = write!(text, "<th>{name}</th>");
    }
    for row in rows {
        text += "</tr>\n<tr>";
        for (cell, name) in row.iter().zip(&names) {
            let class = match cell.chars().count() {
                _ if cell == "–" => " class=\"none\"",
                SHORT_MAX.. => " class=\"long\"",
                _ => "",
            };
            let _ = write!(
                text,
                "<td{class} data-head=\"{name}\">{}</td>",
                escape(cell)
            );
        }
    }
    text + "</tr>\n</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: &[&str]) -> String {
        let head = vec!["a<b"; cells.len()];
        let row = cells.iter().map(|cell| (*cell).to_owned()).collect();
        rows(&head, std::iter::once(row))
    }

    #[test]
    fn a_table_is_cards_below_the_width_that_it_needs() {
        // Six letters and three of padding in each column, two in a rem.
        let of = |columns| table(&vec!["1234.5"; columns]);
        for (columns, class) in [
            (1, "w18"),
            (4, "w18"),
            (5, "w24"),
            (14, "w64"),
            (15, "wide"),
        ] {
            let table = of(columns);
            assert!(
                table.contains(&format!("<table class=\"{class}\">")),
                "{columns}: {table}"
            );
        }
        let style = table_style();
        assert!(
            style.contains("@container (max-width: 64rem) {\n.w64, .w64 tbody { display: block; }")
        );
        // Long cells are broken, so they do not make a table wide.
        assert!(table(&["x".repeat(500).as_str()]).contains("\"w18\""));
    }

    #[test]
    fn cards_leave_missing_values_out_and_give_long_ones_room() {
        let table = table(&["a", "–", "123456789012345", "12345678901234"]);
        for expected in [
            "<td class=\"none\" data-head=\"a&lt;b\">–<",
            "<td class=\"long\" data-head=\"a&lt;b\">123456789012345<",
            "<td data-head=\"a&lt;b\">12345678901234<",
        ] {
            assert!(table.contains(expected), "{expected}: {table}");
        }
    }

    #[test]
    fn each_value_has_the_name_of_its_column() {
        assert_eq!(
            table(&["<1>", "2"]),
            "<div class=\"fit\"><table class=\"w18\"><tr><th>a&lt;b</th><th>a&lt;b</th></tr>\n\
             <tr><td data-head=\"a&lt;b\">&lt;1&gt;</td><td data-head=\"a&lt;b\">2</td></tr>\n\
             </table></div>\n"
        );
    }
}
