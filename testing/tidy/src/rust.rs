//! Just enough of Rust: tokens with their lines. Comments are no tokens and macros' bodies are, so that
//! neither a word in prose is taken for code nor code within a macro is missed.

use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// The kind of code after the word `unsafe`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsafe {
    /// A block, an implementation, or a block of foreign items.
    Code,
    /// A function, method or trait: an obligation of its users.
    Contract,
    /// An attribute: `#[unsafe(no_mangle)]`.
    Attribute,
    /// The type of a function pointer: nothing happens there.
    Type,
}

/// The tokens of a file.
#[derive(Clone, Debug)]
pub struct Tokens(Vec<TokenTree>);

impl Tokens {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// When it is not Rust.
    pub fn of(text: &str) -> Result<Self, LexError> {
        Ok(Self(TokenStream::from_str(text)?.into_iter().collect()))
    }

    /// Parameters of functions that are tuples taken apart, `(a, b): (A, B)`: the function and the line.
    pub fn tuple_parameters(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        walk(&self.0, &mut |tokens| {
            found.extend(tuple_parameters_at(tokens))
        });
        found
    }

    /// The names of methods, with their lines.
    pub fn methods(&self) -> Vec<(String, usize)> {
        let mut methods = Vec::new();
        walk(&self.0, &mut |tokens| {
            let method = function_at(tokens).filter(|(_, _, parameters)| is_self(parameters));
            methods.extend(method.map(|(name, line, _)| (name, line)));
        });
        methods
    }

    /// The names of all macros that are called, with their lines.
    pub fn macros(&self) -> Vec<(String, usize)> {
        let mut macros = Vec::new();
        walk(&self.0, &mut |tokens| {
            if let [
                TokenTree::Ident(name),
                TokenTree::Punct(mark),
                TokenTree::Group(_),
                ..,
            ] = tokens
                && mark.as_char() == '!'
            {
                macros.push((name.to_string(), name.span().start().line));
            }
        });
        macros
    }

    /// Each identifier, with the path before it (`std::env::var`) as far as it is written out, and its line.
    pub fn names(&self) -> Vec<(String, usize)> {
        let mut names = Vec::new();
        collect_names(&self.0, &mut names);
        names
    }

    /// The names of modules that lie in files of their own: `mod name;`.
    pub fn modules(&self) -> Vec<String> {
        let mut modules = Vec::new();
        walk(&self.0, &mut |tokens| {
            if let [
                TokenTree::Ident(word),
                TokenTree::Ident(name),
                TokenTree::Punct(end),
                ..,
            ] = tokens
                && word == "mod"
                && end.as_char() == ';'
            {
                modules.push(name.to_string());
            }
        });
        modules
    }

    /// Each `unsafe`, with its line.
    pub fn unsafes(&self) -> Vec<(Unsafe, usize)> {
        let mut found = Vec::new();
        walk(&self.0, &mut |tokens| {
            if let [TokenTree::Ident(word), rest @ ..] = tokens
                && word == "unsafe"
            {
                found.push((what_is_unsafe(rest), word.span().start().line));
            }
        });
        found
    }
}

/// The identifiers of a group and of the groups in it, with their paths.
fn collect_names(tokens: &[TokenTree], names: &mut Vec<(String, usize)>) {
    let (mut path, mut is_path) = (String::new(), false);
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if !is_path {
                    path.clear();
                }
                path.push_str(&name.to_string());
                names.push((path.clone(), name.span().start().line));
                is_path = false;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => {
                // Two colons join names; one, as in `name: Type`, does not.
                is_path = path.ends_with(':');
                path.push(':');
            }
            TokenTree::Group(group) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                let before = names.len();
                collect_names(&inner, names);
                if is_path {
                    // Names in braces: `use std::env::{var, args}`.
                    let inner = names[before..].iter_mut();
                    inner.for_each(|(name, _)| name.insert_str(0, &path));
                }
                (path, is_path) = (String::new(), false);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => (path, is_path) = (String::new(), false),
        }
    }
}

