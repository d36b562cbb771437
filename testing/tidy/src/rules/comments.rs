//! Documentation comments contain more than the name of the item.

use crate::{Finding, Tree};

/// A comment of so few words repeats the name below it ("Which.", "The key.").
const WORDS_MIN: usize = 3;

/// Documentation comments of one or two words. Where more text follows after an empty line, the first
/// paragraph is judged: it is what lists of items show.
pub fn short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        let text_of = |at: usize| {
            lines
                .get(at)
                .and_then(|line| line.strip_prefix("///"))
                .map(str::trim)
        };
        for (index, _) in lines.iter().enumerate() {
            let Some(text) = text_of(index).filter(|text| !text.is_empty()) else {
                continue;
            };
            let continues = text_of(index + 1).is_some_and(|next| !next.is_empty());
            let begins = index == 0 || text_of(index - 1).is_none();
            if begins && !continues && text.split_whitespace().count() < WORDS_MIN {
                let what =
                    format!("`{text}` says nothing that the name does not: write a sentence");
                findings.push(file.finding(index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_one_or_two_words_are_found() {
        let text = "/// Which.\npub a: u8,\n/// The length in bytes.\npub b: u8,\n/// Its\n/// sum.\n\
                    pub c: u8,\n/// The same.\n///\n/// # Errors\n/// When it fails.\nfn d() {}\n";
        let tree = Tree::of(&[("core/a/src/lib.rs", text)]);
        assert_eq!(
            short(&tree)
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>(),
            [1, 8]
        );
    }
}
