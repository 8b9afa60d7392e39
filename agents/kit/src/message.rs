//! Texts for people, as conditions and Events show them: what others chose, such as the name of a pod or what a program answered, is in
//! many of them.

/// The text without control characters other than line breaks, since terminals act on them, and with so many bytes at most.
#[must_use]
pub fn readable(text: &str, most: usize) -> String {
    let mut text = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_and_long_texts_truncated() {
        for (text, most, expected) in [
            ("pod a: disk full\nand more", 100, "pod a: disk full\nand more"),
            ("\u{1b}[2Jready\r\u{9b}", 100, "\u{fffd}[2Jready\u{fffd}\u{fffd}"),
            ("ééé", 6, "ééé"),
            ("éééé", 6, "é…"),
            ("\r\r\r", 6, "\u{fffd}…"),
        ] {
            assert_eq!(readable(text, most), expected);
        }
    }
}
