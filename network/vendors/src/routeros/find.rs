//! The conditions of `[ find where … ]`: comparisons of an entry's properties, joined by `and` and `or`
//! (MikroTik, "Scripting", operators).

use regex::bytes::RegexBuilder;

/// The deepest nesting of brackets and negations.
const DEPTH_MAX: usize = 32;

/// Bytes of a compiled regular expression at most.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A condition that an entry of a menu fulfils or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// `find` without conditions.
    Always,
    /// All conditions hold.
    All(Vec<Self>),
    /// One of the conditions holds.
    Any(Vec<Self>),
    /// The condition does not hold.
    Not(Box<Self>),
    /// A property against a value.
    Compare(String, Comparison, String),
    /// A property that is yes.
    Is(String),
}

/// An operator between a property and a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    /// The property equals the value (`=`).
    Equal,
    /// The property differs from the value (`!=`).
    NotEqual,
    /// `~`: the property matches a regular expression.
    Matches,
    /// The property is smaller (`<`).
    Less,
    /// The property is at most the value (`<=`).
    AtMost,
    /// The property is greater (`>`).
    Greater,
    /// The property is at least the value (`>=`).
    AtLeast,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    /// A text in quotes.
    Text(String),
    Sign(&'static str),
}

/// Operators and brackets, the longer ones first.
const SIGNS: [&str; 14] = [
    "!=", "<=", ">=", "&&", "||", "=", "~", "<", ">", "!", "(", ")", ".", ",",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            let (text, after) = quoted(&rest[1..]).ok_or("a quote is not closed")?;
            found.push(Token::Text(text));
            rest = after.trim_start();
            continue;
        }
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push(Token::Sign(sign));
            rest = rest[sign.len()..].trim_start();
            continue;
        }
        if matches!(letter, '$' | '[' | '{') {
            return Err("variables and commands in a condition are not evaluated".to_owned());
        }
        let is_end = |letter: char| letter.is_whitespace() || "=!~<>()\"&|,;$[]{}".contains(letter);
        let end = rest.find(is_end).unwrap_or(rest.len());
        if end == 0 {
            return Err(format!("\"{letter}\" is no operator of a condition"));
        }
        found.push(Token::Word(rest[..end].to_owned()));
        rest = rest[end..].trim_start();
    }
    Ok(found)
}

/// The text up to the closing quote, and what is after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut found = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((found, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                // The backslash of a regular expression stays, as in RouterOS.
                escaped @ ('"' | '\\' | '$') => found.push(escaped),
                other => found.extend(['\\', other]),
            },
            _ => found.push(letter),
        }
    }
    None
}

impl Condition {
    /// Reads the text between `find` and the closing bracket.
    ///
    /// # Errors
    /// What is not understood.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = match text.strip_prefix("where") {
            Some(rest) if rest.is_empty() || !rest.starts_with(char::is_alphanumeric) => rest,
            _ => text,
        };
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Ok(Self::Always);
        }
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
            depth: 0,
        };
        let found = parser.any()?;
        match parser.next() {
            None => Ok(found),
            Some(_) => Err("the condition goes on after its end".to_owned()),
        }
    }

    /// Whether an entry fulfils the condition. `value` gives a property of the entry.
    ///
    /// # Errors
    /// A property that entries of this menu do not have, and a pattern that is no regular expression.
    pub(super) fn holds(&self, value: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
        let own = |name: &str| {
            value(name)
                .ok_or_else(|| format!("entries have no property \"{name}\" to find them by"))
        };
        Ok(match self {
            Self::Always => true,
            Self::All(parts) => {
                let mut all = true;
                for part in parts {
                    all &= part.holds(value)?;
                }
                all
            }
            Self::Any(parts) => {
                let mut any = false;
                for part in parts {
                    any |= part.holds(value)?;
                }
                any
            }
            Self::Not(part) => !part.holds(value)?,
            Self::Is(name) => own(name)? == "yes",
            Self::Compare(name, comparison, wanted) => compare(&own(name)?, *comparison, wanted)?,
        })
    }
}

