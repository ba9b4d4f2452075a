//! Items: the modules that a file declares, the paths that it uses, and its test code.

use super::lexer::{Kind, Token};

/// `mod name;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module<'a> {
    /// Inline modules around it, from the outermost.
    pub(crate) inside: Vec<&'a str>,
    pub(crate) name: &'a str,
    /// `#[path]` attribute.
    pub(crate) path: Option<&'a str>,
    pub(crate) line: usize,
}

/// Path that begins at `crate`, `super` or `self`, or stands in a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use<'a> {
    /// Inline modules around it, from the outermost.
    pub(crate) inside: Vec<&'a str>,
    pub(crate) segments: Vec<&'a str>,
    /// Name that a `use` brings into the module; `*` of a glob.
    pub(crate) name: Option<&'a str>,
    pub(crate) line: usize,
}

/// Declarations of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items<'a> {
    pub(crate) modules: Vec<Module<'a>>,
    pub(crate) uses: Vec<Use<'a>>,
    /// Values of all `#[path]` attributes, with their lines.
    pub(crate) paths: Vec<(&'a str, usize)>,
    pub(crate) tests: TestLines,
}

/// Lines of code that only tests have: `#[test]` and `#[cfg(test)]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestLines(Vec<(usize, usize)>);

impl TestLines {
    /// Every line: a file of tests.
    pub(crate) fn all() -> Self {
        Self(vec![(0, usize::MAX)])
    }

    pub(crate) fn contain(&self, line: usize) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&line))
    }
}

/// End of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Line of the brace that closes the body.
    Body(usize),
    /// Line of the semicolon, or of the brace that closes what is around the item.
    Bare(usize),
}

/// End of the item that these tokens begin with.
pub(crate) fn end(item: &[Token<'_>]) -> End {
    let (mut depth, mut braces) = (0, 0);
    for token in item.iter().filter(|token| token.kind == Kind::Mark) {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "{" => braces += 1,
            "}" if braces == 0 => return End::Bare(token.line),
            "}" => {
                braces -= 1;
                if braces == 0 && depth == 0 {
                    return End::Body(token.line);
                }
            }
            ";" if depth == 0 && braces == 0 => return End::Bare(token.line),
            _ => {}
        }
    }
    End::Bare(item.last().map_or(0, |token| token.line))
}

/// Reads the declarations of a file. `code`: its tokens without comments.
pub(crate) fn items<'a>(code: &[Token<'a>]) -> Items<'a> {
    let mut items = Items::default();
    let mut inside: Vec<(&str, usize)> = Vec::new();
    let (mut at, mut depth, mut path) = (0, 0, None);
    while let Some(token) = code.get(at) {
        let rest = &code[at..];
        let around = || inside.iter().map(|&(name, _)| name).collect::<Vec<_>>();
        match token.text {
            "#" if token.is("#") => {
                let attribute = attribute(rest);
                if let Some(to) = path_of(attribute) {
                    path = Some(to);
                    items.paths.push((to, token.line));
                }
                if is_test(attribute) {
                    items.tests.0.push(test_lines(rest));
                }
                at += attribute.len().max(1);
                continue;
            }
            "mod" if token.is("mod") && rest.len() > 2 => {
                let (name, mark) = (rest[1].text, &rest[2]);
                if mark.is(";") {
                    let line = token.line;
                    items.modules.push(Module { inside: around(), name, path, line });
                } else if mark.is("{") {
                    inside.push((name, depth));
                    depth += 1;
                    at += 2;
                }
            }
            "{" if token.is("{") => depth += 1,
            "}" if token.is("}") => {
                depth = depth.saturating_sub(1);
                inside.pop_if(|&mut (_, of)| of == depth);
            }
            "use" if token.is("use") => {
                let around = around();
                at += 1 + use_tree(&code[at + 1..], &[], &mut |segments, name| {
                    let name = Some(name);
                    items.uses.push(Use {
                        inside: around.clone(),
                        segments,
                        name,
                        line: token.line,
                    });
                });
                continue;
            }
            "crate" | "super" | "self" if begins_path(code, at) => {
                let segments = path_segments(rest);
                items.uses.push(Use { inside: around(), segments, name: None, line: token.line });
            }
            _ => {}
        }
        if !token.is("pub") {
            path = None;
        }
        at += 1;
    }
    items
}

/// Tokens of the attribute that begins here, brackets included.
fn attribute<'t, 'a>(rest: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0;
    for (at, token) in rest.iter().enumerate().skip(1) {
        match token.text {
            "!" if at == 1 => {}
            "[" if token.is("[") => depth += 1,
            "]" if token.is("]") => {
                depth -= 1;
                if depth == 0 {
                    return &rest[..=at];
                }
            }
            _ if depth == 0 => break,
            _ => {}
        }
    }
    &[]
}

/// Value of `#[path = "..."]`.
fn path_of<'a>(attribute: &[Token<'a>]) -> Option<&'a str> {
    let [_, _, name, equals, value, _] = attribute else { return None };
    let named = name.is("path") && equals.is("=") && value.kind == Kind::Literal;
    named.then(|| value.text.trim_matches('"'))
}

