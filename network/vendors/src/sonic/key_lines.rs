//! The line of each key of a JSON text, for messages.

use std::collections::HashMap;

/// The place of a key: its number, which its own keys refer to, and its line from 1.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    line: usize,
}

/// Lines of keys that stand in objects within objects. Keys within arrays are not found.
pub(super) struct KeyLines<'a> {
    places: HashMap<(usize, &'a str), Place>,
}

/// The number of the outermost object.
const ROOT: usize = 0;

impl<'a> KeyLines<'a> {
    /// Reads a text once, in time proportional to its length.
    pub(super) fn of(text: &'a str) -> Self {
        let mut places = HashMap::new();
        // For each open bracket, the key whose value it is; arrays have none.
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut value_of = Some(ROOT);
        let (mut line, mut at) = (1, 0);
        while let Some(letter) = text.as_bytes().get(at) {
            match letter {
                b'\n' => line += 1,
                b'{' => open.push(value_of.take()),
                b'[' => open.push(None),
                b'}' | b']' => _ = open.pop(),
                b',' => value_of = None,
                b'"' => {
                    let key = string_at(text, at + 1);
                    at += key.len() + 1;
                    let parent = open.last().copied().flatten();
                    let is_key = text[at.min(text.len())..]
                        .trim_start_matches('"')
                        .trim_start()
                        .starts_with(':');
                    if let Some(parent) = parent.filter(|_| is_key) {
                        let number = places.len() + 1;
                        // Of equal keys the last one has the value.
                        places.insert((parent, key), Place { number, line });
                        value_of = Some(number);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Self { places }
    }

    /// The lines of the entries of a table that is the whole text.
    pub(super) fn of_entries(table: &'a str, entries: &[(&'a str, usize)]) -> Self {
        let of_table = Place {
            number: ROOT + 1,
            line: 1,
        };
        let mut places: HashMap<_, _> = (ROOT + 2..)
            .zip(entries)
            .map(|(number, (key, line))| {
                let line = *line;
                ((of_table.number, *key), Place { number, line })
            })
            .collect();
        places.insert((ROOT, table), of_table);
        Self { places }
    }

    /// The line of the last key of a path that the text has, each within the one before it.
    pub(super) fn line_of(&self, path: &[&str]) -> usize {
        let places: &HashMap<(usize, &str), Place> = &self.places;
        let mut found = Place {
            number: ROOT,
            line: 1,
        };
        for key in path {
            let Some(place) = places.get(&(found.number, *key)) else {
                break;
            };
            found = *place;
        }
        found.line
    }
}

/// The contents of the string that begins here, as they are written.
fn string_at(text: &str, start: usize) -> &str {
    let mut is_escaped = false;
    let end = text[start..].bytes().position(|letter| {
        let ends = letter == b'"' && !is_escaped;
        is_escaped = letter == b'\\' && !is_escaped;
        ends
    });
    end.map_or(&text[start..], |length| &text[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::KeyLines;

    #[test]
    fn keys_are_found_within_those_that_hold_them() {
        let text = "{\n \"A\": {\n  \"x\": \"B\",\n  \"y\": [{\"z\": 1}]\n },\n \
                    \"B\": {\"x\":\n {\"A\": 1}}\n}";
        let lines = KeyLines::of(text);
        assert_eq!(lines.line_of(&["A"]), 2);
        assert_eq!(lines.line_of(&["A", "x"]), 3);
        assert_eq!(lines.line_of(&["B", "x", "A"]), 7);
        // Of a path that the text has in part, the part counts.
        assert_eq!(lines.line_of(&["A", "z"]), 2);
        assert_eq!(lines.line_of(&["A", "y", "z"]), 4);
        assert_eq!(lines.line_of(&["C"]), 1);
    }

    #[test]
    fn of_equal_keys_the_last_one_is_found() {
        let lines = KeyLines::of("{\"A\": {\n\"x\\\"\": 1,\n\"x\\\"\": 2}}");
        assert_eq!(lines.line_of(&["A", "x\\\""]), 3);
    }

    #[test]
    fn texts_that_are_cut_have_the_other_keys() {
        assert_eq!(KeyLines::of("{\"A\": \n{\"b").line_of(&["A", "b"]), 1);
        assert_eq!(KeyLines::of("}}]\n{\"A\":").line_of(&["A"]), 2);
    }
}
