//! Syntax of DNS names as the API server checks names of objects.
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>

/// Maximum length of a label of a DNS name, in bytes.
pub(crate) const MAX_LABEL_BYTES: usize = 63;

/// Maximum length of a DNS subdomain, in bytes.
const MAX_SUBDOMAIN_BYTES: usize = 253;

/// Whether a text is an RFC 1123 subdomain as Kubernetes checks it: lower-case labels of any length, 253 bytes in all.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_BYTES && text.split('.').all(is_lower_case_label)
}

/// Whether a text is an RFC 1035 label, as the API server checks the name of a Service.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && is_lower_case_label(text)
}

fn is_lower_case_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    begins_and_ends(text, alphanumeric) && text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
}

/// Whether the first and the last byte are allowed; false for an empty text.
pub(crate) fn begins_and_ends(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|first| allowed(*first)) && bytes.last().is_some_and(|last| allowed(*last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_begins_with_a_letter() {
        assert!(is_label("a-1"));
        for bad in ["", "1a", "a.b", "a-", "A", &"n".repeat(64)] {
            assert!(!is_label(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_subdomain_has_lower_case_labels() {
        for good in ["a", "host-1.rack", "0", &"n".repeat(253)] {
            assert!(is_subdomain(good), "{good:?}");
        }
        for bad in ["", "a..b", "-a", "a-", "A", "a_b", "a.", &"n".repeat(254)] {
            assert!(!is_subdomain(bad), "{bad:?}");
        }
    }
}
