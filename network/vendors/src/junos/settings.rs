//! Both spellings of a Junos configuration as one list: blocks in braces (`show configuration`) and `set`
//! commands (`display set`). Each setting is the path of its words.

use super::tokens::{Token, Tokens};
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, lines, shortened};

/// A setting: its line, and the words of its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Setting<'a> {
    pub(super) line: usize,
    pub(super) words: Vec<&'a str>,
}

impl Setting<'_> {
    /// An error of this setting.
    pub(super) fn wrong(&self, file: &str, what: &str) -> ReadError {
        let text = shortened(&self.words.join(" "));
        ReadError::new(file, self.line, format!("\"{text}\": {what}"))
    }
}

/// The deepest nesting of blocks.
const DEPTH_MAX: usize = 32;

/// The active settings of a text, those of applied groups first, and the outcomes of its lines.
pub(super) fn settings<'a>(
    file: &str,
    text: &'a str,
) -> Result<(Vec<Setting<'a>>, Outcomes), ReadError> {
    let lines = lines(file, text, &[])?;
    let mut outcomes = Outcomes::of(file, &lines);
    let mut cut = Tokens::default();
    let cut: Vec<(usize, Vec<Token<'a>>)> = lines
        .iter()
        .map(|line: &Line<'a>| (line.number, cut.of(line)))
        .collect();
    // Lines of comments and brackets alone.
    for (line, _) in &cut {
        outcomes.irrelevant(*line);
    }
    let is_command = |tokens: &[Token<'_>]| {
        let words = ["set", "deactivate", "activate", "delete"];
        matches!(tokens.first(), Some(Token::Word(word)) if words.contains(word))
    };
    let first = cut.iter().find(|(_, tokens)| !tokens.is_empty());
    let found = match first.is_some_and(|(_, tokens)| is_command(tokens)) {
        true => commands(file, &cut, &mut outcomes),
        false => blocks(file, &cut, &mut outcomes)?,
    };
    Ok((with_groups(file, found, &mut outcomes), outcomes))
}

/// Settings of `set` commands, without those that `deactivate` switches off.
fn commands<'a>(
    file: &str,
    lines: &[(usize, Vec<Token<'a>>)],
    outcomes: &mut Outcomes,
) -> Vec<Setting<'a>> {
    let (mut found, mut off): (Vec<Setting<'a>>, Vec<Vec<&str>>) = (Vec::new(), Vec::new());
    for (line, tokens) in lines {
        let words = tokens.iter().filter_map(|token| match token {
            Token::Word(word) => Some(*word),
            Token::Open | Token::Close | Token::End => None,
        });
        let words: Vec<&str> = words.collect();
        match words.split_first() {
            None => {}
            Some((&"set", rest)) => found.push(Setting {
                line: *line,
                words: rest.to_vec(),
            }),
            Some((&"deactivate", rest)) => {
                outcomes.applied(*line);
                off.push(rest.to_vec());
            }
            Some((&"activate", rest)) => {
                outcomes.applied(*line);
                off.retain(|path| path != rest);
            }
            Some(_) => {
                let text = shortened(&words.join(" "));
                let what = format!("\"{text}\": set or deactivate was expected");
                outcomes.not_understood(&ReadError::new(file, *line, what));
            }
        }
    }
    found.retain(|setting| !off.iter().any(|path| setting.words.starts_with(path)));
    found
}

/// A block that is open: its words, its line, and whether it is switched off.
struct Open<'a> {
    words: Vec<&'a str>,
    line: usize,
    is_off: bool,
}

/// Settings of blocks in braces.
fn blocks<'a>(
    file: &str,
    lines: &[(usize, Vec<Token<'a>>)],
    outcomes: &mut Outcomes,
) -> Result<Vec<Setting<'a>>, ReadError> {
    let mut found = Vec::new();
    let mut open: Vec<Open<'a>> = Vec::new();
    let (mut words, mut begun): (Vec<&'a str>, usize) = (Vec::new(), 0);
    for (line, tokens) in lines {
        for token in tokens {
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        begun = *line;
                    }
                    words.push(word);
                }
                Token::Open => {
                    if open.len() >= DEPTH_MAX {
                        return Err(ReadError::new(file, *line, "blocks are nested too deep"));
                    }
                    let is_off = tagged(file, &mut words, begun, outcomes)
                        || open.last().is_some_and(|block| block.is_off);
                    open.push(Open {
                        words: core::mem::take(&mut words),
                        line: *line,
                        is_off,
                    });
                }
                Token::End => {
                    let is_off = tagged(file, &mut words, begun, outcomes)
                        || open.last().is_some_and(|block| block.is_off);
                    let own = core::mem::take(&mut words);
                    if !is_off && !own.is_empty() {
                        let above = open.iter().flat_map(|block| block.words.iter().copied());
                        found.push(Setting {
                            line: begun,
                            words: above.chain(own).collect(),
                        });
                    }
                }
                Token::Close => {
                    if !words.is_empty() {
                        let text = shortened(&words.join(" "));
                        let what = format!("\"{text}\": the statement has no ; at its end");
                        outcomes.not_understood(&ReadError::new(file, begun, what));
                        words.clear();
                    }
                    let what = "there is no { before this }";
                    open.pop()
                        .ok_or_else(|| ReadError::new(file, *line, what))?;
                }
            }
        }
    }
    if let Some(block) = open.last() {
        return Err(ReadError::new(file, block.line, "this { has no }"));
    }
    if !words.is_empty() {
        let text = shortened(&words.join(" "));
        let what = format!("\"{text}\": the statement has no ; at its end");
        outcomes.not_understood(&ReadError::new(file, begun, what));
    }
    Ok(found)
}

