//! Rules that every file keeps.

use regex::Regex;

use crate::repository::{assert_none, files, files_ending, root, text};

/// A file of more lines has more than one title.
const LINES: usize = 450;

/// Names that say nothing of what is inside.
const NAMELESS: [&str; 8] = [
    "util", "utils", "common", "helper", "helpers", "misc", "manager", "managers",
];

/// Pinned modules of other people; what is in their checksums is not ours to word.
const FOREIGN: &str = "tests/sandbox/tools/";

#[test]
fn no_source_file_is_too_long_to_have_one_title() {
    let lengths = files_ending(".rs").into_iter().map(|path| {
        let lines = text(&path).unwrap_or_default().lines().count();
        (path, lines)
    });

    assert_none(&too_long(lengths));
}

fn too_long(lengths: impl IntoIterator<Item = (String, usize)>) -> Vec<String> {
    lengths
        .into_iter()
        .filter_map(|(path, lines)| {
            (lines > LINES)
                .then(|| format!("{path} has {lines} lines, at most {LINES}: split it by what its parts do"))
        })
        .collect()
}

#[test]
fn no_file_has_marks_of_a_merge() {
    let contents = files().into_iter().filter_map(|path| Some((text(&path)?, path)));

    assert_none(&merge_marks(contents.map(|(content, path)| (path, content))));
}

fn merge_marks(files: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let begins = Regex::new(r"^(?:<{7}|>{7}|\|{7})(?: |$)").unwrap();
    let mut findings = Vec::new();
    for (path, content) in files {
        let lines = content.lines().enumerate();
        let marks = lines.filter(|(_, line)| begins.is_match(line));
        findings.extend(marks.map(|(number, line)| format!("{path}:{}: {line}", number + 1)));
    }
    findings
}

#[test]
fn marks_of_a_merge_are_found() {
    let conflict = ["<", ">"]
        .map(|mark| format!("{} mine\n", mark.repeat(7)))
        .concat();
    let found = merge_marks([
        ("a.md".to_owned(), format!("text\n{conflict}")),
        ("b.md".to_owned(), "=======\n<<<\n".to_owned()),
    ]);
    assert_eq!(found, ["a.md:2: <<<<<<< mine", "a.md:3: >>>>>>> mine"]);
}

#[test]
fn no_module_has_a_name_that_fits_everything() {
    let sources = files_ending(".rs").into_iter().map(|path| {
        let content = text(&path).unwrap_or_default();
        (path, content)
    });

    assert_none(&nameless(sources));
}

fn nameless(sources: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let declared = Regex::new(&format!(
        r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+({})\b",
        NAMELESS.join("|")
    ))
    .unwrap();
    let mut findings = Vec::new();
    for (path, content) in sources {
        let parts = path.trim_end_matches(".rs").split('/');
        findings.extend(
            parts
                .filter(|part| NAMELESS.contains(part))
                .map(|part| format!("{path}: {part:?} says nothing: name it by what it does")),
        );
        findings.extend(declared.captures_iter(&content).map(|found| {
            format!(
                "{path}: mod {:?} says nothing: name it by what it does",
                &found[1]
            )
        }));
    }
    findings
}

#[test]
fn no_file_names_a_machine_path() {
    let contents = files()
        .into_iter()
        .filter(|path| !path.starts_with(FOREIGN))
        .filter_map(|path| text(&path).map(|content| (path, content)));

    assert_none(&machine_paths(contents, &root().display().to_string()));
}

/// Lines that name the checkout at `here`, or a folder that exists on one machine only.
fn machine_paths(contents: impl IntoIterator<Item = (String, String)>, here: &str) -> Vec<String> {
    // Put together here, so that this file does not name them itself.
    let folders = ["work", "Users", "home/[a-z]+/src", "tmp/target"];
    let pattern = format!(
        r"(?:^|[^\w.$}}-])(?:/(?:{})|{})(?:/|\b)",
        folders.join("|"),
        regex::escape(here)
    );
    let path = Regex::new(&pattern).unwrap();
    let mut findings = Vec::new();
    for (file, content) in contents {
        findings.extend(
            content
                .lines()
                .enumerate()
                .filter(|(_, line)| path.is_match(line))
                .map(|(index, line)| format!("{file}:{}: a path of one machine: {}", index + 1, line.trim())),
        );
    }
    findings
}

