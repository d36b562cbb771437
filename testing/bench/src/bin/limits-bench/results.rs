//! The results of a run on one kind of processor, which are kept as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use bench::{Machine, Spread, median};
use serde::{Deserialize, Serialize};

use crate::measured::Measured;

/// The results of a run, and the machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Results {
    /// Where it ran.
    pub(crate) machine: Machine,
    /// The day, as YYYY-MM-DD.
    pub(crate) date: String,
    /// How often each figure was measured.
    pub(crate) rounds: usize,
    /// Milliseconds that a loop of always the same work took before each row.
    pub(crate) fixed_loop: Vec<f64>,
    /// The rows that were measured, in the order of the table.
    pub(crate) rows: Vec<Measured>,
}

impl Results {
    /// Reads the last results of each processor in a folder, in the order of the processors' names.
    pub(crate) fn last(folder: &Path) -> io::Result<Vec<Self>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "json") {
                paths.push(path);
            }
        }
        // Names begin with the day.
        paths.sort();
        let mut found = BTreeMap::new();
        for path in paths {
            let results: Self = serde_json::from_str(&fs::read_to_string(&path)?)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            found.insert(processor_name(&results.machine), results);
        }
        Ok(found.into_values().collect())
    }

    /// The file of the results, without its extension: the day and the processor.
    pub(crate) fn file_stem(&self) -> String {
        format!("{}-{}", self.date, processor_name(&self.machine))
    }

    /// Writes the results to a file of their own. Rows that this run did not measure are those of the last
    /// run on this processor if `is_part`.
    pub(crate) fn keep(mut self, folder: &Path, is_part: bool) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", self.file_stem()));
        let mut before = Self::last(folder)?.into_iter();
        let name = processor_name(&self.machine);
        let before = before.find(|it| is_part && processor_name(&it.machine) == name);
        if let Some(before) = before {
            let (fresh, kept) = (std::mem::take(&mut self.rows), before.rows);
            self.rows = kept;
            for row in fresh {
                match self.rows.iter_mut().find(|it| it.name == row.name) {
                    Some(before) => *before = row,
                    None => self.rows.push(row),
                }
            }
        }
        fs::write(path, serde_json::to_string_pretty(&self)? + "\n")
    }

    /// Where and when, and how far the machine's own speed varied.
    pub(crate) fn head(&self) -> String {
        let median = median(self.fixed_loop.clone());
        let spread = Spread::of(self.fixed_loop.iter().copied()).percent_of(median);
        format!(
            "{}; {}, medians of {}; a loop of always the same work took {median:.1} ms ({spread})",
            self.machine, self.date, self.rounds
        )
    }
}

/// The processor's name in lower case, with dashes for what a file's name should not have.
fn processor_name(machine: &Machine) -> String {
    let words = machine
        .processor
        .split(|letter: char| !letter.is_ascii_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
        .to_ascii_lowercase()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measured::tests::measured;

    pub(crate) fn results(processor: &str) -> Results {
        Results {
            machine: Machine {
                processor: processor.into(),
                cores: 2,
                kernel: "6.1".into(),
            },
            date: "2026-11-23".into(),
            rounds: 3,
            fixed_loop: vec![20.0, 19.0, 22.0],
            rows: vec![measured()],
        }
    }

    #[test]
    fn a_run_has_one_file() {
        assert_eq!(
            results("Intel(R) Xeon(R) CPU @ 2.10GHz").file_stem(),
            "2026-11-23-intel-r-xeon-r-cpu-2-10ghz"
        );
        let expected = "AMD EPYC, 2 processors, Linux 6.1; 2026-11-23, medians of 3; a loop of always the \
                        same work took 20.0 ms (-5/+10%)";
        assert_eq!(results("AMD EPYC").head(), expected);
    }

    #[test]
    fn a_part_of_a_run_replaces_its_rows_only() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let whole = results("AMD EPYC");
        whole.clone().keep(folder.path(), false).expect("a file");
        let named = |name: &str, figures: &[f64]| Measured {
            name: name.into(),
            figures: figures.to_vec(),
            ..measured()
        };
        let part = Results {
            date: "2026-11-24".into(),
            rows: vec![named("a ring", &[1.0]), named("a copy", &[2.0])],
            ..whole.clone()
        };
        part.keep(folder.path(), true).expect("a file");
        let kept = Results::last(folder.path()).expect("results");
        assert_eq!(kept[0].date, "2026-11-24");
        let figures: Vec<_> = kept[0]
            .rows
            .iter()
            .map(|it| (it.name.as_str(), &*it.figures))
            .collect();
        assert_eq!(figures, [("a copy", &[2.0][..]), ("a ring", &[1.0])]);

        results("Other")
            .keep(folder.path(), false)
            .expect("a second file");
        assert_eq!(Results::last(folder.path()).expect("results").len(), 2);
        let later = Results {
            date: "2026-11-25".into(),
            ..whole
        };
        later.clone().keep(folder.path(), false).expect("a file");
        assert_eq!(Results::last(folder.path()).expect("results")[0], later);
    }
}
