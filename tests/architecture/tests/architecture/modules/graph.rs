//! Which file takes names from which.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use super::source::{Crate, Id, Module};

/// Most steps in following a name from import to import: no two modules may import a name from each other.
const STEPS: usize = 32;

/// An arrow from a file to one from which it takes names.
pub(super) type Arrow = (PathBuf, PathBuf);

/// Every arrow within a crate. A module consists of those that it declares: what it takes from them is no arrow.
pub(super) fn arrows(all: &Crate) -> BTreeSet<Arrow> {
    let mut arrows = BTreeSet::new();
    for (id, module) in all.modules.iter().enumerate() {
        let taken = module
            .paths
            .iter()
            .filter_map(|path| all.module_of(id, path, STEPS));
        let taken = taken.filter(|from| !all.is_within(*from, id));
        let files = taken.map(|from| &all.modules[from].file);
        let others = files.filter(|file| **file != module.file);
        arrows.extend(others.map(|file| (module.file.clone(), file.clone())));
    }
    arrows
}

/// Sets of files each of which takes names, by way of others, from all.
pub(super) fn cycles(arrows: &BTreeSet<Arrow>) -> Vec<Vec<&Path>> {
    let graph: DiGraphMap<&Path, ()> = arrows
        .iter()
        .map(|(from, to)| (from.as_path(), to.as_path()))
        .collect();
    let mut cycles: Vec<Vec<&Path>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|files| files.len() > 1)
        .collect();
    for files in &mut cycles {
        files.sort_unstable();
    }
    cycles.sort();
    cycles
}

/// Arrows that lead from a lower layer to a higher one. `layer` is 0 for the lowest.
pub(super) fn against(arrows: &BTreeSet<Arrow>, layer: impl Fn(&Path) -> Option<usize>) -> Vec<&Arrow> {
    let is_against =
        |(from, to): &&Arrow| matches!((layer(from), layer(to)), (Some(from), Some(to)) if from < to);
    arrows.iter().filter(is_against).collect()
}

impl Crate {
    /// Whether a module is a part of another one.
    fn is_within(&self, part: Id, whole: Id) -> bool {
        std::iter::successors(Some(part), |id| self.modules[*id].parent).any(|id| id == whole)
    }

    /// The module that has what a path names, as it is seen in a module; `None` for another crate's.
    fn module_of(&self, at: Id, path: &[String], steps: usize) -> Option<Id> {
        let (first, rest) = path.split_first()?;
        let module = &self.modules[at];
        match first.as_str() {
            "crate" => self.follow(0, rest, steps),
            "self" => self.follow(at, rest, steps),
            "super" => self.follow_up(module.parent?, rest, steps),
            name if module.children.contains_key(name) || module.imports.contains_key(name) => {
                self.follow(at, path, steps)
            }
            _ => None,
        }
    }

    fn follow_up(&self, at: Id, path: &[String], steps: usize) -> Option<Id> {
        match path.split_first() {
            Some((first, rest)) if first == "super" => self.follow_up(self.modules[at].parent?, rest, steps),
            _ => self.follow(at, path, steps),
        }
    }

    /// Goes down a path that begins in a module.
    fn follow(&self, at: Id, path: &[String], steps: usize) -> Option<Id> {
        let Some((first, rest)) = path.split_first() else {
            return Some(at);
        };
        let Module {
            children,
            imports,
            globs,
            declared,
            ..
        } = &self.modules[at];
        if steps == 0 || declared.contains(first) {
            return Some(at);
        }
        if let Some(child) = children.get(first) {
            return self.follow(*child, rest, steps - 1);
        }
        if let Some(import) = imports.get(first) {
            let whole: Vec<String> = import.iter().chain(rest).cloned().collect();
            return self.module_of(at, &whole, steps - 1);
        }
        let found = globs.iter().find_map(|glob| {
            let from = self.module_of(at, glob, steps - 1)?;
            self.has(from, first).then(|| self.follow(from, path, steps - 1))
        });
        found.unwrap_or(Some(at))
    }

    fn has(&self, at: Id, name: &str) -> bool {
        let module = &self.modules[at];
        module.declared.contains(name)
            || module.children.contains_key(name)
            || module.imports.contains_key(name)
    }
}
