//! Crates that are written for the first time just now. Rules of form wait for them; rules of substance do
//! not.

use crate::Finding;

/// The folders, and what is still on the way.
pub const SETTLING: &[(&str, &str)] = &[];

/// `findings` but for those in crates that are settling.
pub fn spare(findings: Vec<Finding>) -> Vec<Finding> {
    let settling = |finding: &Finding| SETTLING.iter().any(|(folder, _)| finding.path.starts_with(folder));
    findings.into_iter().filter(|finding| !settling(finding)).collect()
}

/// Crates in the list that nothing would be found in any more.
pub fn settled(findings: &[Finding]) -> Vec<Finding> {
    let idle = |folder: &str| !findings.iter().any(|finding| finding.path.starts_with(folder));
    let what = "has settled: take it out of testing/tidy/src/rules/settling.rs";
    let settled = SETTLING.iter().filter(|(folder, _)| idle(folder));
    settled
        .map(|(folder, _)| Finding { path: (*folder).to_owned(), line: 0, what: what.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemptions_that_are_not_needed_are_found() {
        let finding = |path: &str| Finding { path: path.to_owned(), line: 1, what: String::new() };
        let elsewhere = finding("core/wire/src/a.rs");
        let inside: Vec<_> = SETTLING.iter().map(|(folder, _)| finding(&format!("{folder}a.rs"))).collect();
        assert!(settled(&inside).is_empty());
        assert_eq!(settled(core::slice::from_ref(&elsewhere)).len(), SETTLING.len());
        let everywhere = [inside, vec![elsewhere.clone()]].concat();
        assert_eq!(spare(everywhere), [elsewhere]);
    }
}
