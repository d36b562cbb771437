//! Configurations of the industry's usual form: commands, and below them commands that are indented.

use crate::text::{Line, ReadError, lines, number};

/// A command and the commands below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) below: Vec<Self>,
}

impl<'a> Block<'a> {
    /// The rest of the command after some words at its beginning.
    pub(crate) fn after(&self, words: &str) -> Option<&'a str> {
        let rest = self.line.text.strip_prefix(words)?;
        if rest.is_empty() || rest.starts_with(char::is_whitespace) {
            Some(rest.trim())
        } else {
            None
        }
    }

    /// An error of this command.
    pub(crate) fn wrong(&self, file: &str, what: &str) -> ReadError {
        ReadError::new(
            file,
            self.line.number,
            format!("\"{}\": {what}", crate::text::shortened(self.line.text)),
        )
    }

    /// A threshold of this command in bytes: a number and its unit, in powers of ten.
    pub(crate) fn threshold(&self, file: &str, word: &str, unit: &str) -> Result<u32, ReadError> {
        let factor = match unit {
            "bytes" => 1,
            "kbytes" => 1000,
            "mbytes" => 1_000_000,
            _ => return Err(self.wrong(file, "thresholds are in bytes, kbytes or mbytes")),
        };
        Ok(number(file, self.line.number, word, 0..=u32::MAX / factor)? * factor)
    }
}

/// The deepest nesting of commands.
const DEPTH_MAX: usize = 16;

/// A text as blocks, by indentation.
pub(crate) fn blocks<'a>(file: &str, text: &'a str) -> Result<Vec<Block<'a>>, ReadError> {
    let lines = lines(file, text, &['!', '#'])?;
    let mut stack: Vec<(usize, Block<'a>)> = Vec::new();
    let mut top = Vec::new();
    for line in lines {
        close(&mut stack, &mut top, line.indent);
        if stack.len() >= DEPTH_MAX {
            return Err(ReadError::new(
                file,
                line.number,
                "commands are nested too deep",
            ));
        }
        stack.push((
            line.indent,
            Block {
                line,
                below: Vec::new(),
            },
        ));
    }
    close(&mut stack, &mut top, 0);
    Ok(top)
}

/// Takes finished blocks from the stack: those that are indented as far as the next line, or farther.
fn close<'a>(stack: &mut Vec<(usize, Block<'a>)>, top: &mut Vec<Block<'a>>, indent: usize) {
    while stack.last().is_some_and(|(own, _)| *own >= indent) {
        let Some((_, block)) = stack.pop() else {
            return;
        };
        match stack.last_mut() {
            Some((_, parent)) => parent.below.push(block),
            None => top.push(block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_nests() {
        let found = blocks("f", "a\n  b\n    c\n  d\n!\ne\n").unwrap();
        let shape: Vec<(&str, usize)> = found
            .iter()
            .map(|block| (block.line.text, block.below.len()))
            .collect();
        assert_eq!(shape, [("a", 2), ("e", 0)]);
        assert_eq!(found[0].below[0].below[0].line.text, "c");
    }
}
