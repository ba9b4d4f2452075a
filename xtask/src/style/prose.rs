//! Prose: comments of Rust and paragraphs of Markdown, without the code in them.

use super::lexer::{Kind, Token};

/// Comment, or the whole text of a Markdown file.
#[derive(Clone, Debug)]
pub(crate) struct Prose {
    /// Line of the first character, from 1.
    pub(crate) line: usize,
    /// Text with its line breaks. Code blocks are blank, inline code is a pair of backquotes.
    pub(crate) text: String,
}

impl Prose {
    /// Line of a byte of the text.
    pub(crate) fn line_at(&self, at: usize) -> usize {
        self.line + self.text[..at].bytes().filter(|&byte| byte == b'\n').count()
    }
}

/// Comments of a file. Comments of one kind in one column on successive lines are one comment.
pub(crate) fn comments(tokens: &[Token<'_>]) -> Vec<Prose> {
    let mut all: Vec<(Prose, &str, usize)> = Vec::new();
    for token in tokens.iter().filter(|token| token.kind == Kind::Comment) {
        let (marker, text) = stripped(token.text);
        match all.last_mut() {
            Some((prose, of, column))
                if *of == marker
                    && marker != "/*"
                    && *column == token.column
                    && prose.line_at(prose.text.len()) + 1 == token.line =>
            {
                prose.text.push('\n');
                prose.text.push_str(&text);
            }
            _ => all.push((Prose { line: token.line, text }, marker, token.column)),
        }
    }
    all.into_iter().map(|(prose, ..)| without_code(prose)).collect()
}

/// Whole text of a Markdown file.
pub(crate) fn markdown(text: &str) -> Prose {
    without_code(Prose { line: 1, text: text.to_owned() })
}

/// Marker of a comment, and its text.
fn stripped(comment: &str) -> (&'static str, String) {
    for marker in ["///", "//!", "//"] {
        let Some(text) = comment.strip_prefix(marker) else { continue };
        return match marker {
            // Four slashes are a plain comment, and often a line.
            "///" if text.starts_with('/') => ("//", text.trim_start_matches('/').to_owned()),
            _ => (marker, text.trim_start().to_owned()),
        };
    }
    let text = comment.trim_start_matches(['/', '*', '!']).trim_end_matches(['/', '*']);
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("* "));
    ("/*", lines.collect::<Vec<_>>().join("\n"))
}

/// Blanks code blocks, and empties inline code.
fn without_code(prose: Prose) -> Prose {
    let mut text = String::with_capacity(prose.text.len());
    let mut fence = None;
    for (number, line) in prose.text.split('\n').enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let marker = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, marker) {
            (None, None) => text.push_str(line),
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
    }
    Prose { line: prose.line, text: without_inline_code(&text) }
}

fn without_inline_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let ticks = from.bytes().take_while(|&byte| byte == b'`').count();
        let (mark, behind) = from.split_at(ticks);
        // Code ends in its paragraph, or is no code.
        let paragraph = behind.find("\n\n").unwrap_or(behind.len());
        match behind[..paragraph].find(mark) {
            Some(end) => {
                out.push('`');
                out.extend(behind[..end].chars().filter(|&c| c == '\n'));
                out.push('`');
                rest = &behind[end + ticks..];
            }
            None => {
                out.push_str(mark);
                rest = behind;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn seen(text: &str) -> Vec<(usize, String)> {
        let prose = comments(&tokens(text)).into_iter();
        prose.map(|prose| (prose.line, prose.text)).collect()
    }

    #[test]
    fn comments_are_joined_by_kind_and_column() {
        let text = "//! A\n//! b\n\n/// C\n// D\nx; // E\n   // f\n// G\n/* H\n * i */\n";
        let found = seen(text);
        let wanted = ["A\nb", "C", "D", "E\nf", "G", "H\ni "];
        let lines = [1, 4, 5, 6, 8, 9];
        assert_eq!(found.len(), 6, "{found:?}");
        for ((line, text), wanted) in found.iter().zip(lines.iter().zip(wanted)) {
            assert_eq!((line, text.as_str()), wanted);
        }
    }

    #[test]
    fn code_is_left_out_and_lines_stay() {
        let prose = markdown("a `b\nc` d\n```\ne\n```\nf ` g\n\nh ``i ` j``");
        assert_eq!(prose.text, "a `\n` d\n\n\n\nf ` g\n\nh ``");
        assert_eq!(prose.line_at(prose.text.find('h').unwrap()), 8);
    }
}