/// Returns true if the item is for tests alone: `test`, `tokio::test`, `cfg(any(test, ..))`.
fn is_test(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute.iter().filter(|token| token.kind == Kind::Word).collect();
    let Some(first) = words.first() else { return false };
    let not = |at: usize| at > 0 && words[at - 1].is("not");
    match first.is("cfg") {
        true => words.iter().enumerate().any(|(at, word)| word.is("test") && !not(at)),
        false => words.last().is_some_and(|last| last.is("test")) && !first.is("cfg_attr"),
    }
}

/// First and last line of an item behind a test attribute; of `#![cfg(test)]` the whole file.
fn test_lines(rest: &[Token<'_>]) -> (usize, usize) {
    if rest.get(1).is_some_and(|token| token.is("!")) {
        return (0, usize::MAX);
    }
    let (End::Body(last) | End::Bare(last)) = end(rest);
    (rest[0].line, last)
}

/// Returns true if a path begins here: `crate::a`, and neither `self.a` nor `pub(crate)`.
fn begins_path(code: &[Token<'_>], at: usize) -> bool {
    let colon = |at: usize| code.get(at).is_some_and(|token| token.is(":"));
    let behind = at >= 2 && colon(at - 1) && colon(at - 2);
    code[at].kind == Kind::Word && !behind && colon(at + 1) && colon(at + 2)
}

/// Segments of the path that begins here.
fn path_segments<'a>(rest: &[Token<'a>]) -> Vec<&'a str> {
    let mut segments = vec![rest[0].text];
    let mut at = 1;
    while let [first, second, word, ..] = &rest[at..] {
        if !first.is(":") || !second.is(":") || word.kind != Kind::Word {
            break;
        }
        segments.push(word.text);
        at += 3;
    }
    segments
}

/// Reads one tree of a `use` behind `before`; gives each path with its name, and the tokens taken.
fn use_tree<'a>(
    rest: &[Token<'a>],
    before: &[&'a str],
    found: &mut impl FnMut(Vec<&'a str>, &'a str),
) -> usize {
    let mut segments = before.to_vec();
    let mut at = 0;
    while let Some(token) = rest.get(at) {
        match token.text {
            ":" => {}
            "*" => {
                found(segments, "*");
                return at + 1;
            }
            "{" => {
                at += 1;
                while rest.get(at).is_some_and(|token| !token.is("}")) {
                    at += use_tree(&rest[at..], &segments, found).max(1);
                    at += usize::from(rest.get(at).is_some_and(|token| token.is(",")));
                }
                return at + 1;
            }
            "as" => {
                let name = rest.get(at + 1).map_or("_", |token| token.text);
                found(segments, name);
                return at + 2;
            }
            _ if token.kind == Kind::Word => segments.push(token.text),
            _ => break,
        }
        at += 1;
    }
    // `use a::{self}` names the module.
    if segments.len() > 1 {
        segments.pop_if(|last| *last == "self");
    }
    if let Some(&name) = segments.last() {
        found(segments, name);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::lexer::{code, tokens};
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let found = items(&code(&tokens(text))).uses.into_iter();
        found
            .map(|one| {
                let inside = one.inside.iter().map(|name| format!("{name}: "));
                let name = one.name.map_or_else(String::new, |name| format!(" as {name}"));
                format!("{}{}{name}", inside.collect::<String>(), one.segments.join("::"))
            })
            .collect()
    }

    #[test]
    fn use_trees_are_spread() {
        let text = "use crate::{a::{self, B as C}, d::*, e}; mod f { pub use super::g::H; } use i;";
        let wanted = [
            "crate::a as a",
            "crate::a::B as C",
            "crate::d as *",
            "crate::e as e",
            "f: super::g::H as H",
            "i as i",
        ];
        assert_eq!(paths(text), wanted);
    }

    #[test]
    fn paths_in_code_count_and_self_alone_does_not() {
        let text = "pub(crate) fn a(&self) { crate::b::c(self.d); super::super::e::F::<G>::h() }";
        assert_eq!(paths(text), ["crate::b::c", "super::super::e::F"]);
    }

    #[test]
    fn modules_have_their_attribute() {
        let text = "mod a; #[path = \"../b.rs\"] pub mod b; mod c { #[cfg(x)] mod d; } mod e;";
        let found = items(&code(&tokens(text))).modules;
        let shown: Vec<_> =
            found.iter().map(|one| (one.inside.join("::"), one.name, one.path)).collect();
        let none = String::new();
        let wanted = [
            (none.clone(), "a", None),
            (none.clone(), "b", Some("../b.rs")),
            ("c".to_owned(), "d", None),
            (none, "e", None),
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn test_code_is_known_by_its_attributes() {
        let text = "fn a() {}\n#[test]\nfn b() {\n}\n#[cfg(not(test))]\nfn c() {}\n\
                    #[cfg(all(test, x))]\nmod d;\n#[cfg_attr(test, allow(e))]\nfn f() {}\n";
        let tests = items(&code(&tokens(text))).tests;
        let lines: Vec<_> = (1..=10).filter(|&line| tests.contain(line)).collect();
        assert_eq!(lines, [2, 3, 4, 7, 8]);
    }
}