#[test]
fn each_rule_finds_what_breaks_it_and_nothing_else() {
    let file = |path: &str, content: &str| [(path.to_owned(), content.to_owned())];
    let (work, users) = (concat!("/", "work/x"), concat!("/", "Users/ana/x"));

    assert!(too_long([("a.rs".to_owned(), LINES)]).is_empty());
    assert_eq!(too_long([("a.rs".to_owned(), LINES + 1)]).len(), 1);
    assert!(nameless(file("a/src/retries.rs", "mod utility;\n// mod util\n")).is_empty());
    assert_eq!(nameless(file("a/src/util.rs", "")).len(), 1);
    assert_eq!(nameless(file("a/src/helpers/mod.rs", "")).len(), 1);
    assert_eq!(
        nameless(file("a/src/lib.rs", "pub(crate) mod misc {}\n")).len(),
        1
    );
    assert!(figurative(file("a.rs", "fn observe() {}\nstruct Lookup;\nfn offset() {}")).is_empty());
    assert_eq!(
        figurative(file("a.rs", concat!("    fn lo", "ok(&self)\nstruct To", "ld {"))).len(),
        2
    );
    assert_eq!(
        figurative(file("a.rs", &format!("fn {}()", "a".repeat(NAME + 1)))).len(),
        1
    );
    assert!(machine_paths(file("a.md", "docs/work/x and /workspace"), "/c/d").is_empty());
    for path in [work, users, "/c/d/e"] {
        let found = machine_paths(file("a.md", &format!("fine\nsee `{path}`")), "/c/d");
        assert_eq!(found.len(), 1, "{path}");
        assert!(found[0].starts_with("a.md:2: "), "{found:?}");
    }
}

#[test]
fn every_source_file_is_compiled() {
    let files = files_ending(".rs");
    // A file may also be declared elsewhere, by its path.
    let by_path = Regex::new(r#"#\[path = "[^"]*?([^/"]+\.rs)"\]"#).unwrap();
    let by_path: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let source = text(file).unwrap_or_default();
            let paths = by_path.captures_iter(&source).map(|found| found[1].to_owned());
            paths.collect::<Vec<_>>()
        })
        .collect();
    let declared = |directory: &str, name: &str| {
        let declaration = format!("mod {name};");
        let mut parents = files.iter().filter(|file| {
            let parent = file.rsplit_once('/').map_or("", |(parent, _)| parent);
            parent == directory || **file == format!("{directory}.rs")
        });
        parents.any(|parent| text(parent).is_some_and(|source| source.contains(&declaration)))
    };
    let is_target = |file: &str| {
        let mut parts = file.rsplit('/');
        let name = parts.next().unwrap_or_default();
        let directory = parts.next().unwrap_or_default();
        matches!(name, "lib.rs" | "main.rs" | "build.rs")
            || matches!(directory, "bin" | "tests" | "benches" | "fuzz_targets")
    };
    let forgotten = files.iter().filter(|file| !is_target(file)).filter(|file| {
        let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
        path.rsplit_once('/').is_none_or(|(directory, name)| {
            !declared(directory, name) && !by_path.contains(&format!("{name}.rs"))
        })
    });

    assert_none(
        &forgotten
            .map(|file| format!("{file} is declared by no module"))
            .collect::<Vec<_>>(),
    );
}

/// Words that name nothing in this field, as `STYLE.md` has them.
const FIGURES: &str = r"\b(?:fn (?:ask|asked|kept|look|of|said|says|shown|tell|told|turn)|(?:struct|enum|trait) (?:Asked|Kept|Look|Of|Said|Shown|Told|Turn))\b";

/// Most characters of a function's name.
const NAME: usize = 60;

#[test]
fn names_are_short_and_in_the_words_of_the_field() {
    let sources = files_ending(".rs").into_iter().map(|path| {
        let source = text(&path).unwrap_or_default();
        (path, source)
    });
    assert_none(&figurative(sources));
}

fn figurative(sources: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let figures = Regex::new(FIGURES).unwrap();
    let functions = Regex::new(r"\bfn ([a-z0-9_]+)").unwrap();
    let mut findings = Vec::new();
    for (path, source) in sources {
        let named = figures.find_iter(&source);
        findings.extend(named.map(|name| format!("{path}: {}: see the words of STYLE.md", name.as_str())));
        let names = functions.captures_iter(&source).map(|found| found[1].to_owned());
        let long = names.filter(|name| name.len() > NAME);
        findings.extend(long.map(|name| format!("{path}: {name} has more than {NAME} characters")));
    }
    findings
}
