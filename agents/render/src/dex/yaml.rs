//! Text that is JSON and YAML alike. JSON admits characters in strings that a YAML parser refuses or changes, such as line separators,
//! so they are escaped; and a pair of escapes for one character is not YAML, so characters that need a pair are written as they are.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The text of a value.
///
/// # Errors
/// For a value that has no text, such as a map with keys that are no strings.
pub(super) fn text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, EscapingFormatter);
    value.serialize(&mut serializer)?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

struct EscapingFormatter;

impl Formatter for EscapingFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for character in fragment.chars() {
            let code = u32::from(character);
            if (0x20..0x7f).contains(&code) || code > 0xffff {
                write!(writer, "{character}")?;
            } else {
                write!(writer, "\\u{code:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_change_is_escaped() {
        let value = "a\"\\\u{7f}\u{85}\u{2028}\u{feff}\u{ffff}é\u{1f600}\n";
        let text = text(&value).unwrap();
        assert_eq!(
            text,
            "\"a\\\"\\\\\\u007f\\u0085\\u2028\\ufeff\\uffff\\u00e9\u{1f600}\\n\""
        );
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
        assert_eq!(serde_saphyr::from_str::<String>(&text).unwrap(), value);
    }

    #[test]
    fn a_value_without_text_is_an_error() {
        text(&std::collections::BTreeMap::from([((1, 2), 3)])).unwrap_err();
    }
}
