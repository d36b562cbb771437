//! Words and signs of Junos' configurations.

use crate::text::Line;

/// A word or a sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A word, or a string without its quotes.
    Word(&'a str),
    /// The sign `{`, which opens a block.
    Open,
    /// The sign `}`, which closes a block.
    Close,
    /// The sign `;`, which ends a statement.
    End,
}

/// Cuts lines into tokens, without comments: `#` up to the end of a line, and `/* … */` over several lines.
/// Brackets of lists are words.
#[derive(Default)]
pub(super) struct Tokens {
    is_in_comment: bool,
}

impl Tokens {
    /// The tokens of the next line.
    pub(super) fn of<'a>(&mut self, line: &Line<'a>) -> Vec<Token<'a>> {
        let mut found = Vec::new();
        let mut rest = line.text;
        loop {
            if self.is_in_comment {
                let Some((_, after)) = rest.split_once("*/") else {
                    return found;
                };
                (rest, self.is_in_comment) = (after, false);
            }
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else {
                return found;
            };
            let one = first.len_utf8();
            match first {
                '#' => return found,
                '/' if rest.starts_with("/*") => {
                    self.is_in_comment = true;
                    rest = &rest[2..];
                    continue;
                }
                '{' => found.push(Token::Open),
                '}' => found.push(Token::Close),
                ';' => found.push(Token::End),
                '[' | ']' => found.push(Token::Word(&rest[..one])),
                '"' => {
                    let inner = &rest[1..];
                    let end = inner.find('"').unwrap_or(inner.len());
                    found.push(Token::Word(&inner[..end]));
                    rest = inner.get(end + 1..).unwrap_or_default();
                    continue;
                }
                _ => {
                    let is_end =
                        |letter: char| letter.is_whitespace() || "{};[]\"".contains(letter);
                    let end = rest.find(is_end).unwrap_or(rest.len());
                    found.push(Token::Word(&rest[..end]));
                    rest = &rest[end..];
                    continue;
                }
            }
            rest = &rest[one..];
        }
    }
}