/// Takes a tag from the beginning of a statement; whether the statement is switched off.
fn tagged(file: &str, words: &mut Vec<&str>, line: usize, outcomes: &mut Outcomes) -> bool {
    match words.first() {
        Some(&"inactive:") => true,
        Some(&"protect:") => {
            words.remove(0);
            false
        }
        Some(tag @ (&"replace:" | &"delete:" | &"rename:" | &"insert:")) => {
            let what = format!("\"{tag}\": a change of another configuration is not read");
            outcomes.not_understood(&ReadError::new(file, line, what));
            true
        }
        _ => false,
    }
}

/// Settings of groups in the place of the whole, where they are applied to it. Groups with patterns, and
/// those that are applied to a part, are not understood.
fn with_groups<'a>(
    file: &str,
    found: Vec<Setting<'a>>,
    outcomes: &mut Outcomes,
) -> Vec<Setting<'a>> {
    let mut applied: Vec<&str> = Vec::new();
    for setting in &found {
        match setting
            .words
            .iter()
            .position(|word| *word == "apply-groups")
        {
            Some(0) => {
                outcomes.applied(setting.line);
                let names = setting.words[1..].iter().copied();
                applied.extend(names.filter(|word| !matches!(*word, "[" | "]")));
            }
            Some(_) => {
                let what = "groups that are applied to a part of the configuration are not read";
                outcomes.not_understood(&setting.wrong(file, what));
            }
            None => {}
        }
    }
    let (mut groups, mut own) = (Vec::new(), Vec::new());
    for mut setting in found {
        match setting.words.as_slice() {
            [..] if setting.words.contains(&"apply-groups") => {}
            ["groups", name, _, ..] if applied.contains(name) => {
                if setting.words.iter().any(|word| word.starts_with('<')) {
                    let what = "patterns of groups are not read";
                    outcomes.not_understood(&setting.wrong(file, what));
                    continue;
                }
                setting.words.drain(..2);
                groups.push(setting);
            }
            ["groups", ..] => outcomes.irrelevant(setting.line),
            _ => own.push(setting),
        }
    }
    groups.extend(own);
    groups
}
