//! Names of ports and profiles in printed commands. They may be a stranger's, and a command is pasted into
//! the console of its system.

/// The longest name of an interface that a switch has.
const NAME_MAX: usize = 64;

/// A name as a string of RouterOS: quoted where a script would do something with it.
pub(crate) fn routeros(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let mut text = String::from("\"");
    for letter in name.chars() {
        match letter {
            '"' | '\\' | '$' | '?' => text.extend(['\\', letter]),
            '\n' => text += "\\n",
            '\r' => text += "\\r",
            '\t' => text += "\\t",
            letter if letter.is_control() => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    text += &format!("\\{byte:02X}");
                }
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
    text
}

/// The text of a RouterOS string without its quotes and escapes.
pub(crate) fn of_routeros(inner: &str) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        let mut own = [0; 4];
        if letter != '\\' {
            bytes.extend(letter.encode_utf8(&mut own).bytes());
            continue;
        }
        let rest = letters.as_str();
        // Hexadecimal digits of RouterOS are capitals.
        let two = rest
            .get(..2)
            .filter(|two| !two.contains(|it: char| it.is_ascii_lowercase()));
        let hexadecimal = two.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (letters.next(), hexadecimal) {
            (Some('n'), _) => bytes.push(b'\n'),
            (Some('r'), _) => bytes.push(b'\r'),
            (Some('t'), _) => bytes.push(b'\t'),
            (Some('_'), _) => bytes.push(b' '),
            (Some(_), Some(byte)) => {
                letters.next();
                bytes.push(byte);
            }
            (Some(other), None) => bytes.extend(other.encode_utf8(&mut own).bytes()),
            (None, _) => bytes.push(b'\\'),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The name of an interface for EOS, NX-OS and OS10, whose command lines have no quotes: `PORT` in place of a
/// name that none of their interfaces has.
pub(crate) fn interface(name: &str) -> &str {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:".contains(letter);
    let is_name = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.len() <= NAME_MAX
        && name.chars().all(is_plain);
    if is_name { name } else { "PORT" }
}

/// A string of FreeBSD's iovctl.conf (libucl) between double quotes.
pub(crate) fn ucl(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            letter if letter.is_control() => text += &format!("\\u{:04x}", u32::from(letter)),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::Remedy;
    use crate::routeros::words_of;
    use crate::{Dialect, shell};

    /// Names that would do something in some console.
    const HOSTILE: &[&str] = &[
        "a b",
        "a;reboot",
        "a\"; /system reboot; \"",
        "a'; reboot; '",
        "a\n/system reboot\n",
        "a\r\nreload",
        "$(reboot)",
        "[/system reboot]",
        "`reboot`",
        "a\\",
        "a\\\"",
        "a | reboot",
        "a\u{1b}]0;x\u{7}",
        "a#b",
        "{a}",
        "-a",
        "a!b",
        "\u{202e}a",
        "",
    ];

    #[test]
    fn a_routeros_string_is_the_name_again() {
        for name in HOSTILE {
            let text = routeros(name);
            let words = words_of(&format!("set {text} pfc=x")).unwrap();
            assert_eq!(words, ["set", text.as_str(), "pfc=x"], "{name:?}");
            assert!(!text.contains(['\n', '\r', '\u{1b}']), "{text:?}");
            let inner = text
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'));
            assert_eq!(of_routeros(inner.unwrap_or(&text)), *name, "{text}");
        }
        assert_eq!(routeros("qsfp28-1-1"), "qsfp28-1-1");
        assert_eq!(routeros("a\"$\n"), "\"a\\\"\\$\\n\"");
        assert_eq!(of_routeros("\\41\\C3\\A4\\?"), "A\u{e4}?");
    }

    #[test]
    fn hostile_names_are_arguments_or_are_left_out_of_commands() {
        let switches = Dialect::ALL
            .into_iter()
            .filter(|dialect| !dialect.is_host());
        let mut checked = 0;
        for dialect in switches {
            for name in HOSTILE {
                for remedy in [
                    Remedy::PfcOfPort {
                        class: 3,
                        port: name,
                    },
                    Remedy::MtuOfPort { port: name },
                ] {
                    let command = dialect.remedy(&remedy);
                    if command == remedy.in_words() {
                        continue;
                    }
                    checked += 1;
                    let own = match dialect {
                        Dialect::RouterOs => routeros(name),
                        Dialect::Sonic | Dialect::Nvue => shell::quoted(name),
                        _ => "PORT".to_owned(),
                    };
                    // Without the argument the command is that of a plain name.
                    let plain = match remedy {
                        Remedy::PfcOfPort { class, .. } => Remedy::PfcOfPort {
                            class,
                            port: "NAME",
                        },
                        _ => Remedy::MtuOfPort { port: "NAME" },
                    };
                    let expected = dialect.remedy(&plain).replace("NAME", &own);
                    assert_eq!(command, expected, "{name:?}");
                }
            }
        }
        assert!(checked > 5 * HOSTILE.len(), "{checked}");
    }

    #[test]
    fn strings_of_libucl_are_json_strings() {
        for name in HOSTILE {
            let read: String = serde_json::from_str(&format!("\"{}\"", ucl(name))).unwrap();
            assert_eq!(read, *name);
        }
    }
}
