//! Statements of PowerShell: cmdlets with their parameters, one or more in a line or over several lines.
//!
//! Values of simple variables are taken; expressions, loops and functions are not evaluated.

use std::collections::HashMap;

use crate::text::{Line, ReadError, shortened};

/// A cmdlet with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cmdlet {
    /// The first line of the statement.
    pub(super) line: usize,
    /// Further lines of the statement.
    pub(super) more: Vec<usize>,
    /// The text, for messages.
    text: String,
    /// The name in small letters.
    pub(super) name: String,
    /// Names of cmdlets that it passes objects to, in small letters.
    pub(super) piped: Vec<String>,
    /// Parameters by their names in small letters; those without a name have "".
    parameters: Vec<(String, Vec<String>)>,
}

impl Cmdlet {
    /// The values of a parameter.
    pub(super) fn all(&self, name: &str) -> Option<&[String]> {
        let found = self.parameters.iter().find(|(own, _)| own == name);
        found.map(|(_, values)| values.as_slice())
    }

    /// The first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name)?.first().map(String::as_str)
    }

    /// The values of a parameter, or of the first one without a name.
    pub(super) fn named_or_first(&self, name: &str) -> Option<&[String]> {
        self.all(name).or_else(|| self.all(""))
    }

    /// The values without a name.
    pub(super) fn positional(&self) -> Vec<&str> {
        let unnamed = self.parameters.iter().filter(|(name, _)| name.is_empty());
        unnamed
            .flat_map(|(_, values)| values)
            .map(String::as_str)
            .collect()
    }

    /// An error of this statement.
    pub(super) fn wrong(&self, file: &str, what: &str) -> ReadError {
        let text = shortened(&self.text);
        ReadError::new(file, self.line, format!("\"{text}\": {what}"))
    }

    /// A whole number, in decimal digits or after `0x`.
    pub(super) fn number(&self, file: &str, name: &str, max: u32) -> Result<u32, ReadError> {
        let word = self
            .get(name)
            .ok_or_else(|| self.wrong(file, &format!("-{name} is missing")))?;
        number_of(word)
            .filter(|value| *value <= max)
            .ok_or_else(|| {
                let word = shortened(word);
                self.wrong(file, &format!("\"{word}\" is no number from 0 to {max}"))
            })
    }

    /// True or false of a parameter. A parameter without a value is a switch, which is on.
    pub(super) fn boolean(&self, file: &str, name: &str) -> Result<bool, ReadError> {
        let word = self.get(name).unwrap_or("$true").to_lowercase();
        match word.trim_start_matches('$') {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.wrong(file, &format!("-{name} is $true or $false"))),
        }
    }
}

/// A whole number, in decimal digits or after `0x`.
pub(super) fn number_of(word: &str) -> Option<u32> {
    let word = word.trim();
    match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A name as an argument of PowerShell, which expands variables and commands between double quotes, and takes
/// typographic quotes for plain ones.
pub(super) fn quoted(name: &str) -> String {
    match name.contains(['"', '$', '`', '\u{201c}', '\u{201d}', '\u{201e}']) {
        false => format!("\"{name}\""),
        true => {
            let single = ['\'', '\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}'];
            let twice = |it: char| vec![it; if single.contains(&it) { 2 } else { 1 }];
            format!("'{}'", name.chars().flat_map(twice).collect::<String>())
        }
    }
}

/// PowerShell takes these for hyphens.
const fn is_dash(letter: char) -> bool {
    matches!(letter, '-' | '\u{2013}' | '\u{2014}' | '\u{2015}')
}

const fn is_double(letter: char) -> bool {
    matches!(letter, '"' | '\u{201c}' | '\u{201d}' | '\u{201e}')
}

const fn is_single(letter: char) -> bool {
    matches!(
        letter,
        '\'' | '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}'
    )
}

/// A part of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word { text: String, is_quoted: bool },
    Comma,
    Pipe,
    End,
}

/// The tokens of a text; an error says what is not closed.
fn tokens(text: &str) -> Result<Vec<Token>, &'static str> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    let (mut word, mut any, mut is_quoted) = (String::new(), false, false);
    let mut depth = 0_u32;
    loop {
        let letter = letters.next();
        let ends = match letter {
            None => true,
            Some(letter) if depth > 0 => {
                match letter {
                    '(' | '{' => depth += 1,
                    ')' | '}' => depth -= 1,
                    _ => {}
                }
                word.push(letter);
                continue;
            }
            Some('#') => !any,
            Some(letter) => letter.is_whitespace() || matches!(letter, ',' | ';' | '|'),
        };
        if ends {
            if any {
                let text = core::mem::take(&mut word);
                found.push(Token::Word { text, is_quoted });
            }
            (any, is_quoted) = (false, false);
            match letter {
                // The rest is a comment.
                None | Some('#') => break,
                Some(',') => found.push(Token::Comma),
                Some('|') => found.push(Token::Pipe),
                Some(';') => found.push(Token::End),
                Some(_) => {}
            }
            continue;
        }
        any = true;
        match letter {
            Some('`') => word.extend(letters.next()),
            Some(letter @ ('(' | '{')) => {
                depth = 1;
                word.push(letter);
            }
            Some(letter) if is_double(letter) || is_single(letter) => {
                is_quoted = true;
                let is_own = if is_double(letter) {
                    is_double
                } else {
                    is_single
                };
                string(&mut letters, is_own, &mut word)?;
            }
            Some(letter) => word.push(letter),
            None => {}
        }
    }
    match depth {
        0 => Ok(found),
        _ => Err("a bracket is not closed, and blocks are not evaluated"),
    }
}

