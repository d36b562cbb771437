//! Distributions of message lengths: published ones, and those of a file.

use super::file_table::FileTable;
use super::named_file::{MESSAGE_BYTES_MAX, NamedFile};
use crate::random::RunRng;
use fabric_file::schema::{Sizes, Workload};
use fabric_file::{FileError, ReadFile};
use std::borrow::Cow;

/// Lines of a file with a distribution at most.
const LINES_MAX: usize = 1 << 16;

/// Parts of the whole in which a file is read: a hundredth is 10,000 of them.
const MILLION: u64 = 1_000_000;

/// Up to so many bytes, so many messages of [`SizeTable::whole`]. Between two entries evenly.
type Entry = (u64, u64);

/// Alizadeh et al., "Data Center TCP", SIGCOMM 2010, figure 4, as HPCC's authors tabulate it.
const WEB_SEARCH: &[Entry] = &[
    (0, 0),
    (10_000, 1_500),
    (20_000, 2_000),
    (30_000, 3_000),
    (50_000, 4_000),
    (80_000, 5_300),
    (200_000, 6_000),
    (1_000_000, 7_000),
    (2_000_000, 8_000),
    (5_000_000, 9_000),
    (10_000_000, 9_700),
    (30_000_000, 10_000),
];

/// Alibaba's block storage, 2019, as HPCC's authors tabulate it.
const STORAGE: &[Entry] = &[
    (0, 0),
    (4_000, 2_293),
    (8_000, 6_921),
    (16_000, 8_061),
    (32_000, 9_047),
    (64_000, 9_353),
    (128_000, 9_677),
    (256_000, 9_753),
    (2_000_000, 10_000),
];

/// A distribution of message lengths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SizeTable {
    entries: Cow<'static, [Entry]>,
    /// The number that stands for all messages.
    whole: u64,
}

/// The distribution that a workload has, if it has one.
pub(super) fn read(
    table: FileTable<'_>,
    workload: &Workload,
    files: &mut ReadFile<'_>,
) -> Result<Option<SizeTable>, FileError> {
    let published = |entries| SizeTable {
        entries: Cow::Borrowed(entries),
        whole: 10_000,
    };
    let Some(name) = &workload.sizes_file else {
        return Ok(workload.sizes.map(|sizes| match sizes {
            Sizes::WebSearch => published(WEB_SEARCH),
            Sizes::Storage => published(STORAGE),
        }));
    };
    let file = NamedFile {
        table,
        field: "sizes-file",
        name,
        example: "each line has bytes, and how many of a hundred messages are not longer: 4096 52.5",
    };
    let published = workload.sizes.map(|_| "sizes");
    file.refuse_another("the file is a distribution", published)?;
    file.read(files, SizeTable::parse).map(Some)
}

/// A percentage in millionths of the whole.
fn millionths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || fraction.len() > 4 {
        return None;
    }
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let number: u64 = format!("{whole}{fraction:0<4}").parse().ok()?;
    (number <= MILLION).then_some(number)
}

impl SizeTable {
    /// Reads lines of bytes and percentages, both of which grow; `#` begins a comment.
    fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<Entry> = Vec::new();
        for (line, number) in text.lines().zip(1_usize..) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else { continue };
            let at = |what: &str| format!(", line {number}: {what}");
            if number > LINES_MAX {
                return Err(at(&format!("more than {LINES_MAX} lines")));
            }
            let bytes = first
                .parse::<u64>()
                .ok()
                .filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
            let bytes = bytes.ok_or_else(|| at("the bytes are no number up to 2147483648"))?;
            let part = words.next().and_then(millionths);
            let part = part.ok_or_else(|| {
                at("the percentage is no number from 0 to 100 with four decimals at most")
            })?;
            if words.next().is_some() {
                return Err(at("there is more than two numbers"));
            }
            // What is not above the first size has that size.
            let first = entries.is_empty() && part > 0;
            entries.extend(first.then_some((bytes, 0)));
            let before = entries.last().copied().unwrap_or((0, 0));
            if bytes < before.0 || part < before.1 {
                return Err(at("both numbers grow from line to line"));
            }
            entries.push((bytes, part));
        }
        match entries.last() {
            Some((bytes, MILLION)) if *bytes > 0 => Ok(Self {
                entries: Cow::Owned(entries),
                whole: MILLION,
            }),
            Some(_) => Err(": the last line is not 100 percent of something".to_owned()),
            None => Err(": it has no line with a size and a percentage".to_owned()),
        }
    }

    /// The mean length.
    pub(super) fn mean(&self) -> f64 {
        let twice = 2.0 * self.whole as f64;
        let piece = |pair: &[Entry]| {
            (pair[1].1 - pair[0].1) as f64 * (pair[0].0 + pair[1].0) as f64 / twice
        };
        self.entries.windows(2).map(piece).sum()
    }

    /// The length of a message.
    pub(super) fn length(&self, rng: &mut RunRng) -> u64 {
        let throw = rng.below(self.whole << 20);
        let mut pairs = self.entries.windows(2);
        let Some(&[(from, low), (to, high)]) = pairs.find(|pair| throw < pair[1].1 << 20) else {
            return 1;
        };
        let part = u128::from(throw - (low << 20));
        from + (u128::from(to - from) * part / u128::from((high - low) << 20)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(entries: &'static [Entry]) -> SizeTable {
        SizeTable {
            entries: Cow::Borrowed(entries),
            whole: 10_000,
        }
    }

    #[test]
    fn lengths_are_as_the_tables_say() {
        let own = "# bytes percent\n100 20\n\n1000 50.5 # half\n50000 100\n";
        let own = SizeTable::parse(own).expect("a table");
        for (table, average) in [
            (published(WEB_SEARCH), 1_711_250.0),
            (published(STORAGE), 40_000.0),
            (own, 0.2 * 100.0 + 0.305 * 550.0 + 0.495 * 25_500.0),
        ] {
            let mean = table.mean();
            assert!((mean / average - 1.0).abs() < 0.25, "{mean}");
            let mut rng = RunRng::new(3);
            let thrown: Vec<u64> = (0..40_000).map(|_| table.length(&mut rng)).collect();
            let sum: u64 = thrown.iter().sum();
            assert!((sum as f64 / 4e4 / mean - 1.0).abs() < 0.03);
            for (bytes, part) in table.entries.iter().filter(|(_, part)| *part > 0) {
                let below = thrown.iter().filter(|length| *length <= bytes).count() as f64 / 4e4;
                let part = *part as f64 / table.whole as f64;
                assert!((below - part).abs() < 0.01, "{bytes}: {below}");
            }
        }
    }

    #[test]
    fn a_file_that_is_no_distribution_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "it has no line with a size"),
            ("# nothing\n", "it has no line with a size"),
            ("100 50\n", "the last line is not 100 percent"),
            ("0 100\n", "the last line is not 100 percent"),
            ("100 50\n90 100\n", ", line 2: both numbers grow"),
            ("100 50\n200 40\n", ", line 2: both numbers grow"),
            ("100 101\n", ", line 1: the percentage"),
            ("100 5e1\n", ", line 1: the percentage"),
            ("100 1.00001\n", ", line 1: the percentage"),
            ("100\n", ", line 1: the percentage"),
            ("x 100\n", ", line 1: the bytes"),
            ("9999999999 100\n", ", line 1: the bytes"),
            ("1 100 3\n", ", line 1: there is more"),
        ] {
            let error = SizeTable::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
