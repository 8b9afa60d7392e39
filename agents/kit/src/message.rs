//! Texts of conditions and Events: what others chose, such as the name of a pod or what a program answered, is in
//! many of them.

use api::stored_bytes;

/// Between both ends of a connection.
const ARROW: &str = "->";

/// The text without control characters other than line breaks, and without marks that turn the direction of writing, since terminals act on them;
/// and with so many bytes at most. It is also [`steady`].
#[must_use]
pub fn readable(text: &str, most: usize) -> String {
    truncated(printable(text), most, char::len_utf8)
}

/// The same, with so many bytes at most as an API server stores it: see [`stored_bytes`]. Its escapes may make a text six times as long.
#[must_use]
pub fn readable_stored(text: &str, most: usize) -> String {
    // A character alone has quotes of its own.
    truncated(printable(text), most, |c| stored_bytes(&c).saturating_sub(2))
}

fn printable(text: &str) -> String {
    let is_hidden = |c: char| c.is_control() && c != '\n' || turns_direction(c);
    steady(text).replace(is_hidden, "\u{fffd}")
}

/// Whether a character turns the direction of writing, with which a text can look like another one. Names of images and networks may have it.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text if it has this size at most, or else as many of its first characters as fit with an ellipsis. `size`: of a character.
fn truncated(mut text: String, most: usize, size: impl Fn(char) -> usize) -> String {
    let room = most.saturating_sub(size('…'));
    let (mut sum, mut end) = (0_usize, 0);
    for (start, c) in text.char_indices() {
        sum = sum.saturating_add(size(c));
        if sum <= room {
            end = start + c.len_utf8();
        }
        if sum > most {
            break;
        }
    }
    if sum > most {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// What failed, without what differs with each try: the local ports of connections, and the present time where a certificate is not valid now. A
/// status with them would be written again, which triggers the next try.
#[must_use]
pub fn steady(text: &str) -> String {
    without_present_time(&without_local_ports(text))
}

/// As Go has it in `certificate has expired or is not yet valid: current time 2026-11-29T13:40:11Z is after 2026-11-01T00:00:00Z`, and rustls in
/// `certificate expired: verification time 1796046011 (UNIX), but certificate is not valid after 1793491200 (2554811 seconds ago)`.
fn without_present_time(text: &str) -> String {
    let text = without_after(text, "current time ", |c| !c.is_whitespace());
    let text = without_after(&text, "verification time ", |c| c.is_ascii_digit());
    let text = without_interval(&text, " seconds ago)");
    without_interval(&text, " seconds in future)")
}

/// The text without the time that follows each `key`, and a blank.
fn without_after(text: &str, key: &str, is_of_time: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(key);
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        without.push_str(key);
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            let rest = part.trim_start_matches(&is_of_time);
            without.push_str(rest.strip_prefix(' ').unwrap_or(rest));
        } else {
            without.push_str(part);
        }
    }
    without
}

/// The text without each number in parentheses that ends with `end`.
fn without_interval(text: &str, end: &str) -> String {
    let mut parts: Vec<&str> = text.split(end).collect();
    let last = parts.pop().unwrap_or_default();
    let mut without = String::new();
    for part in parts {
        let before = part.trim_end_matches(|c: char| c.is_ascii_digit());
        match before.strip_suffix(" (") {
            Some(before) => without.push_str(before),
            None => without.extend([part, end]),
        }
    }
    without.push_str(last);
    without
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
    fn an_expired_certificate_has_the_same_text_with_each_try() {
        let go = |now: &str| {
            format!(
                "x509: certificate has expired or is not yet valid: current time {now} is after 2026-11-01T00:00:00Z"
            )
        };
        let expired = |now: u32, ago: u32| {
            format!(
                "invalid peer certificate: certificate expired: verification time {now} (UNIX), but certificate is not valid after 1795 ({ago} \
                 seconds ago)"
            )
        };
        let early = |now: u32, left: u32| {
            format!(
                "certificate not valid yet: verification time {now} (UNIX), but certificate is not valid before 1795 ({left} seconds in \
                 future)"
            )
        };
        for (first, later) in [
            (go("2026-11-29T13:40:11Z"), go("2026-11-29T13:40:21+01:00")),
            (expired(1_800, 5), expired(1_810, 15)),
            (early(1_790, 5), early(1_791, 4)),
        ] {
            assert_eq!(readable(&first, 400), readable(&later, 400));
            // Texts pass it several times.
            assert_eq!(steady(&steady(&first)), steady(&first));
        }
        assert!(
            readable(&go("2026-11-29T13:40:11Z"), 400)
                .ends_with("current time is after 2026-11-01T00:00:00Z")
        );
        let expected = "verification time (UNIX), but certificate is not valid after 1795";
        assert!(readable(&expired(1_800, 5), 400).ends_with(expected));
        for other in [
            "the current time differs",
            "waits 5 seconds",
            "it waits (for 5 seconds ago)",
        ] {
            assert_eq!(readable(other, 400), other);
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

    #[test]
    fn marks_that_turn_the_direction_are_replaced() {
        let hostile = "registry\u{202e}gpj.\u{2066}live\u{2069}\u{200f}\u{61c}";
        let expected = "registry\u{fffd}gpj.\u{fffd}live\u{fffd}\u{fffd}\u{fffd}";
        assert_eq!(readable(hostile, 100), expected);
        assert_eq!(readable_stored(hostile, 100), expected);
        assert_eq!(
            readable("שלום 👩\u{200d}🔧", 100),
            "שלום 👩\u{200d}🔧",
            "a script of its own needs none"
        );
    }

    #[test]
    fn escapes_count_in_a_stored_text_and_are_not_cut() {
        for (text, most, expected) in [
            ("\"\"\"", 6, "\"\"\""),
            ("\"\"\"", 5, "\"…"),
            ("<<<", 18, "<<<"),
            ("<<<", 17, "<<…"),
            ("<<<", 14, "<…"),
            ("a<b", 8, "a<b"),
            ("a<b", 7, "a…"),
            ("é\u{2028}é", 10, "é\u{2028}é"),
            ("é\u{2028}é", 9, "é…"),
            ("éé\n\n", 8, "éé\n\n"),
            ("éé\n\n", 7, "éé…"),
            ("éé\n\n", 6, "é…"),
            ("\r\r\r", 9, "\u{fffd}\u{fffd}\u{fffd}"),
            ("\r\r\r", 8, "\u{fffd}…"),
            ("😀😀", 8, "😀😀"),
            ("😀😀", 7, "😀…"),
            ("😀😀", 6, "…"),
        ] {
            assert_eq!(readable_stored(text, most), expected, "{text:?} {most}");
        }
        let hostile = "a\"\\\n\u{2028}<é>&\u{2029}\u{1b}😀\u{fffd}".repeat(3);
        for most in 3..200 {
            let text = readable_stored(&hostile, most);
            // Both quotes are not part of it.
            let bytes = stored_bytes(&text) - 2;
            assert!(bytes <= most, "{text:?} takes {bytes} of {most} bytes");
        }
    }
}
