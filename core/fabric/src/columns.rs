//! Cells of text tables, padded with blanks to the width of their column. `format!` panics where a width is
//! above 65,535, and names in users' files may be that long.

use alloc::string::String;

/// The text, padded on the right.
pub fn left(cell: &str, width: usize) -> String {
    let mut text = String::from(cell);
    text.extend(blanks(cell, width));
    text
}

/// The text, padded on the left.
pub fn right(cell: &str, width: usize) -> String {
    let mut text: String = blanks(cell, width).collect();
    text += cell;
    text
}

fn blanks(cell: &str, width: usize) -> impl Iterator<Item = char> {
    core::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_wide_as_their_column_however_wide_that_is() {
        assert_eq!(
            (left("\u{e4}b", 4).as_str(), right("\u{e4}b", 4).as_str()),
            ("\u{e4}b  ", "  \u{e4}b")
        );
        assert_eq!(right("longer", 2), "longer");
        assert_eq!(left("x", 5_000_000).len(), 5_000_000);
    }
}
