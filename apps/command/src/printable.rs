//! Text from a peer, a target or another process, with control characters escaped for the terminal.

use std::fmt;

/// Displays a text with escapes for control characters, and for characters that reorder or hide other text:
/// `\\u{1b}`. Any other character stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.0.chars().map(shown).collect();
        // Width and precision count as they do for any text.
        f.pad(&text)
    }
}

/// A text for a terminal: newlines and tabs stay, and all else that a terminal would obey has escapes.
pub fn text(text: &str) -> String {
    let kept = |it: char| match it {
        '\n' | '\t' => it.to_string(),
        _ => shown(it),
    };
    text.chars().map(kept).collect()
}

/// A JSON document for a terminal. Characters that a terminal would obey are in strings alone, where JSON has
/// its own escapes for them.
pub fn json(document: &str) -> String {
    let kept = |it: char| match it {
        '\n' => it.to_string(),
        _ if it.is_control() || is_invisible(it) => {
            let mut units = [0; 2];
            let units = it.encode_utf16(&mut units).iter();
            units.map(|unit| format!("\\u{unit:04x}")).collect()
        }
        _ => it.to_string(),
    };
    document.chars().map(kept).collect()
}

/// The lines of a text, each with escapes.
pub fn lines(text: &str) -> String {
    text.split('\n')
        .map(|line| Printable(line).to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

fn shown(it: char) -> String {
    if it.is_control() || is_invisible(it) {
        it.escape_unicode().to_string()
    } else {
        it.to_string()
    }
}

/// Marks of direction, characters without width, and separators of lines (Unicode, general categories Cf, Zl
/// and Zp).
fn is_invisible(it: char) -> bool {
    matches!(it, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        let hostile = "\x1b[2J\x1b]0;x\x07\u{9b}31m\u{202e}root\r\n\x7f\u{200b}";
        let shown = Printable(hostile).to_string();
        assert!(
            !shown.chars().any(|it| it.is_control() || is_invisible(it)),
            "{shown:?}"
        );
        assert!(shown.starts_with("\\u{1b}[2J"), "{shown}");
    }

    #[test]
    fn a_json_document_keeps_its_meaning() {
        let hostile = "a\u{9b}31m\u{202e}\u{e0001}\u{7f}b";
        let document = format!("{{\n \"a\": \"{hostile}\"\n}}");
        let shown = json(&document);
        assert!(
            !shown
                .chars()
                .any(|it| it != '\n' && (it.is_control() || is_invisible(it)))
        );
        assert_eq!(
            shown,
            "{\n \"a\": \"a\\u009b31m\\u202e\\udb40\\udc01\\u007fb\"\n}"
        );
        assert_eq!(text("a\tb\n\x1bc\r"), "a\tb\n\\u{1b}c\\u{d}");
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        let plain = "nqn.2024-01.org.rockery:disk ü 漢";
        assert_eq!(Printable(plain).to_string(), plain);
        assert_eq!(format!("{:6}|", Printable("ab")), "ab    |");
        assert_eq!(lines("a\nb\x07\n"), "a\nb\\u{7}\n");
    }
}
