//! The text exposition format 0.0.4 of Prometheus.
//!
//! A family is written while it borrows the text, so all of its samples stand together below its HELP and
//! TYPE, as the format asks.

use std::fmt::{self, Display, Write as _};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the values of a family mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A value that only grows while the server runs.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
}

impl Kind {
    /// The name in the text.
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// The name of a label and its value. Every text can be a value.
pub type Label<'a> = (&'a str, &'a dyn Display);

/// The value of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A number of things.
    Whole(u64),
    /// A number of seconds, or a ratio.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(u64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(f64::INFINITY) => f.write_str("+Inf"),
            Self::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Self::Real(value) => value.fmt(f),
        }
    }
}

/// Nanoseconds in seconds, the unit of times in Prometheus.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The metrics of a server at one moment.
#[derive(Debug)]
pub struct Exposition {
    prefix: &'static str,
    /// Labels of all samples, as they are written.
    labels: String,
    text: String,
}

impl Exposition {
    /// No metrics yet. The names of all families begin with the prefix.
    pub fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            labels: String::new(),
            text: String::new(),
        }
    }

    /// Gives all samples this label.
    #[must_use]
    pub fn labelled(mut self, name: &str, value: impl Display) -> Self {
        push_label(&mut self.labels, name, &value);
        self
    }

    /// Begins a family of counters.
    pub fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(Kind::Counter, name, help)
    }

    /// Begins a family of gauges.
    pub fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(Kind::Gauge, name, help)
    }

    /// Begins a family of counters or gauges.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> Family<'_> {
        self.begin(kind.name(), name, help)
    }

    /// Begins a family of histograms.
    pub fn histogram(&mut self, name: &str, help: &str) -> Histograms<'_> {
        Histograms(self.begin("histogram", name, help))
    }

    fn begin(&mut self, kind: &str, name: &str, help: &str) -> Family<'_> {
        let name = format!("{}{name}", self.prefix);
        debug_assert!(is_name(&name), "{name} is no name of a metric");
        let head = format!("# TYPE {name} {kind}\n");
        debug_assert!(!self.text.contains(&head), "{name} is there already");
        let help = Escaped {
            text: &help,
            quotes: false,
        };
        _ = write!(self.text, "# HELP {name} {help}\n{head}");
        Family {
            exposition: self,
            name,
        }
    }

    /// The text that Prometheus reads.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Metrics of one name, which differ in their labels.
#[derive(Debug)]
pub struct Family<'a> {
    exposition: &'a mut Exposition,
    name: String,
}

impl Family<'_> {
    /// Writes a sample.
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Into<Value>) -> &mut Self {
        self.write("", labels, value.into());
        self
    }

    fn write(&mut self, suffix: &str, labels: &[Label<'_>], value: Value) {
        let Exposition {
            labels: common,
            text,
            ..
        } = &mut *self.exposition;
        _ = write!(text, "{}{suffix}", self.name);
        if !(common.is_empty() && labels.is_empty()) {
            let mut all = common.clone();
            for (name, value) in labels {
                push_label(&mut all, name, *value);
            }
            _ = write!(text, "{{{all}}}");
        }
        _ = writeln!(text, " {value}");
    }
}

/// The upper limit of a bucket, and how many observations are not above it.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// The upper limit.
    pub limit: f64,
    /// Observations up to this limit.
    pub count: u64,
}

/// Histograms of one name, which differ in their labels.
#[derive(Debug)]
pub struct Histograms<'a>(Family<'a>);

impl Histograms<'_> {
    /// Writes a histogram of `count` observations, whose buckets are sorted by their limits.
    pub fn sample(
        &mut self,
        labels: &[Label<'_>],
        buckets: impl IntoIterator<Item = Bucket>,
        sum: f64,
        count: u64,
    ) {
        let Self(family) = self;
        let mut with_limit = labels.to_vec();
        let last = Bucket {
            limit: f64::INFINITY,
            count,
        };
        for Bucket { limit, count } in buckets.into_iter().chain([last]) {
            let limit = Value::Real(limit);
            with_limit.truncate(labels.len());
            let mut all = with_limit.clone();
            all.push(("le", &limit));
            family.write("_bucket", &all, count.into());
        }
        family.write("_sum", labels, sum.into());
        family.write("_count", labels, count.into());
    }
}

/// Adds a label to those that are written so far.
fn push_label(labels: &mut String, name: &str, value: &dyn Display) {
    debug_assert!(
        is_name(name) && !name.contains(':'),
        "{name} is no name of a label"
    );
    let separator = if labels.is_empty() { "" } else { "," };
    let value = Escaped {
        text: value,
        quotes: true,
    };
    _ = write!(labels, "{separator}{name}=\"{value}\"");
}

/// Whether a metric can have this name: `[a-zA-Z_:][a-zA-Z0-9_:]*`.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    name.bytes().next().is_some_and(is_letter)
        && name
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// A text with backslashes and line feeds escaped, and quotation marks where it stands between these.
struct Escaped<'a, T: ?Sized> {
    text: &'a T,
    quotes: bool,
}

