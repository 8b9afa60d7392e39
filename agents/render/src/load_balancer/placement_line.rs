//! The line of a configuration that names the placement for which it was rendered, where a sidecar follows it.
//!
//! A sidecar reports the digest of the newest text that it has read. When a member leaves again, the text before it came is restored. A sidecar
//! that has read neither of the two later texts would report the same digest, and add the member when it reads the first of them. With the
//! placement in the text, the digest after a release is that of no earlier configuration.

/// Prefix of the line.
const LINE_PREFIX: &str = "# placement ";

/// The text with a last line that names the position of a placement, such as `1.8`.
pub(super) fn with_placement(text: &str, position: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}{LINE_PREFIX}{position}\n")
}

/// The text without that line: what HAProxy runs is the same for texts that differ in nothing else.
#[must_use]
pub fn without_placement(text: &str) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let last = body.rfind('\n').map_or(0, |end| end + 1);
    match (text.get(..last), body.get(last..)) {
        (Some(before), Some(line)) if line.starts_with(LINE_PREFIX) => before,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_last_one_and_can_be_left_out() {
        for (text, expected) in [
            ("global\n", "global\n# placement 1.8\n"),
            ("global", "global\n# placement 1.8\n"),
            ("", "# placement 1.8\n"),
            ("# placement 1.7\n", "# placement 1.7\n# placement 1.8\n"),
        ] {
            let with = with_placement(text, "1.8");
            assert_eq!(with, expected);
            let end = if text.is_empty() || text.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            assert_eq!(without_placement(&with), format!("{text}{end}"));
        }
        for text in ["", "\n", "global\n", "# placement 1.8\nglobal\n", "global"] {
            assert_eq!(without_placement(text), text);
        }
    }
}
