//! Errors of rules.

/// Why a rule cannot be read: the wrong value, and what to write in its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// Something other than what has to be in this place.
    #[error("`{value}` is no {what}: {remedy}")]
    Wrong {
        /// What the value had to be.
        what: &'static str,
        /// The value that was seen.
        value: String,
        /// What to write.
        remedy: String,
    },
    /// The rule ends too early.
    #[error("{after} has to be followed by {what}, as in `{example}`")]
    Missing {
        /// The word before.
        after: String,
        /// What is missing.
        what: &'static str,
        /// A rule that has it.
        example: &'static str,
    },
    /// A condition that is given twice.
    #[error("`{0}` is given twice: leave out one of them")]
    Twice(&'static str),
    /// A condition on something that the point does not have.
    #[error("{point} has no {condition}, so the rule would never apply: leave out `{condition}`")]
    NoSuchField {
        /// The point of the rule.
        point: String,
        /// Name of the condition, which is also what to leave out.
        condition: &'static str,
    },
    /// A fault that no adapter has.
    #[error("no adapter does this: {0}")]
    Impossible(String),
    /// Conditions that exclude each other.
    #[error("the rule would never apply: {0}")]
    Never(String),
}

impl RuleError {
    /// A wrong value, with what to write.
    pub(crate) fn wrong(what: &'static str, value: &str, remedy: impl Into<String>) -> Self {
        Self::Wrong {
            what,
            value: value.to_owned(),
            remedy: remedy.into(),
        }
    }
}