/// Takes a string up to its quote; a quote that is written twice is one of the string.
fn string(
    letters: &mut core::iter::Peekable<core::str::Chars<'_>>,
    is_own: fn(char) -> bool,
    word: &mut String,
) -> Result<(), &'static str> {
    while let Some(letter) = letters.next() {
        if is_own(letter) {
            match letters.next_if(|next| is_own(*next)) {
                Some(_) => word.push(letter),
                None => return Ok(()),
            }
        } else if letter == '`' && is_own('"') {
            word.extend(letters.next());
        } else {
            word.push(letter);
        }
    }
    Err("a quote is not closed")
}

/// Statements of a script, read line by line.
#[derive(Default)]
pub(super) struct Script {
    variables: HashMap<String, Vec<String>>,
    /// Lines of a statement that goes on, and its text.
    open: Option<(Vec<usize>, String)>,
    is_comment: bool,
}

/// What a line of a script is.
pub(super) enum Said {
    /// A comment, an assignment, or the beginning of a statement.
    Nothing,
    /// Statements, the last of which ends here.
    Cmdlets(Vec<Cmdlet>),
}

impl Script {
    /// Takes the next line.
    ///
    /// # Errors
    /// What is not closed or not evaluated.
    pub(super) fn take(&mut self, file: &str, line: &Line<'_>) -> Result<Said, ReadError> {
        if self.is_comment || line.text.starts_with("<#") {
            self.is_comment = !line.text.contains("#>");
            return Ok(Said::Nothing);
        }
        if line.text.starts_with('#') && self.open.is_none() {
            return Ok(Said::Nothing);
        }
        let (mut lines, mut text) = self.open.take().unwrap_or_default();
        lines.push(line.number);
        if let Some(begin) = line.text.strip_suffix('`') {
            text += begin;
            self.open = Some((lines, text));
            return Ok(Said::Nothing);
        }
        text += line.text;
        let first = lines[0];
        let wrong = |what: &str| {
            let what = format!("\"{}\": {what}", shortened(&text));
            ReadError::new(file, first, what)
        };
        let tokens = tokens(&text).map_err(wrong)?;
        let mut found = Vec::new();
        for statement in tokens.split(|token| *token == Token::End) {
            if statement.is_empty() || self.assignment(statement) {
                continue;
            }
            let cmdlet = self.cmdlet(&lines, statement);
            found.push(cmdlet.ok_or_else(|| wrong("no cmdlet begins the statement"))?);
        }
        Ok(match found.is_empty() {
            true => Said::Nothing,
            false => Said::Cmdlets(found),
        })
    }

    /// The statement that the script ends in, whose next line is missing.
    pub(super) fn open(&self) -> Option<usize> {
        self.open
            .as_ref()
            .and_then(|(lines, _)| lines.first().copied())
    }

    /// `$name = "text", …`: whether it is one, whose values are then known.
    fn assignment(&mut self, statement: &[Token]) -> bool {
        let [
            Token::Word {
                text: name,
                is_quoted: false,
            },
            Token::Word { text: sign, .. },
            rest @ ..,
        ] = statement
        else {
            return false;
        };
        if !name.starts_with('$') || sign != "=" {
            return false;
        }
        let mut values = Vec::new();
        for token in rest {
            match token {
                Token::Word { text, is_quoted } if *is_quoted || number_of(text).is_some() => {
                    values.push(text.clone());
                }
                Token::Comma => {}
                _ => return false,
            }
        }
        self.variables.insert(name.to_lowercase(), values);
        true
    }

