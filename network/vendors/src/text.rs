//! Texts of configurations: numbered lines, words, and errors that name the line.

/// Bytes of one file at most.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one line at most.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Why a file was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot read line {line} of {file}: {what}")]
pub struct ReadError {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The part of the line that is not understood, and what was expected.
    pub what: String,
}

impl ReadError {
    /// An error of one line.
    pub fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

/// A line that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// The number of the line, from 1.
    pub number: usize,
    /// Blanks before the first word.
    pub indent: usize,
    /// The line without blanks at its ends.
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// The words of the line.
    pub fn words(&self) -> Vec<&'a str> {
        self.text.split_whitespace().collect()
    }
}

/// Interfaces of one text at most: some times those of the largest chassis.
pub const PORTS_OF_TEXT_MAX: usize = 16_384;

/// Refuses a configuration of more ports than a switch has, before each of them is examined.
///
/// # Errors
/// More than [`PORTS_OF_TEXT_MAX`] ports.
pub(crate) fn check_ports(file: &str, ports: usize) -> Result<(), ReadError> {
    if ports <= PORTS_OF_TEXT_MAX {
        return Ok(());
    }
    let what = format!(
        "the file has {ports} ports, and no switch has more than {PORTS_OF_TEXT_MAX}: give the \
         configuration of one switch"
    );
    Err(ReadError::new(file, 1, what))
}

/// A text as lines. Lines that are empty are left out, and so are comments: lines whose first character is
/// one of `comment`.
///
/// # Errors
/// The first line with control characters or of an unreasonable length: the file is not a text then.
pub fn lines<'a>(file: &str, text: &'a str, comment: &[char]) -> Result<Vec<Line<'a>>, ReadError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ReadError::new(
            file,
            1,
            format!("the file has more than {FILE_BYTES_MAX} bytes"),
        ));
    }
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.len() > LINE_BYTES_MAX {
            return Err(ReadError::new(
                file,
                number,
                format!("it has more than {LINE_BYTES_MAX} bytes"),
            ));
        }
        let control =
            |letter: &char| (letter.is_control() && *letter != '\t') || *letter == '\u{fffd}';
        if let Some(letter) = line.trim_end_matches('\r').chars().find(control) {
            return Err(ReadError::new(
                file,
                number,
                format!("{letter:?} is no character of a configuration"),
            ));
        }
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(comment) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        found.push(Line {
            number,
            indent,
            text: trimmed,
        });
    }
    Ok(found)
}

/// A number within a range.
///
/// # Errors
/// The line, with the number that was expected.
pub fn number(
    file: &str,
    line: usize,
    word: &str,
    range: core::ops::RangeInclusive<u32>,
) -> Result<u32, ReadError> {
    word.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            ReadError::new(
                file,
                line,
                format!("\"{}\" is no number from {from} to {to}", shortened(word)),
            )
        })
}

/// Values and ranges such as `0-25,27`.
///
/// # Errors
/// The line, with the list that was expected.
pub fn list(file: &str, line: usize, text: &str, max: u8) -> Result<Vec<u8>, ReadError> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from = number(file, line, from.trim(), 0..=u32::from(max))?;
        let to = number(file, line, to.trim(), from..=u32::from(max))?;
        values.extend((from..=to).map(|value| value as u8));
    }
    Ok(values)
}

/// Values, ranges and names of DSCP: `af31,cs6,40-46`.
///
/// # Errors
/// The line, with the list that was expected.
pub(crate) fn dscp_list(file: &str, line: usize, text: &str) -> Result<Vec<u8>, ReadError> {
    let mut values = Vec::new();
    for part in text.split(',') {
        match dscp_named(part.trim()) {
            Some(value) => values.push(value),
            None => values.extend(list(file, line, part, 63)?),
        }
    }
    Ok(values)
}

/// The DSCP of a name of RFC 2474 (class selectors), RFC 2597 (assured), RFC 3246 (expedited forwarding),
/// RFC 5865 (voice-admit) or RFC 8622 (lower effort).
pub(crate) fn dscp_named(name: &str) -> Option<u8> {
    let name = name.to_ascii_lowercase();
    let digits = |text: &str| {
        text.bytes()
            .map(|digit| digit.wrapping_sub(b'0'))
            .collect::<Vec<_>>()
    };
    match (
        name.as_str(),
        name.get(..2),
        name.get(2..).map(digits).as_deref(),
    ) {
        ("default", ..) => Some(0),
        ("ef", ..) => Some(46),
        ("va" | "voice-admit", ..) => Some(44),
        ("le", ..) => Some(1),
        (_, Some("cs"), Some([class @ 0..=7])) => Some(class << 3),
        (_, Some("af"), Some([class @ 1..=4, drop @ 1..=3])) => Some(class << 3 | drop << 1),
        _ => None,
    }
}

/// Values as ranges: `0-25,27`.
pub fn ranges(values: impl IntoIterator<Item = u8>) -> String {
    let mut found: Vec<(u8, u8)> = Vec::new();
    for value in values {
        match found.last_mut() {
            Some((_, to)) if u16::from(*to) + 1 == u16::from(value) => *to = value,
            _ => found.push((value, value)),
        }
    }
    let part = |(from, to): &(u8, u8)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    };
    found.iter().map(part).collect::<Vec<_>>().join(",")
}

/// The classes of a mask.
pub fn classes(mask: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |class| mask >> class & 1 == 1)
}

/// Sets the bits of some classes in a mask, or clears them.
pub fn set_bits(mask: &mut u8, classes: u8, on: bool) {
    *mask = if on {
        *mask | classes
    } else {
        *mask & !classes
    };
}

/// The mask of some classes.
pub fn mask(classes: &[u8]) -> u8 {
    classes
        .iter()
        .fold(0, |mask, class| mask | 1 << (class & 7))
}

/// A word for a message, not longer than a line.
pub fn shortened(word: &str) -> String {
    word.chars().take(60).collect()
}

/// The longest name that is compared with others, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The nearest of several names, if one is near enough to be a slip. Comparing takes time in proportion to
/// the product of both lengths, so nothing is near to a text that is longer than any name.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let names = names.filter(|other| other.len() <= NAME_BYTES_MAX);
    let distance =
        |other: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
    let (near, slips) = names
        .map(|other| (other, distance(other)))
        .min_by_key(|(_, slips)| *slips)?;
    (slips <= 1 + name.chars().count() / 4).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_are_inverse() {
        let values: Vec<u8> = (0..26).chain(27..48).chain([50, 63]).collect();
        assert_eq!(ranges(values.clone()), "0-25,27-47,50,63");
        assert_eq!(list("f", 1, "0-25,27-47,50,63", 63), Ok(values));
        assert_eq!(
            list("f", 7, "3-99", 63).unwrap_err().to_string(),
            "cannot read line 7 of f: \"99\" is no number from 3 to 63"
        );
    }

    #[test]
    fn names_of_dscps_are_those_of_the_rfcs() {
        for (name, value) in [
            ("default", Some(0)),
            ("cs6", Some(48)),
            ("AF31", Some(26)),
            ("af43", Some(38)),
            ("ef", Some(46)),
            ("va", Some(44)),
            ("le", Some(1)),
            ("af51", None),
            ("cs8", None),
            ("26", None),
        ] {
            assert_eq!(dscp_named(name), value, "{name}");
        }
    }

    #[test]
    fn binary_data_is_refused_with_its_line() {
        let error = lines("leaf.cfg", "qos\n\u{1}\u{2}x", &['!']).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read line 2 of leaf.cfg: "),
            "{error}"
        );
    }
}
