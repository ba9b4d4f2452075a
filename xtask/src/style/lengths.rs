//! Lengths: columns of lines, lines of files and functions, Rust files of folders.

use std::collections::BTreeMap;

use super::files::File;
use super::finding::{Finding, Rule};
use super::items::{End, TestLines, end};
use super::lexer::{Kind, Token};

/// Columns of a line.
const COLUMNS: usize = 100;
/// Lines of a file.
const FILE: usize = 600;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION: usize = 80;
/// Rust files of a folder. Files of its folders do not count.
const FOLDER: usize = 25;

/// Lines of Rust or Markdown with too many columns. Tables, links and printed output stay whole.
pub(crate) fn columns(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in file.text.lines().enumerate() {
        let head = line.trim_start();
        fenced ^= file.is_markdown() && head.starts_with("```");
        let columns = line.chars().count();
        let whole = file.is_markdown() && (fenced || head.starts_with('|') || line.contains("]("));
        if columns > COLUMNS && !whole && !line.contains("://") {
            let text = format!("{columns} columns, limit {COLUMNS}");
            found.push(Finding::new(Rule::Columns, &file.path, number + 1, text));
        }
    }
    found
}

/// File with too many lines.
pub(crate) fn file(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    let text = format!("{lines} lines, limit {FILE}");
    (lines > FILE).then(|| Finding {
        weight: lines - FILE,
        ..Finding::new(Rule::FileLines, &file.path, 1, text)
    })
}

/// Functions with too many lines, tests aside.
pub(crate) fn functions(path: &str, code: &[Token<'_>], tests: &TestLines) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, pair) in code.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if !keyword.is("fn") || name.kind != Kind::Word || tests.contain(keyword.line) {
            continue;
        }
        let End::Body(last) = end(&code[at..]) else { continue };
        let lines = last - keyword.line + 1;
        if lines > FUNCTION {
            let text = format!("fn {}: {lines} lines, limit {FUNCTION}", name.text);
            found.push(Finding {
                weight: lines - FUNCTION,
                item: Some(name.text.to_owned()),
                ..Finding::new(Rule::FunctionLines, path, keyword.line, text)
            });
        }
    }
    found
}

/// Folders with too many Rust files in a row.
pub(crate) fn folders(files: &[File]) -> Vec<Finding> {
    let mut rows = BTreeMap::<&str, usize>::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        *rows.entry(file.folder()).or_default() += 1;
    }
    let long = rows.into_iter().filter(|&(_, count)| count > FOLDER);
    long.map(|(folder, count)| Finding {
        weight: count - FOLDER,
        ..Finding::new(Rule::FolderFiles, folder, 1, format!("{count} files, limit {FOLDER}"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::files::file as text_file;
    use super::super::finding::shown;
    use super::super::items::items;
    use super::super::lexer::{code, tokens};
    use super::*;

    fn long_functions(text: &str) -> Vec<String> {
        let code = code(&tokens(text));
        shown(&functions("a.rs", &code, &items(&code).tests))
    }

    #[test]
    fn columns_have_a_limit() {
        let (wide, fits) = ("é".repeat(101), "é".repeat(100));
        let broken = columns(&text_file("a.rs", &format!("{fits}\n{wide}\n")));
        assert_eq!(shown(&broken), ["a.rs:2: 101 columns, limit 100"]);
        assert_eq!(columns(&text_file("a.md", &format!("{wide}\n"))).len(), 1);
        let link = format!("[{wide}](b.md) https://{wide}");
        let mended = format!("{fits}\n| {wide} |\n```\n{wide}\n```\n{link}\n");
        assert_eq!(columns(&text_file("a.md", &mended)), []);
    }

    #[test]
    fn files_have_a_limit() {
        let found = file(&text_file("a.rs", &"\n".repeat(602))).unwrap();
        assert_eq!((found.weight, found.text.as_str()), (2, "602 lines, limit 600"));
        assert_eq!(file(&text_file("a.rs", &"\n".repeat(600))), None);
    }

    #[test]
    fn functions_have_a_limit_and_tests_have_none() {
        let body = |lines: usize| format!("(a: [u8; 3]) {{{}}}\n", "\n".repeat(lines));
        let text = format!("trait A {{ fn b(); }}\nfn c{}fn d{}", body(80), body(79));
        assert_eq!(long_functions(&text), ["a.rs:2: fn c: 81 lines, limit 80"]);
        assert_eq!(long_functions(&format!("#[test]\nfn c{}", body(80))), [""; 0]);
        assert_eq!(long_functions(&format!("type A = fn() -> u8;\nfn c{}", body(79))), [""; 0]);
    }

    #[test]
    fn folders_have_a_limit() {
        let mut files: Vec<_> = (0..26).map(|n| text_file(&format!("a/{n}.rs"), "")).collect();
        files.push(text_file("a/b/c.rs", ""));
        let found = folders(&files);
        assert_eq!(shown(&found), ["a:1: 26 files, limit 25"]);
        assert_eq!((found[0].folder(), found[0].weight), ("a", 1));
        files[0].path = "a/b/0.rs".to_owned();
        assert_eq!(folders(&files), []);
    }
}