/// Calls `visit` with what begins at each token, in each group.
fn walk(tokens: &[TokenTree], visit: &mut dyn FnMut(&[TokenTree])) {
    for start in 0..tokens.len() {
        visit(&tokens[start..]);
        if let TokenTree::Group(group) = &tokens[start] {
            let inner: Vec<_> = group.stream().into_iter().collect();
            walk(&inner, visit);
        }
    }
}

/// The function that begins here, if one does: its name, the line, and its parameters.
fn function_at(tokens: &[TokenTree]) -> Option<(String, usize, Vec<TokenTree>)> {
    let [TokenTree::Ident(word), TokenTree::Ident(name), rest @ ..] = tokens else {
        return None;
    };
    let parameters = rest.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    let parameters = parameters.filter(|_| word == "fn")?;
    let line = name.span().start().line;
    let parameters = parameters.stream().into_iter().collect();
    Some((name.to_string(), line, parameters))
}

/// Whether parameters begin with `self`, by value or by reference.
fn is_self(parameters: &[TokenTree]) -> bool {
    let mut words = parameters
        .iter()
        .take_while(|token| !matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','));
    words.any(|token| matches!(token, TokenTree::Ident(word) if word == "self"))
}

/// The parameters that are tuples of the function that begins here, if one does.
fn tuple_parameters_at(tokens: &[TokenTree]) -> Vec<(String, usize)> {
    let Some((name, _, parameters)) = function_at(tokens) else {
        return Vec::new();
    };
    let pairs = parameters.windows(2);
    let tuples = pairs.filter_map(|pair| match pair {
        [TokenTree::Group(pattern), TokenTree::Punct(colon)]
            if pattern.delimiter() == Delimiter::Parenthesis && colon.as_char() == ':' =>
        {
            Some((name.to_string(), pattern.span_open().start().line))
        }
        _ => None,
    });
    tuples.collect()
}

fn what_is_unsafe(rest: &[TokenTree]) -> Unsafe {
    match rest {
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Parenthesis => {
            Unsafe::Attribute
        }
        [TokenTree::Ident(word), TokenTree::Group(_), ..] if word == "fn" => Unsafe::Type,
        [TokenTree::Ident(word), ..] if word == "fn" || word == "trait" => Unsafe::Contract,
        [TokenTree::Ident(word), after @ ..] if word == "extern" => match after {
            [TokenTree::Literal(_), after @ ..] => what_is_extern(after),
            after => what_is_extern(after),
        },
        _ => Unsafe::Code,
    }
}

fn what_is_extern(after: &[TokenTree]) -> Unsafe {
    match after {
        [TokenTree::Ident(word), TokenTree::Group(_), ..] if word == "fn" => Unsafe::Type,
        [TokenTree::Ident(word), ..] if word == "fn" => Unsafe::Contract,
        _ => Unsafe::Code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_strings_are_not_code() {
        let text = "// todo!()\nfn a() { let b = \"unsafe { dbg!(1) }\"; println!(\"{b}\"); }";
        let tokens = Tokens::of(text).unwrap();
        assert_eq!(tokens.macros(), [("println".to_owned(), 2)]);
        assert!(tokens.unsafes().is_empty());
    }

    #[test]
    fn kinds_of_unsafe_are_told_apart() {
        let text = "unsafe impl A for B {}\nunsafe fn c() {}\ntype D = unsafe extern \"C\" fn(u8);\n\
                    unsafe extern \"C\" {}\nfn e() { unsafe {} }\n\
                    #[unsafe(no_mangle)]\nunsafe extern \"C\" fn f() {}";
        let kinds: Vec<_> = Tokens::of(text)
            .unwrap()
            .unsafes()
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        use Unsafe::{Attribute, Code, Contract, Type};
        assert_eq!(
            kinds,
            [Code, Contract, Type, Code, Code, Attribute, Contract]
        );
    }

    #[test]
    fn modules_in_files_are_listed() {
        let tokens = Tokens::of("pub mod a;\nmod b { mod c; }\n").unwrap();
        assert_eq!(tokens.modules(), ["a", "c"]);
    }
}
