//! Commands of shell scripts and systemd units, one a line.

use crate::outcome::Outcomes;
use crate::text::{ReadError, lines};

/// A command with its words, quotes taken off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShellCommand {
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
}

impl ShellCommand {
    /// The words as text.
    pub(crate) fn parts(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// An error of this command.
    pub(crate) fn wrong(&self, file: &str, what: &str) -> ReadError {
        let text = crate::text::shortened(&self.words.join(" "));
        ReadError::new(file, self.line, format!("\"{text}\": {what}"))
    }
}

/// The commands of a script or unit, and the outcomes of its lines. Section headers and other settings of a
/// unit are irrelevant.
pub(crate) fn commands(file: &str, text: &str) -> Result<(Vec<ShellCommand>, Outcomes), ReadError> {
    let mut found = Vec::new();
    let lines = lines(file, text, &['#', ';', '['])?;
    let mut outcomes = Outcomes::of(file, &lines);
    for line in lines {
        let text = match line.text.split_once('=') {
            Some((key, value)) if key.starts_with("Exec") => {
                value.trim_start_matches(['-', '+', '@', '!'])
            }
            Some((key, _))
                if key.chars().all(char::is_alphabetic) && key.starts_with(char::is_uppercase) =>
            {
                outcomes.irrelevant(line.number);
                continue;
            }
            _ => line.text,
        };
        let Some(mut words) = split(text) else {
            let error = ReadError::new(file, line.number, "a quote is not closed");
            outcomes.not_understood(&error);
            continue;
        };
        if words.first().is_some_and(|word| word == "sudo") {
            words.remove(0);
        }
        if let Some(program) = words.first_mut() {
            *program = program.rsplit('/').next().unwrap_or_default().to_owned();
            found.push(ShellCommand {
                line: line.number,
                words,
            });
        }
    }
    Ok((found, outcomes))
}

/// Words of a line, where quotes keep blanks.
pub(crate) fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut open, mut any) = (Vec::new(), String::new(), None, false);
    for letter in text.chars() {
        match (open, letter) {
            (Some(quote), _) if letter == quote => open = None,
            (None, '"' | '\'') => (open, any) = (Some(letter), true),
            (None, _) if letter.is_whitespace() => {
                if any {
                    words.push(core::mem::take(&mut word));
                }
                any = false;
            }
            _ => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    open.is_none().then_some(words)
}

/// A name as a word of a shell, or as a part of one: quoted where the shell would do something with it.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/".contains(letter);
    if word.chars().all(plain) && !word.is_empty() {
        word.to_owned()
    } else if word.contains(['$', '`', '\\', '"', '!']) {
        // Between double quotes the shell still expands these.
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        format!("\"{word}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_name_is_one_word_that_the_shell_takes_as_it_is() {
        for name in [
            "eth0$(reboot)",
            "a;b",
            "a b",
            "`x`",
            "it's",
            "it's $x",
            "\"",
            "a\\",
            "!!",
            "",
            "*",
            "a|b&c",
        ] {
            let said = std::process::Command::new("sh")
                .args([
                    "-c",
                    &format!("printf '%s,' x {} {}y", quoted(name), quoted(name)),
                ])
                .output()
                .unwrap();
            let expected = format!("x,{name},{name}y,");
            assert_eq!(String::from_utf8_lossy(&said.stdout), expected);
        }
        assert_eq!(quoted("enp1s0f0np0"), "enp1s0f0np0");
    }

    #[test]
    fn units_and_scripts_are_read_alike() {
        let text = "[Service]\nType=oneshot\n\
                   ExecStart=/usr/sbin/dcb pfc show dev \"a b\"\nsudo mlnx_qos -i eth0\n";
        let (found, _) = commands("f", text).unwrap();
        assert_eq!(found[0].words, ["dcb", "pfc", "show", "dev", "a b"]);
        assert_eq!((found[1].line, found[1].words[0].as_str()), (4, "mlnx_qos"));
    }
}
