//! Links and paths in documents lead somewhere.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use crate::{
    markdown::{self, Document},
    repository::{assert_none, files_ending, root},
};

/// Ends of inline code that is a path of the project rather than a word of a language.
const ENDS: [&str; 8] = [".rs", ".md", ".proto", ".yaml", ".toml", ".cfg", ".snap", "/"];

#[test]
fn every_relative_link_leads_to_a_file_and_its_heading() {
    let documents = markdown::documents();

    assert_none(&broken_links(&documents, |path| root().join(path).exists()));
}

#[test]
fn every_path_that_a_document_names_exists() {
    let documents = markdown::documents();

    let sources = files_ending(".rs");
    let names: BTreeSet<&str> = sources
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .collect();

    assert_none(&missing_paths(&documents, &names, |path| {
        root().join(path).exists()
    }));
}

/// Records of decisions have an index of their own.
#[test]
fn the_readme_links_to_every_page() {
    const README: &str = "README.md";
    let documents = markdown::documents();
    let readme = documents.iter().find(|document| document.path == README).unwrap();
    let linked: BTreeSet<&str> = readme
        .links
        .iter()
        .map(|link| link.text.split('#').next().unwrap_or_default())
        .collect();
    let is_page = |path: &str| match path.split_once('/') {
        None => path != README,
        Some(("docs", rest)) => !rest.contains('/'),
        Some((folder, _)) => folder == "deploy",
    };
    let missing: Vec<String> = documents
        .iter()
        .map(|document| document.path.as_str())
        .filter(|path| is_page(path) && !linked.contains(path))
        .map(|path| format!("README.md has no link to {path}"))
        .collect();

    assert_none(&missing);
}

fn broken_links(documents: &[Document], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for document in documents {
        for link in &document.links {
            let fault = fault(document, &link.text, documents, &exists);
            findings.extend(
                fault.map(|fault| format!("{}:{}: {}: {fault}", document.path, link.line, link.text)),
            );
        }
    }
    findings
}

fn fault(
    document: &Document,
    link: &str,
    documents: &[Document],
    exists: impl Fn(&Path) -> bool,
) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    let target = if path.is_empty() {
        PathBuf::from(&document.path)
    } else {
        normal(&folder.join(path))
    };
    if !exists(&target) {
        return Some("there is no such file");
    }
    let titled = documents
        .iter()
        .find(|other| Path::new(&other.path) == target)
        .is_none_or(|other| other.headings.iter().any(|(_, title)| slug(title) == anchor));
    (!anchor.is_empty() && !titled).then_some("there is no such heading")
}

/// Without `.` and `..`, as a browser sees it.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => normal.push(part),
        }
    }
    normal
}

/// The anchor that GitHub gives a heading.
fn slug(title: &str) -> String {
    let kept = title
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

/// Paths that do not exist, and sources named without their folder (`region.rs`) that no folder has.
fn missing_paths(
    documents: &[Document],
    names: &BTreeSet<&str>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let missing = |code: &str| {
        if is_path(code) {
            !exists(Path::new(code))
        } else {
            is_source(code) && !names.contains(code)
        }
    };
    let mut findings = Vec::new();
    for document in documents {
        findings.extend(
            document
                .code
                .iter()
                .filter(|code| missing(&code.text))
                .map(|code| format!("{}:{}: there is no {}", document.path, code.line, code.text)),
        );
    }
    findings
}

/// A relative path, and not a URL, a pattern, a place in a home directory or a group of an API.
fn is_path(code: &str) -> bool {
    code.contains('/')
        && ENDS.iter().any(|end| code.ends_with(end))
        && !code.starts_with(['/', '~', '$'])
        && !code.contains([' ', '*', '{', '<', '$', ':'])
}

fn is_source(code: &str) -> bool {
    let name = code.strip_suffix(".rs").unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[test]
fn broken_links_and_missing_paths_are_found() {
    let good = "# One Title\n[a](b.md) [c](https://x.example/y) [d](#one-title) [e](../docs/b.md#two) `docs/b.md` `b.rs`\n";
    let bad =
        "[a](c.md) [d](#three) [e](b.md#three)\n`docs/c.rs` `c.rs` `sip.airshipit.org/rack` `src/*.rs`\n";
    let other = markdown::parse("docs/b.md", "# Two\n");
    let exists = |path: &Path| {
        ["docs/a.md", "docs/b.md"]
            .iter()
            .any(|known| Path::new(known) == path)
    };

    let names = BTreeSet::from(["b.rs"]);

    let good = [markdown::parse("docs/a.md", good), other];
    assert_eq!(broken_links(&good, exists), [""; 0]);
    assert_eq!(missing_paths(&good, &names, exists), [""; 0]);
    let [_, other] = good;
    let bad = [markdown::parse("docs/a.md", bad), other];
    assert_eq!(
        broken_links(&bad, exists),
        [
            "docs/a.md:1: c.md: there is no such file",
            "docs/a.md:1: #three: there is no such heading",
            "docs/a.md:1: b.md#three: there is no such heading",
        ]
    );
    assert_eq!(
        missing_paths(&bad, &names, exists),
        [
            "docs/a.md:2: there is no docs/c.rs",
            "docs/a.md:2: there is no c.rs"
        ]
    );
}
