//! Parameters of functions. A tuple that is taken apart in the list of parameters hides arguments:
//! no caller sees their order. A struct names them.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// Parameters that are tuples.
pub fn tuples(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let Ok(tokens) = Tokens::of(&file.text) else {
            findings.push(file.finding(0, "is not Rust"));
            continue;
        };
        for (function, line) in tokens.tuple_parameters() {
            let what = format!("`{function}` has a tuple as parameter: name its parts");
            findings.push(file.finding(line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found_in_lists_of_parameters_alone() {
        let text =
            "fn f(&self, (a, b): (u8, u8)) { g(|(c, d): (u8, u8)| c); let (e, h): (u8, u8) = x; }";
        let tree = Tree::of(&[("a.rs", text)]);
        assert_eq!(tuples(&tree).len(), 1);
    }
}
