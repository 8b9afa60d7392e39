//! Compares what a document shows of a command's output with what it printed.

use super::console::Transcript;

/// Stands for lines that are left out.
const LINES: &str = "...";
/// Stands for text within a line that differs from run to run.
const TEXT: char = '…';

/// How the output differs from what is shown; nothing is compared where nothing is shown.
pub(super) fn difference(shown: &Transcript, printed: &str) -> Option<String> {
    if shown.output.is_empty() {
        return None;
    }
    let printed: Vec<&str> = printed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let missing = first_missing(&shown.output, &printed)?;
    Some(format!(
        "{}: {}\nis shown to print:\n  {missing}\nand prints:\n  {}",
        shown.place,
        shown.command,
        printed.join("\n  ")
    ))
}

/// The first shown line that the output does not have in this place. Empty lines and the width of gaps do not matter.
fn first_missing(shown: &[String], printed: &[&str]) -> Option<String> {
    let mut rest = printed.iter();
    // Whether lines may have been left out before the next shown one.
    let mut gap = false;
    for line in shown
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
    {
        if line == LINES {
            gap = true;
            continue;
        }
        let found = if gap {
            rest.any(|printed| alike(line, printed))
        } else {
            rest.next().is_some_and(|printed| alike(line, printed))
        };
        if !found {
            return Some(line.to_owned());
        }
        gap = false;
    }
    let more = rest.next();
    more.filter(|_| !gap)
        .map(|line| format!("nothing more, where there is: {line}"))
}

fn alike(shown: &str, printed: &str) -> bool {
    let even = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, printed) = (even(shown), even(printed));
    let Some((start, rest)) = shown.split_once(TEXT) else {
        return shown == printed;
    };
    let Some(mut left) = printed.strip_prefix(start) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split(TEXT).collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.ends_with(end)
}

#[test]
fn documented_output_must_appear_in_order_without_gaps() {
    let printed = ["a", "b  1s", "c", "d"];
    let cases: [(&[&str], Option<&str>); 9] = [
        (&["a", "b 1s", "c", "d"], None),
        (&["a", "", "b    …s", "c", "d"], None),
        (&["a", "...", "d"], None),
        (&["...", "b …", "..."], None),
        (&["a", "c", "..."], Some("c")),
        (&["...", "c", "...", "a", "..."], Some("a")),
        (&["b 1s", "..."], Some("b 1s")),
        (&["a", "..."], None),
        (&["a"], Some("nothing more, where there is: b  1s")),
    ];

    for (shown, expected) in cases {
        let shown: Vec<String> = shown.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(first_missing(&shown, &printed).as_deref(), expected, "{shown:?}");
    }
}

#[test]
fn an_ellipsis_stands_for_any_text_within_a_line() {
    let cases = [
        ("a … c", "a b c", true),
        ("…", "anything", true),
        ("a … c … e", "a b c d e", true),
        ("a … c", "a b d", false),
        ("a …", "b a", false),
        ("a … x … e", "a b c d e", false),
    ];

    for (shown, printed, expected) in cases {
        assert_eq!(alike(shown, printed), expected, "{shown} {printed}");
    }
}