    fn cmdlet(&self, lines: &[usize], statement: &[Token]) -> Option<Cmdlet> {
        let mut parts = statement.split(|token| *token == Token::Pipe);
        let words = parts.next()?;
        let name_of = |tokens: &[Token]| match tokens.first() {
            Some(Token::Word { text, .. }) => Some(text.to_lowercase()),
            _ => None,
        };
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        let mut is_open = false;
        let (_, arguments) = words.split_first()?;
        for token in arguments {
            match token {
                Token::Word {
                    text,
                    is_quoted: false,
                } if is_parameter(text) => {
                    let lower = text.trim_start_matches(is_dash).to_lowercase();
                    let (name, value) =
                        lower.split_once(':').map_or((&*lower, None), |(name, _)| {
                            (
                                name,
                                text.split_once(':').map(|(_, value)| value.to_owned()),
                            )
                        });
                    let value = value.filter(|value| !value.is_empty());
                    is_open = value.is_none();
                    parameters.push((name.to_owned(), value.into_iter().collect()));
                }
                Token::Word { text, is_quoted } => {
                    let known = (!is_quoted).then(|| self.variables.get(&text.to_lowercase()));
                    let values = known
                        .flatten()
                        .cloned()
                        .unwrap_or_else(|| vec![text.clone()]);
                    match parameters.last_mut().filter(|_| is_open) {
                        Some((_, own)) => own.extend(values),
                        None => parameters.push((String::new(), values)),
                    }
                    is_open = false;
                }
                // The next word belongs to the same list.
                _ => is_open = !parameters.is_empty(),
            }
        }
        let words_of = |token: &Token| match token {
            Token::Word { text, .. } => Some(text.clone()),
            _ => None,
        };
        let text: Vec<String> = statement.iter().filter_map(words_of).collect();
        Some(Cmdlet {
            line: *lines.first()?,
            more: lines[1..].to_vec(),
            text: text.join(" "),
            name: name_of(words)?,
            piped: parts.filter_map(name_of).collect(),
            parameters,
        })
    }
}

/// Whether a word is the name of a parameter, and no negative number.
fn is_parameter(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(is_dash) && letters.next().is_some_and(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn cmdlets(text: &str) -> Vec<Cmdlet> {
        let mut script = Script::default();
        let mut found = Vec::new();
        for line in lines("f", text, &[]).unwrap() {
            if let Said::Cmdlets(own) = script.take("f", &line).unwrap() {
                found.extend(own);
            }
        }
        found
    }

    /// A pipe can stand at the beginning of a line, where no cmdlet is.
    #[test]
    fn a_statement_without_a_cmdlet_is_refused() {
        for text in ["|\n", "| Format-List\n"] {
            let mut script = Script::default();
            let line = &lines("f", text, &[]).unwrap()[0];
            assert!(script.take("f", line).is_err(), "{text}");
        }
    }

    #[test]
    fn statements_are_those_that_powershell_takes() {
        let text = "$nic = \"SLOT 2\"\n<# a\nb #>\nEnable-NetQosFlowControl -Priority 3, 4; \
                    enable-netadapterqos -Name $nic # all\nNew-NetQosPolicy `\n  'SMB''s' \
                    \u{2013}NetDirectPortMatchCondition:445\nGet-NetAdapter | Format-List *\n\
                    Set-ItemProperty \u{201c}a `\"b\u{201d} -Value 0x311\n";
        let found = cmdlets(text);
        let names: Vec<&str> = found.iter().map(|own| own.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "enable-netqosflowcontrol",
                "enable-netadapterqos",
                "new-netqospolicy",
                "get-netadapter",
                "set-itemproperty"
            ]
        );
        assert_eq!(
            found[0].all("priority"),
            Some(&["3".to_owned(), "4".to_owned()][..])
        );
        assert_eq!(found[1].get("name"), Some("SLOT 2"));
        assert_eq!((found[2].line, &found[2].more[..]), (5, &[6][..]));
        assert_eq!(found[2].get(""), Some("SMB's"));
        assert_eq!(found[2].get("netdirectportmatchcondition"), Some("445"));
        assert_eq!(found[3].piped, ["format-list"]);
        assert_eq!(found[4].get(""), Some("a \"b"));
        assert_eq!(found[4].number("f", "value", 0xffff), Ok(0x311));
    }

    #[test]
    fn what_is_not_closed_is_an_error_of_its_line() {
        for text in ["Enable-NetAdapterQos \"a", "foreach ($x in $y) {"] {
            let read = lines("f", text, &[]).unwrap();
            let error = Script::default().take("f", &read[0]).err().unwrap();
            assert!(error.what.contains("is not closed"), "{error}");
        }
    }

    #[test]
    fn names_are_arguments_that_powershell_takes_as_they_are() {
        assert_eq!(quoted("Ethernet 2"), "\"Ethernet 2\"");
        assert_eq!(quoted("a;b | c"), "\"a;b | c\"");
        assert_eq!(quoted("$(reboot)"), "'$(reboot)'");
        assert_eq!(quoted("a\"; reboot; '"), "'a\"; reboot; '''");
        assert_eq!(
            quoted("\u{201d}; reboot; \u{2019}"),
            "'\u{201d}; reboot; \u{2019}\u{2019}'"
        );
    }
}
