//! Imported files as experiments.

use fabric_file::Document;
use imports::{Imported, Input};
use sim::experiment::{Experiment, Ran};

pub(crate) fn input<'a>(name: &'a str, text: &'a str) -> Input<'a> {
    Input { name, text }
}

/// The experiment of a fabric file and its lists.
pub(crate) fn experiment(imported: &Imported) -> Experiment {
    let mut files = |name: &str| {
        let lists = &imported.lists;
        let list = lists.iter().find(|list| list.name == name);
        list.map(|list| list.text.clone())
            .ok_or_else(|| format!("{name} is not there"))
    };
    let document = Document::read("fabric.toml", &imported.fabric, &mut files)
        .unwrap_or_else(|error| panic!("{error}\n{}", imported.fabric));
    Experiment::new(&document, &mut files)
        .unwrap_or_else(|error| panic!("{error}\n{}", imported.fabric))
}

/// Runs it to its end.
pub(crate) fn run(imported: &Imported) -> Ran {
    let ran = experiment(imported).run(&mut |_| true);
    ran.unwrap_or_else(|error| panic!("{error}\n{}", imported.fabric))
}
