//! Texts of unknown origin in messages.

/// A text as it may stand in one line of a terminal: control characters escaped, and at most `most` characters of it.
#[must_use]
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut characters = text.chars();
    for character in characters.by_ref().take(most) {
        if character.is_control() || is_direction(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

/// Line separators and marks that turn the direction of writing, with which a text can look like another one.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_escape_sequences_are_always_visible() {
        assert_eq!(
            one_line("a\n\u{1b}[31mb\u{202e}", 80),
            "a\\n\\u{1b}[31mb\\u{202e}"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(one_line("äöü", 2), "äö…");
        assert_eq!(one_line("äöü", 3), "äöü");
    }
}
