//! Files of the repository, as texts.

use std::fs;
use std::io;
use std::path::Path;

/// Folders whose names begin with a dot, and are the project's all the same.
const DOTTED: [&str; 3] = [".cargo", ".ci", ".github"];
/// Longest file that is read. Longer ones are recordings.
const LONGEST: u64 = 4 << 20;

/// Text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path from the root, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Returns true for Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns true for Markdown.
    pub(crate) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Text of a line, from 1, without the white space around it.
    pub(crate) fn line(&self, line: usize) -> &str {
        self.text.lines().nth(line - 1).unwrap_or_default().trim()
    }

    /// Folder that it is in; `.` is the root.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or(".", |(folder, _)| folder)
    }
}

/// Text files below `root`, by path. Build outputs and other programs' folders are left out.
pub(crate) fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, folder: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && (!name.starts_with('.') || is_dotted(&name)) {
            walk(root, &path, files)?;
        } else if kind.is_file() && entry.metadata()?.len() <= LONGEST {
            // Binary files have no text to check.
            if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                files.push(File { path, text });
            }
        }
    }
    Ok(())
}

fn is_dotted(name: &str) -> bool {
    DOTTED.contains(&name)
}

/// File of this path and text, for unit tests.
#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}
