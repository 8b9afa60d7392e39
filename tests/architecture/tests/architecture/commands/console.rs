//! Reads `console` blocks.

use crate::markdown::{self, Document};

const PROMPT: &str = "$ ";

/// A command in a document, and what it prints there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transcript {
    /// File and line.
    pub(super) place: String,
    /// The command, as typed, without the prompt.
    pub(super) command: String,
    /// The lines after it.
    pub(super) output: Vec<String>,
}

/// How a command is held.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `make demo`.
    Demo,
    /// `make plan`.
    Plan,
    /// `make` with targets.
    Make(Vec<String>),
    /// `cargo` with arguments.
    Cargo(Vec<String>),
    /// It needs a site.
    Site,
    /// This program is not known here.
    Unknown(String),
}

/// The commands of a document, or the first line that is none.
pub(super) fn read(document: &Document) -> Result<Vec<Transcript>, String> {
    let mut all: Vec<Transcript> = Vec::new();
    for block in document.blocks.iter().filter(|block| block.language == "console") {
        let first = all.len();
        let mut lines = (block.line + 1..).zip(block.text.lines());
        while let Some((line, text)) = lines.next() {
            if let Some(command) = text.strip_prefix(PROMPT) {
                let mut command = command.to_owned();
                while command.ends_with('\\') {
                    let Some((_, more)) = lines.next() else { break };
                    command = format!("{command}\n{more}");
                }
                all.push(Transcript {
                    place: format!("{}:{line}", document.path),
                    command,
                    output: Vec::new(),
                });
            } else if let Some(shown) = all[first..].last_mut() {
                shown.output.push(text.to_owned());
            } else {
                return Err(format!(
                    "{}:{line}: a console block begins with a command, after {PROMPT:?}",
                    document.path
                ));
            }
        }
    }
    Ok(all)
}

/// How a command is held; `None` for nothing but a comment.
pub(super) fn kind(command: &str) -> Option<Kind> {
    // shlex does not join continued lines, as a shell does.
    let words = shlex::split(&command.replace("\\\n", " ")).unwrap_or_default();
    // `NAME=value program`: what is set for one command only.
    let mut words = words
        .into_iter()
        .skip_while(|word| word.contains('=') && !word.starts_with('-'));
    let program = words.next()?;
    let arguments: Vec<String> = words.collect();
    Some(match &*program {
        "make" if arguments == ["demo"] => Kind::Demo,
        "make" if arguments == ["plan"] => Kind::Plan,
        "make" => Kind::Make(arguments),
        "cargo" => Kind::Cargo(arguments),
        "kubectl" | "grpcurl" | "sipctl" => Kind::Site,
        _ => Kind::Unknown(program),
    })
}

#[test]
fn commands_are_read_with_their_place_and_output() {
    let text = "x\n\n```console\n$ make \\\n  a\nb\n$ cargo c\n```\n\n```sh\n$ not read\n```\n";

    assert_eq!(
        read(&markdown::parse("d.md", text)),
        Ok(vec![
            Transcript {
                place: "d.md:4".to_owned(),
                command: "make \\\n  a".to_owned(),
                output: vec!["b".to_owned()]
            },
            Transcript {
                place: "d.md:7".to_owned(),
                command: "cargo c".to_owned(),
                output: Vec::new()
            },
        ])
    );
    assert!(read(&markdown::parse("d.md", "```console\nmake a\n```\n")).is_err());
}

#[test]
fn a_command_is_known_by_its_program() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let cases = [
        ("make demo", Kind::Demo),
        ("make plan", Kind::Plan),
        ("make", Kind::Make(words(&[]))),
        (
            "A=1 B='2 3' cargo test -p \\\n x",
            Kind::Cargo(words(&["test", "-p", "x"])),
        ),
        ("kubectl get nodes", Kind::Site),
        ("rm -r x", Kind::Unknown("rm".to_owned())),
    ];

    for (command, expected) in cases {
        assert_eq!(kind(command), Some(expected), "{command}");
    }
    assert_eq!(kind("# nothing"), None);
}
