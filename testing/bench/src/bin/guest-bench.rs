//! `guest-bench [--json] [PROCESSORS]`: rockery beside the kernel's rxe in one guest, by the same programs.
//!
//! Both ends of each program run in the guest and go by its address. A guest runs under software emulation,
//! so its figures mean nothing by themselves; their ratio shows which of the two does the same work with
//! fewer instructions. The kernel's device is measured first and then unloaded, because both need UDP port
//! 4791.

use bench::Table;
use programs::{Error, Guest, GuestWithRockery, Machine, Rockery, Segment, perftest};
use serde_json::{Value, json};

/// Each figure is the median of so many runs.
const ROUNDS: usize = 3;
/// Ethernet MTU: path MTU 4096.
const MTU: u32 = 9000;
/// More than any machine's tests have to emulate.
const PROCESSORS_MAX: u32 = 8;
/// Attempts of a run, which fails when an end could not measure the clock of the processor that it is on.
const ATTEMPTS_MAX: usize = 3;

/// Which column of perftest's table counts, and whether more of it is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    MibPerSecond,
    MessagesPerSecond,
    MicrosecondsP50,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::MibPerSecond => "MiB/s",
            Self::MessagesPerSecond => "messages/s",
            Self::MicrosecondsP50 => "us, p50",
        }
    }

    fn figure(self, row: &perftest::Row) -> Option<f64> {
        match self {
            Self::MibPerSecond => row.figures.get(1).copied(),
            Self::MessagesPerSecond => row.figures.get(2).map(|millions| millions * 1e6),
            Self::MicrosecondsP50 => row.figures.get(2).copied(),
        }
    }

    /// How many times as fast as `other` `one` is.
    fn speedup(self, one: f64, other: f64) -> f64 {
        if self == Self::MicrosecondsP50 {
            other / one
        } else {
            one / other
        }
    }
}

/// Few messages: emulation takes its time.
const FIGURES: [(&str, Unit); 12] = [
    ("ib_send_bw -s 65536 -n 300", Unit::MibPerSecond),
    ("ib_write_bw -s 65536 -n 300", Unit::MibPerSecond),
    ("ib_read_bw -s 65536 -n 300", Unit::MibPerSecond),
    ("ib_send_bw -s 64 -n 3000", Unit::MessagesPerSecond),
    ("ib_write_bw -s 64 -n 3000", Unit::MessagesPerSecond),
    ("ib_read_bw -s 64 -n 500", Unit::MessagesPerSecond),
    ("ib_atomic_bw -n 500", Unit::MessagesPerSecond),
    ("ib_send_bw -c UD -s 64 -n 3000", Unit::MessagesPerSecond),
    ("ib_send_lat -s 64 -n 100", Unit::MicrosecondsP50),
    ("ib_write_lat -s 64 -n 100", Unit::MicrosecondsP50),
    ("ib_read_lat -s 64 -n 100", Unit::MicrosecondsP50),
    ("ib_atomic_lat -n 100", Unit::MicrosecondsP50),
];

/// The figures of one guest.
struct Comparison {
    processors: u32,
    kernel: Vec<Option<f64>>,
    rockery: Vec<Option<f64>>,
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.first().is_some_and(|word| word == "--json");
    words.drain(..usize::from(json));
    let processors = match words.as_slice() {
        [] => Some(1),
        [word] => word
            .parse()
            .ok()
            .filter(|processors| (1..=PROCESSORS_MAX).contains(processors)),
        _ => None,
    };
    let Some(processors) = processors else {
        eprintln!(
            "usage: guest-bench [--json] [PROCESSORS]   (1 to {PROCESSORS_MAX}, 1 if not given)"
        );
        std::process::exit(2);
    };
    match compare(processors) {
        Ok(comparison) if json => println!("{}", as_json(&comparison)),
        Ok(comparison) => print!("{}", as_table(&comparison)),
        Err(error) => {
            eprintln!("guest-bench: {error}");
            std::process::exit(1);
        }
    }
}

fn compare(processors: u32) -> Result<Comparison, Error> {
    let (rockery, segment) = (Rockery::built(), Segment::new(MTU)?);
    let files = rockery.files();
    let files: Vec<_> = files.iter().map(std::path::PathBuf::as_path).collect();
    let guest: Guest = segment.guest_with_processors(11, processors, &files)?;
    let kernel = figures(&guest)?;
    let guest = GuestWithRockery::new(guest, &rockery)?;
    Ok(Comparison {
        processors,
        kernel,
        rockery: figures(&guest)?,
    })
}

fn figures(machine: &dyn Machine) -> Result<Vec<Option<f64>>, Error> {
    FIGURES
        .iter()
        .map(|(line, unit)| figure(machine, line, *unit))
        .collect()
}

/// `None` when no run could measure its clock, which emulation sometimes keeps it from.
fn figure(machine: &dyn Machine, line: &str, unit: Unit) -> Result<Option<f64>, Error> {
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        figures.extend(once(machine, line, unit)?);
    }
    eprintln!("{line}: {figures:.1?}");
    Ok((!figures.is_empty()).then(|| bench::median(figures)))
}

fn once(machine: &dyn Machine, line: &str, unit: Unit) -> Result<Option<f64>, Error> {
    for _ in 0..ATTEMPTS_MAX {
        let exchange = perftest::run(machine, machine, line)?;
        let row = perftest::rows(&exchange.client.output)
            .into_iter()
            .next_back();
        if let Some(figure) = row.and_then(|row| unit.figure(&row)) {
            return Ok(Some(figure));
        }
    }
    Ok(None)
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// How many times as fast as the kernel's device rockery is.
fn times(unit: Unit, kernel: Option<f64>, rockery: Option<f64>) -> Option<f64> {
    kernel
        .zip(rockery)
        .map(|(kernel, rockery)| unit.speedup(rockery, kernel))
}

fn as_table(
    Comparison {
        processors,
        kernel,
        rockery,
    }: &Comparison,
) -> String {
    let mut table = Table::new(1, ["program", "unit", "rxe", "rockery", "times"]);
    for (((line, unit), kernel), rockery) in FIGURES.iter().zip(kernel).zip(rockery) {
        let times = shown(times(*unit, *kernel, *rockery), 2);
        let [kernel, rockery] = [kernel, rockery].map(|figure| shown(*figure, 1));
        table.push([
            (*line).to_owned(),
            unit.name().to_owned(),
            kernel,
            rockery,
            times,
        ]);
    }
    format!(
        "Both ends in one guest of {processors} emulated processor(s) (QEMU TCG), Ethernet MTU {MTU}, \
         medians of {ROUNDS}.\ntimes: how many times as fast as the kernel's rxe.\n\n{}",
        table.text()
    )
}

fn as_json(
    Comparison {
        processors,
        kernel,
        rockery,
    }: &Comparison,
) -> String {
    let figures =
        FIGURES
            .iter()
            .zip(kernel)
            .zip(rockery)
            .map(|(((line, unit), kernel), rockery)| {
                let times = times(*unit, *kernel, *rockery);
                json!({
                    "processors": processors,
                    "program": line,
                    "unit": unit.name(),
                    "rxe": kernel,
                    "rockery": rockery,
                    "times": times,
                })
            });
    format!("{:#}", Value::from_iter(figures))
}
