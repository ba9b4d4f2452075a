//! Circles: files of one crate that import each other.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Rule};
use super::modules::{Crate, Source};

/// Files of one circle.
const FILES: usize = 3;
/// Files in circles that are too large: one finding a file, with what it imports of the circle.
pub(crate) fn circles(sources: &[Source<'_>], crates: &[Crate<'_>]) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    for imports in crates.iter().map(Crate::imports) {
        for circle in components(&imports).into_iter().filter(|circle| circle.len() > FILES) {
            for &file in &circle {
                let of_circle = imports[&file].iter().filter(|to| circle.contains(to));
                let names: Vec<&str> = of_circle.map(|&to| sources[to].path).collect();
                let text = format!("a circle of {} files: {}", circle.len(), names.join(", "));
                found.insert(Finding::new(Rule::Circle, sources[file].path, 1, text));
            }
        }
    }
    found.into_iter().collect()
}

/// Strongly connected components of a graph (Tarjan 1972).
fn components(graph: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<Vec<usize>> {
    let mut search =
        Search { graph, orders: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for &node in graph.keys() {
        if !search.orders.contains_key(&node) {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'a> {
    graph: &'a BTreeMap<usize, BTreeSet<usize>>,
    /// Order of the first visit; `usize::MAX` once the node's component is found.
    orders: BTreeMap<usize, usize>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits a node and its successors; returns the earliest open node that they reach.
    fn visit(&mut self, node: usize) -> usize {
        let order = self.orders.len();
        self.orders.insert(node, order);
        let depth = self.stack.len();
        self.stack.push(node);
        let mut lowest = order;
        for &next in self.graph.get(&node).into_iter().flatten() {
            let reached = match self.orders.get(&next) {
                None => self.visit(next),
                Some(&order) => order,
            };
            lowest = lowest.min(reached);
        }
        if lowest == order {
            let mut component = self.stack.split_off(depth);
            component.sort_unstable();
            for member in &component {
                self.orders.insert(*member, usize::MAX);
            }
            self.found.push(component);
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::shown;
    use super::super::items::items;
    use super::super::lexer::{code, tokens};
    use super::super::modules::crates;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let codes: Vec<_> = files.iter().map(|(_, text)| code(&tokens(text))).collect();
        let sources: Vec<_> = files
            .iter()
            .zip(&codes)
            .map(|((path, _), code)| Source { path, items: items(code) })
            .collect();
        shown(&circles(&sources, &crates(&sources).0))
    }

    const ROOT: (&str, &str) = ("x/src/lib.rs", "mod a; mod b; mod c; mod d; pub use d::D;");

    #[test]
    fn circles_of_four_files_are_found() {
        let broken = [
            ROOT,
            ("x/src/a.rs", "use crate::b::B; use other::c;"),
            ("x/src/b.rs", "use super::c::C;"),
            // Through the root's re-export, and in code.
            ("x/src/c/mod.rs", "mod e; fn f() { crate::D::new() }"),
            ("x/src/c/e.rs", "use super::C;"),
            ("x/src/d.rs", "mod inner { use super::super::a; }"),
        ];
        let wanted = [
            "x/src/a.rs:1: a circle of 4 files: x/src/b.rs",
            "x/src/b.rs:1: a circle of 4 files: x/src/c/mod.rs",
            "x/src/c/mod.rs:1: a circle of 4 files: x/src/d.rs",
            "x/src/d.rs:1: a circle of 4 files: x/src/a.rs",
        ];
        assert_eq!(found(&broken), wanted);
    }

    #[test]
    fn three_files_families_and_tests_are_no_circle() {
        let mended = [
            ROOT,
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "use super::c::C;"),
            ("x/src/c/mod.rs", "mod e; pub use e::E; use crate::d; fn f() { crate::a::new() }"),
            ("x/src/c/e.rs", "use super::C;"),
            ("x/src/d.rs", "#[cfg(test)] mod tests { use crate::a; } // use crate::a;"),
        ];
        assert_eq!(found(&mended), [""; 0]);
    }

    #[test]
    fn components_are_told_apart() {
        let edges = [(1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (5, 4), (6, 6), (7, 1)];
        let mut graph = BTreeMap::<usize, BTreeSet<usize>>::new();
        for (from, to) in edges {
            graph.entry(from).or_default().insert(to);
        }
        let mut found = components(&graph);
        found.sort();
        assert_eq!(found, [vec![1, 2, 3], vec![4, 5], vec![6], vec![7]]);
    }
}
