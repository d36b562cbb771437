//! Modules of a crate import each other in one direction: a reader who begins below needs nothing above.
//!
//! A module and those within it are one idea in several files, so they may import each other. A module beside
//! them that imports one of them may not be imported by any of these.

use std::collections::VecDeque;

use crate::modules::{Module, Modules};
use crate::{File, Finding, Tree};

/// Modules that import each other, one finding per cycle.
pub fn between_modules(tree: &Tree) -> Vec<Finding> {
    let root_of = |path: &'static str| move |file: &&File| file.path.ends_with(path);
    let (libraries, programs) = (root_of("/src/lib.rs"), root_of("/src/main.rs"));
    let roots = tree
        .files
        .iter()
        .filter(|file| libraries(file) || programs(file));
    roots
        .flat_map(|root| Graph::of(&Modules::below(tree, root)).cycles())
        .collect()
}

/// Imports between the modules of one crate: for each module what it imports, and at which line.
struct Graph<'m, 'a> {
    modules: &'m [Module<'a>],
    imports: Vec<Vec<(usize, usize)>>,
}

impl<'m, 'a> Graph<'m, 'a> {
    fn of(modules: &'m Modules<'a>) -> Self {
        let all = modules.all();
        let imports = all.iter().map(|from| modules.imports_of(from)).collect();
        Self {
            modules: all,
            imports,
        }
    }

    fn cycles(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut is_reported = vec![false; self.modules.len()];
        for start in 0..self.modules.len() {
            if is_reported[start] {
                continue;
            }
            let Some(cycle) = self.shortest_cycle(start) else {
                continue;
            };
            cycle.iter().for_each(|module| is_reported[*module] = true);
            findings.push(self.finding(&cycle));
        }
        findings
    }

    /// The modules of the shortest cycle through `start`, which comes first.
    fn shortest_cycle(&self, start: usize) -> Option<Vec<usize>> {
        let is_beside =
            |next: &usize| !self.is_within(*next, start) && !self.is_within(start, *next);
        let beside = self.imports[start]
            .iter()
            .map(|(next, _)| *next)
            .filter(is_beside);
        let mut cycle = beside
            .filter_map(|next| self.path(next, start))
            .min_by_key(Vec::len)?;
        cycle.pop();
        cycle.insert(0, start);
        Some(cycle)
    }

    /// The modules of the shortest path from one module to another, both included, that passes through none
    /// which both are within.
    fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut reached_from = vec![None; self.modules.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(module) = queue.pop_front() {
            if module == to {
                let back = std::iter::successors(Some(to), |module| reached_from[*module]);
                let mut path: Vec<usize> = back.collect();
                path.reverse();
                return Some(path);
            }
            for (next, _) in &self.imports[module] {
                let is_common_parent = self.is_within(from, *next) && self.is_within(to, *next);
                if *next != from && !is_common_parent && reached_from[*next].is_none() {
                    reached_from[*next] = Some(module);
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    fn is_within(&self, inner: usize, outer: usize) -> bool {
        self.modules[inner]
            .path
            .starts_with(&self.modules[outer].path)
    }

    fn finding(&self, cycle: &[usize]) -> Finding {
        let (start, next) = (cycle[0], *cycle.get(1).unwrap_or(&cycle[0]));
        let line = self.imports[start]
            .iter()
            .find(|(to, _)| *to == next)
            .map_or(0, |(_, line)| *line);
        let names: Vec<String> = cycle
            .iter()
            .chain([&start])
            .map(|module| self.modules[*module].path.join("::"))
            .collect();
        let what = format!(
            "an import cycle, {}: move what both sides use to a module below them",
            names.join(" → ")
        );
        self.modules[start].file.finding(line, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: (&str, &str) = (
        "core/a/src/lib.rs",
        "mod b;\nmod c;\nmod d;\npub use c::C;\n",
    );

    fn found(b: &str, c: &str, d: &str) -> Vec<String> {
        let files = [
            ("core/a/src/b.rs", b),
            ("core/a/src/c.rs", c),
            ("core/a/src/d/mod.rs", d),
        ];
        let tree = Tree::of(&[&[ROOT], files.as_slice()].concat());
        between_modules(&tree)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_cycle_is_found_whichever_way_it_is_written() {
        let c = "pub struct C(crate::d::D);";
        let d = "pub struct D(Option<super::b::B>);";
        let advice = "move what both sides use to a module below them";
        let expected = [format!(
            "core/a/src/b.rs:1: an import cycle, b → c → d → b: {advice}"
        )];
        for b in [
            "use crate::c::C;\npub struct B(C);",
            "use super::{c::{self as other}, d as _};\npub struct B(other::C);",
            "pub struct B(Box<crate::c::C>);",
            "pub struct B(Box<super::C>);",
            "fn f() { g!(crate::C); }",
        ] {
            let b = b.replace(", d as _", "");
            assert_eq!(found(&b, c, d), expected, "{b}");
        }
    }

    #[test]
    fn imports_in_one_direction_are_no_cycle() {
        assert_eq!(
            found("use crate::c::C;", "use crate::d::D;", "pub struct D;"),
            [""; 0]
        );
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        assert_eq!(
            found("use crate::c::C;", tests, "#[cfg(test)]\nuse crate::b::B;"),
            [""; 0]
        );
        assert_eq!(
            found(
                "use crate::c::C;",
                "// crate::b\nconst A: &str = \"crate::b::B\";",
                ""
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_module_and_those_within_it_are_one_idea() {
        let child = (
            "core/a/src/d/e.rs",
            "use super::D;\nuse crate::C;\npub struct E(D);",
        );
        let parent = (
            "core/a/src/d/mod.rs",
            "mod e;\npub use e::E;\npub struct D(Option<Box<E>>);",
        );
        let tree = |c| Tree::of(&[ROOT, ("core/a/src/c.rs", c), parent, child]);
        assert_eq!(between_modules(&tree("pub struct C;")), []);
        // Through the re-export, the child is imported, and imports what imports it.
        assert_eq!(between_modules(&tree("use crate::d::E;")).len(), 1);
    }
}
