//! The rules, applied to this repository: one line each.

use tidy::rules::arrows::{self, Workspace};
use tidy::rules::{
    claims, comments, cycles, environment, licences, manifests, pages, parameters, paths, printing,
    sans_io, size, types, unsafe_code, words,
};
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
    crates_see_only_wings_below: |tree: &Tree| arrows::check(&Workspace::of(&tree.root));
    versions_stand_in_one_place: manifests::versions_stand_in_one_place;
    crates_are_uniform: manifests::crates_are_uniform;
    dependencies_have_a_reason:
        |tree: &Tree| manifests::dependencies_have_a_reason(tree, &Workspace::of(&tree.root));
    crates_of_others_have_allowed_licences_and_one_version:
        |tree: &Tree| licences::check(&licences::packages(&tree.root));
    locks_name_crates_io: manifests::locks_name_crates_io;
    sans_io_crates_neither_wait_nor_look: sans_io::check;
    lines_fit: size::line_width;
    files_are_short: size::file_length;
    parameters_have_names: parameters::tuples;
    variables_are_read_in_one_place: environment::read_in_one_place;
    libraries_print_by_no_macro: printing::not_by_macros;
    unsafe_code_is_where_it_may_be: unsafe_code::only_where_allowed;
    unsafe_code_has_a_reason: unsafe_code::has_a_reason;
    modules_import_each_other_in_one_direction: cycles::between_modules;
    nothing_is_unfinished: words::unfinished;
    names_say_something: words::names;
    methods_have_objects: words::verbs;
    no_loose_ends: words::loose_ends;
    no_paths_of_one_machine: paths::of_one_machine;
    links_lead_somewhere: paths::links;
    no_dead_files: paths::dead_files;
    the_root_holds_listed_files_only: claims::root_files;
    the_architecture_page_has_each_crate_in_its_wing:
        |tree: &Tree| claims::wings(tree, &Workspace::of(&tree.root));
    every_fuzz_target_is_documented: claims::fuzz_targets;
    pages_are_in_the_list_of_the_site: claims::pages_in_the_summary;
    paths_in_the_documentation_exist: claims::paths_in_docs;
    documentation_comments_are_sentences: comments::short;
    a_type_name_has_one_meaning: types::with_several_meanings;
    lines_of_the_documentation_fit: size::page_width;
    pages_are_short: pages::length;
    pages_begin_with_what_a_reader_can_do: pages::beginning;
    pages_for_users_tell_no_history: pages::history;
    decisions_are_in_their_index: pages::decisions_in_the_index;
}

fn tree() -> Tree {
    let tree = Tree::of_this_repository().expect("the repository can be read");
    assert!(
        tree.file("core/wire/src/lib.rs").is_some(),
        "{} is not rockery",
        tree.root.display()
    );
    tree
}

fn report(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

/// The walks and the table of the architecture page name files and functions that exist.
#[test]
fn the_architecture_page_names_functions_that_exist() {
    let tree = tree();
    let page = tree
        .file("docs/design/architecture.md")
        .expect("the page exists");
    let mut checked = 0;
    for line in page.text.lines().filter(|line| line.contains(".rs`: `")) {
        let mut names = line.split('`').skip(1).step_by(2);
        let (Some(path), Some(function)) = (names.next(), names.next()) else {
            continue;
        };
        let file = tree
            .file(path)
            .unwrap_or_else(|| panic!("docs/design/architecture.md names no file: {path}"));
        // Behind the name are the parameters, or those of types.
        let is_there = ['(', '<']
            .iter()
            .any(|next| file.text.contains(&format!("fn {function}{next}")));
        assert!(
            is_there,
            "docs/design/architecture.md: {path} has no function {function}"
        );
        checked += 1;
    }
    assert!(checked >= 24, "the table names {checked} functions");
}
