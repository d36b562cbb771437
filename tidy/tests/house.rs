//! The rules, applied to this repository: one line each.

use tidy::rules::arrows::{self, Workspace};
use tidy::rules::{manifests, paths, sans_io, settling, size, unsafe_code, words};
use tidy::{Finding, Tree};

macro_rules! rules {
    ($($name:ident: $check:expr;)*) => {
        $(
            #[test]
            fn $name() {
                report($check(&tree()));
            }
        )*
    };
}

rules! {
    crates_see_only_lower_ranks: |tree: &Tree| arrows::check(&Workspace::of(&tree.root));
    versions_stand_in_one_place: manifests::versions_stand_in_one_place;
    crates_are_uniform: manifests::crates_are_uniform;
    dependencies_have_a_reason:
        |tree: &Tree| manifests::dependencies_have_a_reason(tree, &Workspace::of(&tree.root));
    locks_name_crates_io: manifests::locks_name_crates_io;
    sans_io_crates_neither_wait_nor_look: sans_io::check;
    lines_fit: |tree: &Tree| settling::spare(size::line_width(tree));
    files_are_short: size::file_length;
    functions_are_short: size::function_length;
    unsafe_code_is_where_it_may_be: unsafe_code::only_where_allowed;
    unsafe_code_has_a_reason: unsafe_code::has_a_reason;
    nothing_is_unfinished: |tree: &Tree| settling::spare(words::unfinished(tree));
    nobody_settles_for_ever:
        |tree: &Tree| settling::settled(&[size::line_width(tree), words::unfinished(tree)].concat());
    names_say_something: words::names;
    no_loose_ends: words::loose_ends;
    no_paths_of_one_machine: paths::of_one_machine;
    links_lead_somewhere: paths::links;
    no_dead_files: paths::dead_files;
}

fn tree() -> Tree {
    let tree = Tree::of_this_repository().expect("the repository can be read");
    assert!(tree.file("crates/wire/src/lib.rs").is_some(), "{} is not rockery", tree.root.display());
    tree
}

fn report(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}
