//! `#[path]` attributes that lead to another folder.

use super::finding::{Finding, Rule};
use super::modules::Source;

/// Attributes of a file that name a folder.
pub(crate) fn attributes(source: &Source<'_>) -> Vec<Finding> {
    let others = source.items.paths.iter().filter(|(to, _)| to.contains('/'));
    others.map(|(to, line)| Finding::new(Rule::PathAttribute, source.path, *line, *to)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::shown;
    use super::super::items::items;
    use super::super::lexer::{code, tokens};
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let code = code(&tokens(text));
        shown(&attributes(&Source { path: "a/b.rs", items: items(&code) }))
    }

    #[test]
    fn attributes_stay_in_their_folder() {
        let broken = "mod c;\n#[path = \"../d/e.rs\"]\nmod e;\n";
        assert_eq!(found(broken), ["a/b.rs:2: ../d/e.rs"]);
        assert_eq!(
            found("#[path = \"e_tests.rs\"]\nmod tests;\n// #[path = \"../f.rs\"]"),
            [""; 0]
        );
    }
}
