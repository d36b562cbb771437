//! The modules of a crate, and the other modules that each one names.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{File, Tree};

/// How many re-exports a name is followed through.
const RE_EXPORTS: usize = 8;

/// A path within the crate, from its root: `["rules", "size", "check"]`.
type Path = Vec<String>;

/// A module that has a file of its own.
#[derive(Debug)]
pub struct Module<'a> {
    /// The file of the module.
    pub file: &'a File,
    /// The module itself, without `crate`.
    pub path: Path,
    /// The paths that it names, with their lines.
    named: Vec<(Path, usize)>,
    /// The paths that its `use` declarations import, by their names in this module.
    imports: BTreeMap<String, Path>,
}

/// The modules of one crate without those of its tests.
#[derive(Debug)]
pub struct Modules<'a>(Vec<Module<'a>>);

impl<'a> Modules<'a> {
    /// The modules below the file `root`, which is a `lib.rs` or `main.rs`.
    pub fn below(tree: &'a Tree, root: &'a File) -> Self {
        let mut modules = Self(Vec::new());
        modules.add(tree, root, Path::new());
        modules
    }

    /// All modules, parents before children.
    pub fn all(&self) -> &[Module<'a>] {
        &self.0
    }

    /// The indices of the modules in which the things are that `module` names, with the lines.
    pub fn imports_of(&self, module: &Module<'_>) -> Vec<(usize, usize)> {
        let targets = module
            .named
            .iter()
            .map(|(path, line)| (self.definition(path, RE_EXPORTS), *line));
        targets
            .filter_map(|(target, line)| Some((target?, line)))
            .collect()
    }

    fn add(&mut self, tree: &'a Tree, file: &'a File, path: Path) {
        let mut scan = Scan::default();
        if let Ok(tokens) = file.text.parse() {
            scan.block(tokens, &path);
        }
        let Scan {
            mut named,
            imports,
            files,
            relative,
        } = scan;
        for (names, line) in relative {
            let Some((first, rest)) = names.split_first() else {
                continue;
            };
            let start = match imports.get(first) {
                Some(origin) => origin.clone(),
                None if files.contains(first) => {
                    [path.as_slice(), std::slice::from_ref(first)].concat()
                }
                None => continue,
            };
            named.push(([start.as_slice(), rest].concat(), line));
        }
        self.0.push(Module {
            file,
            path: path.clone(),
            named,
            imports,
        });
        for name in files {
            let child = [path.as_slice(), &[name]].concat();
            if let Some(file) = file_of_child(tree, file, &child) {
                self.add(tree, file, child);
            }
        }
    }

    /// The module in which the thing at `path` is, re-exports resolved. None if it is of another crate.
    fn definition(&self, path: &[String], re_exports: usize) -> Option<usize> {
        let own = (0..=path.len())
            .rev()
            .find_map(|length| self.index_of(&path[..length]))?;
        let module = &self.0[own];
        let rest = &path[module.path.len()..];
        let imported = rest.first().and_then(|name| module.imports.get(name));
        match imported {
            Some(origin) if re_exports > 0 && origin[..] != path[..=module.path.len()] => {
                self.definition(&[origin, &rest[1..]].concat(), re_exports - 1)
            }
            _ => Some(own),
        }
    }

    fn index_of(&self, path: &[String]) -> Option<usize> {
        self.0.iter().position(|module| module.path == path)
    }
}

/// The file of the module `child`, whose parent has the file `parent`.
fn file_of_child<'a>(tree: &'a Tree, parent: &File, child: &[String]) -> Option<&'a File> {
    let name = child.last()?;
    let (folder, stem) = parent.path.strip_suffix(".rs")?.rsplit_once('/')?;
    let folder = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    tree.file(&format!("{folder}/{name}.rs"))
        .or_else(|| tree.file(&format!("{folder}/{name}/mod.rs")))
}

/// The result of a scan of the tokens of a file.
#[derive(Default)]
struct Scan {
    named: Vec<(Path, usize)>,
    imports: BTreeMap<String, Path>,
    files: Vec<String>,
    /// Paths that begin with the name of a child or of an import, with their lines.
    relative: Vec<(Path, usize)>,
}

impl Scan {
    /// Reads the items of the module `path`; modules in blocks count as part of their file.
    fn block(&mut self, tokens: TokenStream, path: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while !rest.is_empty() {
            rest = self.item(rest, path);
        }
    }