fn compare(own: &str, comparison: Comparison, wanted: &str) -> Result<bool, String> {
    let wanted = match wanted {
        "true" => "yes",
        "false" => "no",
        other => other,
    };
    let numbers = own.parse::<u64>().ok().zip(wanted.parse::<u64>().ok());
    let order = numbers.map_or_else(|| own.cmp(wanted), |(own, wanted)| own.cmp(&wanted));
    Ok(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::AtLeast => order.is_ge(),
        Comparison::Matches => {
            let pattern = RegexBuilder::new(wanted)
                .unicode(false)
                .size_limit(PATTERN_BYTES_MAX)
                .build()
                .map_err(|_| format!("\"{wanted}\" is no regular expression"))?;
            pattern.is_match(own.as_bytes())
        }
    })
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn next(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// Takes a token if it is one of these signs or words.
    fn take(&mut self, words: &[&str]) -> bool {
        let is_one = match self.next() {
            Some(Token::Sign(sign)) => words.contains(sign),
            Some(Token::Word(word)) => words.contains(&word.as_str()),
            _ => false,
        };
        self.at += usize::from(is_one);
        is_one
    }

    fn any(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.all()?];
        while self.take(&["or", "||"]) {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Condition::Any))
    }

    /// Conditions side by side must all hold, as those with `and` between them.
    fn all(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.one()?];
        loop {
            if self.take(&["and", "&&", ","]) {
                parts.push(self.one()?);
                continue;
            }
            match self.next() {
                Some(Token::Word(word)) if word != "or" => parts.push(self.one()?),
                Some(Token::Sign("!" | "(")) => parts.push(self.one()?),
                _ => return Ok(joined(parts, Condition::All)),
            }
        }
    }

    fn one(&mut self) -> Result<Condition, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("the condition is nested too deep".to_owned());
        }
        let found = self.one_at_depth();
        self.depth -= 1;
        found
    }

    fn one_at_depth(&mut self) -> Result<Condition, String> {
        if self.take(&["!", "not"]) {
            return Ok(Condition::Not(Box::new(self.one()?)));
        }
        if self.take(&["("]) {
            let inner = self.any()?;
            return match self.take(&[")"]) {
                true => Ok(inner),
                false => Err("a bracket of the condition is not closed".to_owned()),
            };
        }
        let Some(Token::Word(name)) = self.next().cloned() else {
            return Err("a property was expected in the condition".to_owned());
        };
        self.at += 1;
        let comparisons = [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("~", Comparison::Matches),
            ("<", Comparison::Less),
            ("<=", Comparison::AtMost),
            (">", Comparison::Greater),
            (">=", Comparison::AtLeast),
        ];
        for (sign, comparison) in comparisons {
            if self.take(&[sign]) {
                return Ok(Condition::Compare(name, comparison, self.value()?));
            }
        }
        Ok(Condition::Is(name))
    }

    /// A value: words and texts, with `.` between those that are put together.
    fn value(&mut self) -> Result<String, String> {
        let mut is_in_brackets = 0;
        while self.take(&["("]) {
            is_in_brackets += 1;
        }
        let mut value = self.word()?;
        while self.take(&["."]) {
            value += &self.word()?;
        }
        for _ in 0..is_in_brackets {
            if !self.take(&[")"]) {
                return Err("a bracket of the condition is not closed".to_owned());
            }
        }
        Ok(value)
    }

    fn word(&mut self) -> Result<String, String> {
        let found = match self.next() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Text(text)) => text.clone(),
            _ => return Err("a value was expected in the condition".to_owned()),
        };
        self.at += 1;
        Ok(found)
    }
}

/// One condition is itself.
fn joined(mut parts: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(condition: &str) -> Result<Vec<u32>, String> {
        let condition = Condition::parse(condition)?;
        let mut found = Vec::new();
        for lane in 1..=12_u32 {
            let value = |name: &str| match name {
                "name" => Some(format!("qsfp28-1-{lane}")),
                "traffic-class" => Some(lane.to_string()),
                "disabled" => Some(if lane == 2 { "yes" } else { "no" }.to_owned()),
                _ => None,
            };
            if condition.holds(&value)? {
                found.push(lane);
            }
        }
        Ok(found)
    }

    #[test]
    fn the_whole_condition_is_evaluated() {
        for (condition, expected) in [
            ("", &(1..=12).collect::<Vec<u32>>()[..]),
            ("where name=qsfp28-1-3", &[3]),
            ("name=\"qsfp28-1-3\"", &[3]),
            ("where name=\"qsfp28-1-1\" or name=\"qsfp28-1-4\"", &[1, 4]),
            ("where name~\"1-1\"", &[1, 10, 11, 12]),
            ("where name~\"-1-1\\$\"", &[1]),
            ("where name~\"^qsfp28-1-[23]\"", &[2, 3]),
            ("name~(\"-1-\" . \"7\")", &[7]),
            ("where name~\"-1\" and traffic-class>=11", &[11, 12]),
            ("where name~\"-1\" traffic-class>=11", &[11, 12]),
            ("traffic-class<3 || traffic-class > 11", &[1, 2, 12]),
            ("traffic-class<=2 && !(name=qsfp28-1-1)", &[2]),
            ("disabled", &[2]),
            ("disabled=yes", &[2]),
            ("disabled=true", &[2]),
            ("!disabled and traffic-class<4", &[1, 3]),
            ("traffic-class!=1 and not (traffic-class>2)", &[2]),
            ("(traffic-class=1 or traffic-class=2) and disabled=no", &[1]),
            (
                "traffic-class=9 or traffic-class=1 and disabled=no",
                &[1, 9],
            ),
        ] {
            assert_eq!(found(condition).as_deref(), Ok(expected), "{condition}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_named() {
        for (condition, expected) in [
            ("name=$p", "variables and commands"),
            ("colour=red", "no property \"colour\""),
            ("name~\"(\"", "no regular expression"),
            ("(name=a", "a bracket"),
            ("name=a)", "goes on after its end"),
            ("name=", "a value was expected"),
            ("name=\"a", "a quote"),
            ("= a", "a property was expected"),
        ] {
            let error = found(condition).unwrap_err();
            assert!(error.contains(expected), "{condition}: {error}");
        }
        assert!(found(&"(".repeat(100_000)).is_err());
    }
}
