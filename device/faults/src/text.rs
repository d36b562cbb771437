//! Words of a rule.

use crate::RuleError;

/// The words that are left of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a>(core::iter::Peekable<core::str::SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self(text.split_whitespace().peekable())
    }

    pub(crate) fn peek(&mut self) -> Option<&'a str> {
        self.0.peek().copied()
    }

    pub(crate) fn skip(&mut self) {
        self.0.next();
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next word, which has to be there.
    pub(crate) fn next_or(
        &mut self,
        after: &str,
        what: &'static str,
        example: &'static str,
    ) -> Result<&'a str, RuleError> {
        self.next().ok_or_else(|| RuleError::Missing {
            after: format!("`{after}`"),
            what,
            example,
        })
    }
}