    /// Reads the first item in `tokens`, and returns the rest.
    fn item<'t>(&mut self, tokens: &'t [TokenTree], path: &[String]) -> &'t [TokenTree] {
        match tokens {
            [
                TokenTree::Punct(mark),
                TokenTree::Group(attribute),
                rest @ ..,
            ] if mark.as_char() == '#' && is_for_tests(attribute.stream()) => after_item(rest),
            [
                TokenTree::Ident(word),
                TokenTree::Ident(name),
                TokenTree::Punct(_),
                rest @ ..,
            ] if word == "mod" => {
                self.files.push(name.to_string());
                rest
            }
            [
                TokenTree::Ident(word),
                TokenTree::Ident(name),
                TokenTree::Group(body),
                rest @ ..,
            ] if word == "mod" => {
                self.block(body.stream(), &[path, &[name.to_string()]].concat());
                rest
            }
            [TokenTree::Ident(word), rest @ ..] if word == "use" => {
                let end = rest
                    .iter()
                    .position(|token| is_mark(token, ';'))
                    .unwrap_or(rest.len());
                self.use_tree(&rest[..end], Path::new(), path);
                &rest[end..]
            }
            [TokenTree::Ident(word), rest @ ..] if is_anchor(&word.to_string()) => {
                let (segments, rest) = segments(tokens, rest);
                if let Some(absolute) = absolute(segments, path) {
                    self.named.push((absolute, word.span().start().line));
                }
                rest
            }
            [TokenTree::Ident(word), first, second, ..]
                if is_mark(first, ':') && is_mark(second, ':') =>
            {
                let (segments, rest) = segments(tokens, &tokens[1..]);
                self.relative.push((segments, word.span().start().line));
                rest
            }
            [TokenTree::Group(group), rest @ ..] => {
                self.block(group.stream(), path);
                rest
            }
            [_, rest @ ..] => rest,
            [] => tokens,
        }
    }

    /// Reads the tokens after `use`, with the `prefix` of the groups around it.
    fn use_tree(&mut self, tokens: &[TokenTree], prefix: Path, path: &[String]) {
        let (own, rest) = match tokens {
            [first @ TokenTree::Ident(_), rest @ ..] => segments(std::slice::from_ref(first), rest),
            _ => (Path::new(), tokens),
        };
        let full = [prefix, own].concat();
        if let [.., TokenTree::Group(group)] = rest {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            for tree in inner
                .split(|token| is_mark(token, ','))
                .filter(|tree| !tree.is_empty())
            {
                self.use_tree(tree, full.clone(), path);
            }
            return;
        }
        let [first, ..] = tokens else { return };
        let line = first.span().start().line;
        let full = match full.split_last() {
            Some((last, before)) if last == "self" && !before.is_empty() => before.to_vec(),
            _ => full,
        };
        let alias = match rest {
            [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                Some(name.to_string())
            }
            _ => full.last().cloned(),
        };
        let anchored = full.first().is_some_and(|first| is_anchor(first));
        let origin = match anchored {
            true => absolute(full, path),
            false => Some([path, full.as_slice()].concat()),
        };
        let (Some(alias), Some(origin)) = (alias, origin) else {
            return;
        };
        if anchored {
            self.named.push((origin.clone(), line));
        } else {
            self.relative.push((origin[path.len()..].to_vec(), line));
        }
        if !rest.iter().any(|token| is_mark(token, '*')) {
            self.imports.insert(alias, origin);
        }
    }
}

/// The names in `first::second::third`, whose first is `tokens[0]`, and what follows them.
fn segments<'t>(tokens: &'t [TokenTree], mut rest: &'t [TokenTree]) -> (Path, &'t [TokenTree]) {
    let mut names: Path = tokens
        .first()
        .map(ToString::to_string)
        .into_iter()
        .collect();
    while let [
        TokenTree::Punct(first),
        TokenTree::Punct(second),
        TokenTree::Ident(name),
        after @ ..,
    ] = rest
        && (first.as_char(), second.as_char()) == (':', ':')
    {
        names.push(name.to_string());
        rest = after;
    }
    (names, rest)
}

/// A path from the crate's root, if `names` begins with `crate`, `self` or `super`; `module` names it.
fn absolute(names: Path, module: &[String]) -> Option<Path> {
    let anchors = names.iter().take_while(|name| is_anchor(name)).count();
    let mut path = match names.first().map(String::as_str) {
        Some("crate") => Path::new(),
        _ => module.to_vec(),
    };
    for _ in names[..anchors].iter().filter(|name| *name == "super") {
        path.pop()?;
    }
    path.extend_from_slice(&names[anchors..]);
    (names.len() > anchors).then_some(path)
}

fn is_anchor(name: &str) -> bool {
    matches!(name, "crate" | "self" | "super")
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Whether an attribute is `cfg(test)`, or `cfg` of something that includes it.
fn is_for_tests(attribute: TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    ["cfg(test)", "cfg(all(test,", "cfg(any(test,"]
        .iter()
        .any(|prefix| text.starts_with(prefix))
}

/// Whether a token is a block in braces.
fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// The tokens after the first item in `tokens`, which ends with a semicolon or a block.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let end = match tokens.first() {
        Some(TokenTree::Ident(word)) if word == "use" => {
            tokens.iter().position(|token| is_mark(token, ';'))
        }
        _ => tokens
            .iter()
            .position(|token| is_mark(token, ';') || is_block(token)),
    };
    &tokens[end.map_or(tokens.len(), |end| end + 1)..]
}