impl<T: Display + ?Sized> Display for Escaped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escaping<'a, 'b> {
            to: &'a mut fmt::Formatter<'b>,
            quotes: bool,
        }
        impl fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|character| match character {
                    '\\' => self.to.write_str("\\\\"),
                    '\n' => self.to.write_str("\\n"),
                    '"' if self.quotes => self.to.write_str("\\\""),
                    other => self.to.write_char(other),
                })
            }
        }
        write!(
            Escaping {
                to: f,
                quotes: self.quotes
            },
            "{}",
            self.text
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_family_has_the_form_of_the_text_format() {
        let mut text = Exposition::new("disk_").labelled("role", "a\\b");
        text.gauge("temperature", "In \"kelvin\".\nOf the \\ disk.")
            .sample(&[], 300.5)
            .sample(&[("sensor", &"the \"first\"\nline")], f64::NEG_INFINITY);
        text.counter("reads_total", "Reads.").sample(&[], 7_u64);
        let buckets = [
            Bucket {
                limit: 0.5,
                count: 1,
            },
            Bucket {
                limit: 2.0,
                count: 3,
            },
        ];
        text.histogram("time_seconds", "Time.")
            .sample(&[("class", &"read")], buckets, 2.25, 4);
        let expected = r#"# HELP disk_temperature In "kelvin".\nOf the \\ disk.
# TYPE disk_temperature gauge
disk_temperature{role="a\\b"} 300.5
disk_temperature{role="a\\b",sensor="the \"first\"\nline"} -Inf
# HELP disk_reads_total Reads.
# TYPE disk_reads_total counter
disk_reads_total{role="a\\b"} 7
# HELP disk_time_seconds Time.
# TYPE disk_time_seconds histogram
disk_time_seconds_bucket{role="a\\b",class="read",le="0.5"} 1
disk_time_seconds_bucket{role="a\\b",class="read",le="2"} 3
disk_time_seconds_bucket{role="a\\b",class="read",le="+Inf"} 4
disk_time_seconds_sum{role="a\\b",class="read"} 2.25
disk_time_seconds_count{role="a\\b",class="read"} 4
"#;
        assert_eq!(text.into_text(), expected);
    }

    /// A sample as a reader of the format sees it.
    #[derive(Clone, PartialEq, Debug)]
    struct Sample {
        family: String,
        labels: BTreeMap<String, String>,
        value: String,
    }

    /// Takes an escaped text up to its end, a quotation mark if it has some.
    fn unescaped(text: &mut std::str::Chars<'_>, end: Option<char>) -> String {
        let mut taken = String::new();
        loop {
            match text.next() {
                found if found == end => return taken,
                Some('\\') => match text.next() {
                    Some('n') => taken.push('\n'),
                    Some(escaped @ ('\\' | '"')) => taken.push(escaped),
                    other => panic!("an escape of {other:?}"),
                },
                Some('\n') | None => panic!("the text ends within a value"),
                Some(other) => taken.push(other),
            }
        }
    }

    fn parsed(line: &str) -> Sample {
        let name_end = line.find(['{', ' ']).expect("a name ends");
        let (family, rest) = line.split_at(name_end);
        let mut labels = BTreeMap::new();
        let mut rest = rest.chars();
        if rest.next() == Some('{') {
            loop {
                let name: String = rest.by_ref().take_while(|it| *it != '=').collect();
                assert_eq!(rest.next(), Some('"'));
                let value = unescaped(&mut rest, Some('"'));
                assert!(labels.insert(name, value).is_none(), "a label comes twice");
                if rest.next() == Some('}') {
                    break;
                }
            }
            assert_eq!(rest.next(), Some(' '));
        }
        let (family, value) = (family.to_owned(), rest.collect());
        Sample {
            family,
            labels,
            value,
        }
    }

    proptest! {
        /// A reader gets every text back, and finds the samples of each family together below its head.
        #[test]
        fn a_reader_gets_back_what_was_written(
            common in any::<String>(),
            families in prop::collection::vec(
                (any::<String>(), prop::collection::vec((any::<String>(), any::<u64>()), 0..4)),
                1..5,
            ),
        ) {
            let mut text = Exposition::new("m").labelled("common", &common);
            for (number, (help, samples)) in families.iter().enumerate() {
                let mut family = text.counter(&format!("{number}_total"), help);
                for (label, value) in samples {
                    family.sample(&[("label", label)], *value);
                }
            }
            let text = text.into_text();
            // Other line separators of Unicode are part of a value.
            let mut lines = text.split_terminator('\n');
            for (number, (help, samples)) in families.iter().enumerate() {
                let name = format!("m{number}_total");
                let head = lines.next().and_then(|it| it.strip_prefix(&format!("# HELP {name} ")));
                prop_assert_eq!(&unescaped(&mut head.expect("HELP").chars(), None), help);
                prop_assert_eq!(lines.next(), Some(&*format!("# TYPE {name} counter")));
                for (label, value) in samples {
                    let expected = Sample {
                        family: name.clone(),
                        labels: [("common", &common), ("label", label)]
                            .map(|(name, value)| (name.to_owned(), value.clone()))
                            .into(),
                        value: value.to_string(),
                    };
                    prop_assert_eq!(parsed(lines.next().expect("a sample")), expected);
                }
            }
            prop_assert_eq!(lines.next(), None);
        }
    }
}
