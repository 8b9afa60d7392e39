//! Texts for people, as conditions and Events show them: what others chose, such as the name of a pod or what a program answered, is in
//! many of them.

/// Between both ends of a connection.
const ARROW: &str = "->";

/// The text without control characters other than line breaks, since terminals act on them, and with so many bytes at most. It is also [`steady`].
#[must_use]
pub fn readable(text: &str, most: usize) -> String {
    let text = steady(text);
    let mut text = text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
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
}
