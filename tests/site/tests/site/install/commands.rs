//! Commands of a page: its `sh` blocks are run, and its `text` blocks are what the block before prints.

/// A block of commands, and what they print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the page that the block begins at.
    pub(crate) line: usize,
    /// The commands.
    pub(crate) script: String,
    /// Lines that their output has, in this order, with `…` for text that differs from run to run.
    pub(crate) printed: Vec<String>,
}

/// The steps of a page, in its order.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let Some(language) = text.trim_start().strip_prefix("```") else {
            continue;
        };
        let block: Vec<String> = lines
            .by_ref()
            .map(|(_, text)| text.to_owned())
            .take_while(|text| text.trim() != "```")
            .collect();
        match language {
            "sh" => steps.push(Step {
                line,
                script: block.join("\n"),
                printed: Vec::new(),
            }),
            "text" => {
                if let Some(step) = steps.last_mut() {
                    step.printed
                        .extend(block.into_iter().filter(|text| text.trim() != "..."));
                }
            }
            _ => {}
        }
    }
    steps
}

/// The first sample in YAML that contains this text, without the indentation of its block.
pub(crate) fn sample(page: &str, containing: &str) -> String {
    let mut lines = page.lines();
    while let Some(fence) = lines.by_ref().find(|line| line.trim_start() == "```yaml") {
        let indentation = fence.len() - fence.trim_start().len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block: Vec<&str> = block
            .map(|line| line.get(indentation..).unwrap_or_default())
            .chain([""])
            .collect();
        let block = block.join("\n");
        if block.contains(containing) {
            return block;
        }
    }
    panic!("no sample contains {containing:?}");
}

/// The blocks of a language in the section of a page that begins with this line, without their indentation.
pub(crate) fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let mut lines = page
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    while lines.any(|line| line.trim() == fence) {
        let block = lines.by_ref().map(str::trim).take_while(|line| *line != "```");
        blocks.push(block.collect::<Vec<_>>().join("\n"));
    }
    blocks
}

impl Step {
    /// The first line that the output does not have.
    pub(crate) fn missing(&self, output: &str) -> Option<&str> {
        let mut lines = output.lines();
        self.printed
            .iter()
            .map(String::as_str)
            .find(|expected| !lines.any(|line| matches(expected, line)))
    }
}

fn matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.trim().split('…').map(str::trim);
    let line = line.trim();
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut whole = true;
    for part in parts {
        whole = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || whole && expected.contains('…')
}

#[test]
fn a_page_is_read_as_steps_with_what_they_print() {
    let page = "x\n```console\n$ make\n```\n```sh\na\nb\n```\nsays\n```text\none … two\n...\nthree\n```\n```sh\nc\n```\n";

    let steps = steps(page);

    assert_eq!((steps[0].line, &*steps[0].script), (5, "a\nb"));
    assert_eq!(steps[0].missing("zero\none and two\nmore\nthree\n"), None);
    assert_eq!(steps[0].missing("three\none and two\n"), Some("three"));
    assert_eq!(steps[1].script, "c");
}

#[test]
fn a_sample_is_found_by_its_content_and_not_indented() {
    let page = "```yaml\na: 1\n```\n- x\n  ```yaml\n  b:\n    - 2\n  ```\n```yaml\nb: 3\n```\n";

    assert_eq!(sample(page, "b:"), "b:\n  - 2\n");
}

#[test]
fn blocks_are_those_of_one_section() {
    let page = "## A\n```bash\na\n```\n## B\n1. x\n   ```bash\n   b\n   c\n   ```\n```sh\nd\n```\n```bash\ne\n```\n## C\n```bash\nf\n```\n";

    assert_eq!(blocks(page, "## B", "bash"), ["b\nc", "e"]);
    assert_eq!(blocks(page, "## D", "bash"), [""; 0]);
}

#[test]
fn dots_stand_for_any_text() {
    for (expected, line, agrees) in [
        ("a b", "a b", true),
        ("a b", "a b c", false),
        ("a …", "a b c", true),
        ("a … c", "a b c", true),
        ("a … d", "a b c", false),
        ("… c", "a b c", true),
        ("b …", "a b c", false),
    ] {
        assert_eq!(matches(expected, line), agrees, "{expected:?} {line:?}");
    }
}
