//! Texts for people, as conditions and Events show them: what others chose, such as the name of a pod or what a program answered, is in
//! many of them.

/// Between both ends of a connection.
const ARROW: &str = "->";

/// The text without control characters other than line breaks, since terminals act on them, and with so many bytes at most. Of what programs in
/// Go write of a connection that failed it has no local port: that is another one with each try, and a status with it would be written
/// again, which triggers the next try.
#[must_use]
pub fn readable(text: &str, most: usize) -> String {
    let text = without_local_ports(text);
    let mut text = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

/// As in `read tcp 192.0.2.1:45678->192.0.2.2:443: i/o timeout`.
fn without_local_ports(text: &str) -> String {
    let mut ends: Vec<&str> = text.split(ARROW).collect();
    let last = ends.pop().unwrap_or_default();
    let mut without: String = ends
        .into_iter()
        .flat_map(|end| [without_local_port(end).unwrap_or(end), ARROW])
        .collect();
    without.push_str(last);
    without
}

/// A text that ends with the local end of a connection, without its port; `None`: it ends with something else.
fn without_local_port(text: &str) -> Option<&str> {
    let (before, _) = text.rsplit_once(' ')?;
    let is_address = before.ends_with("tcp") || before.ends_with("udp");
    let without = text.trim_end_matches(|c: char| c.is_ascii_digit());
    without.strip_suffix(':').filter(|_| is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_connection_has_the_same_text_with_each_try() {
        for (text, expected) in [
            (
                "Post \"https://hook.site.svc:443/?timeout=10s\": read tcp 192.0.2.1:45678->192.0.2.2:443: i/o timeout",
                "Post \"https://hook.site.svc:443/?timeout=10s\": read tcp 192.0.2.1->192.0.2.2:443: i/o timeout",
            ),
            (
                "lookup hook on [::1]:53: read udp [::1]:45678->[::1]:53: refused; write tcp [::1]:4->[::1]:5: EOF",
                "lookup hook on [::1]:53: read udp [::1]->[::1]:53: refused; write tcp [::1]->[::1]:5: EOF",
            ),
            (
                "dial tcp 192.0.2.2:443: refused",
                "dial tcp 192.0.2.2:443: refused",
            ),
            ("rule a:1->b, tcp->udp", "rule a:1->b, tcp->udp"),
            ("->", "->"),
        ] {
            assert_eq!(readable(text, 200), expected);
        }
    }

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
