//! Lexer of Rust: tokens and comments with their lines, exact enough to tell code from text.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identifier or keyword.
    Word,
    /// Lifetime or label.
    Lifetime,
    /// String, character or number.
    Literal,
    /// One character of punctuation.
    Mark,
    /// Line or block comment, documentation included.
    Comment,
}

/// Token of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// Line of the first character, from 1.
    pub(crate) line: usize,
    /// Bytes before it on its line.
    pub(crate) column: usize,
}

impl Token<'_> {
    /// Returns true for the given word or mark, outside of comments and literals.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// Tokens of a file, comments included. Text that is not Rust gives tokens, too, never a panic.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, line: 1, line_start: 0, tokens: Vec::new() };
    while lexer.step() {}
    lexer.tokens
}

/// Tokens without comments.
pub(crate) fn code<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    tokens.iter().filter(|token| token.kind != Kind::Comment).copied().collect()
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    /// Takes one token or one stretch of white space. `false`: end of the text.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return false };
        if first.is_whitespace() {
            let length = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
            self.advance(length);
            return true;
        }
        let (kind, length) = match first {
            '/' if rest.starts_with("//") => (Kind::Comment, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (Kind::Comment, block_comment(rest)),
            '"' => (Kind::Literal, quoted(rest, 0)),
            '\'' => quote(rest),
            '0'..='9' => (Kind::Literal, number(rest)),
            _ if is_word(first) => prefixed(rest).unwrap_or_else(|| (Kind::Word, word(rest))),
            _ => (Kind::Mark, first.len_utf8()),
        };
        self.tokens.push(Token {
            kind,
            text: &rest[..length],
            line: self.line,
            column: self.at - self.line_start,
        });
        self.advance(length);
        true
    }

    fn advance(&mut self, length: usize) {
        let passed = &self.text[self.at..self.at + length];
        if let Some(last) = passed.rfind('\n') {
            self.line += passed.bytes().filter(|&byte| byte == b'\n').count();
            self.line_start = self.at + last + 1;
        }
        self.at += length;
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
}

/// Length of a number. A range's dots, `0..3`, end it.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    match rest[whole..].strip_prefix('.') {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => {
            whole + 1 + word(fraction)
        }
        _ => whole,
    }
}

/// Literal or raw identifier that begins with letters: `b"x"`, `r#"x"#`, `c"x"`, `b'x'`, `r#type`.
fn prefixed(rest: &str) -> Option<(Kind, usize)> {
    let prefix = word(rest);
    let (letters, behind) = rest.split_at(prefix);
    if !matches!(letters, "b" | "r" | "br" | "c" | "cr") {
        return None;
    }
    if letters == "b" && behind.starts_with('\'') {
        return Some((Kind::Literal, prefix + quote(behind).1));
    }
    if !letters.ends_with('r') {
        return behind.starts_with('"').then(|| (Kind::Literal, prefix + quoted(behind, 0)));
    }
    let hashes = behind.bytes().take_while(|&byte| byte == b'#').count();
    if behind[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let inside = &behind[hashes + 1..];
        let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
        return Some((Kind::Literal, prefix + hashes + 1 + length));
    }
    let name = word(&behind[hashes..]);
    (letters == "r" && hashes == 1 && name > 0).then_some((Kind::Word, prefix + hashes + name))
}

/// Length of what stands between two of the first character, backslashes obeyed.
fn quoted(rest: &str, from: usize) -> usize {
    let end = rest.as_bytes()[0];
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(from + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == end => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Character or lifetime, told apart as rustc does: a quote closes the character.
fn quote(rest: &str) -> (Kind, usize) {
    let mut behind = rest[1..].chars();
    match (behind.next(), behind.next()) {
        (Some('\\'), _) => (Kind::Literal, quoted(rest, 0)),
        (Some(c), Some('\'')) => (Kind::Literal, 2 + c.len_utf8()),
        _ => (Kind::Lifetime, 1 + word(&rest[1..])),
    }
}

/// Length of a block comment, which may contain others.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, kind: Kind) -> Vec<&str> {
        let all = tokens(text).into_iter();
        all.filter(|token| token.kind == kind).map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_told_from_strings() {
        let text = r####"let a = "// no \" comment"; // one
let b = r#"/* "no" */"#; /* two /* nested */ */ let c = b"//"; let d = '"'; // three
let e = br##"// "# "##; let f = c"//"; let g = b'\''; let h = '\''; /// four"####;
        let comments = ["// one", "/* two /* nested */ */", "// three", "/// four"];
        assert_eq!(texts(text, Kind::Comment), comments);
        let literals = texts(text, Kind::Literal);
        assert_eq!(literals.len(), 8, "{literals:?}");
    }

    #[test]
    fn lifetimes_and_characters_differ() {
        let text = "fn a<'a>(b: &'a str) { 'out: loop { 'x' 'é' '_' '\\u{1f}' break 'out } }";
        assert_eq!(texts(text, Kind::Lifetime), ["'a", "'a", "'out", "'out"]);
        assert_eq!(texts(text, Kind::Literal), ["'x'", "'é'", "'_'", "'\\u{1f}'"]);
    }

    #[test]
    fn lines_and_columns_count_through_literals() {
        let text = "a\n  \"1\n2\" b\n/* c\n */ d";
        let places: Vec<_> = tokens(text).iter().map(|token| (token.line, token.column)).collect();
        assert_eq!(places, [(1, 0), (2, 2), (3, 3), (4, 0), (5, 4)]);
    }

    #[test]
    fn numbers_leave_ranges_and_methods_alone() {
        assert_eq!(texts("0..3 1.5e3 1.max(2) 0xff_u8", Kind::Literal).len(), 6);
        assert_eq!(texts("r#type break", Kind::Word), ["r#type", "break"]);
    }

    #[test]
    fn unfinished_text_ends() {
        for text in ["\"abc", "'", "/* a", "r##\"a\"#", "b'", "'\\", "é'"] {
            let _ = tokens(text);
        }
    }
}
