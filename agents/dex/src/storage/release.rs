//! Which releases of etcd separate users. Tenants can read the Secret of their provider, with the user and the password by which it reaches etcd:
//! whatever a user can do beyond its role, a tenant can do to all others. Pure.
//!
//! | advisory of etcd | what a user can do | mended in |
//! |---|---|---|
//! | GHSA-rfx7-8w68-q57q | read and write every key, by a transaction in a transaction | 3.6.9 |
//! | GHSA-q8m4-xhhv-38mg | raise alarms, which stop etcd for all, and compact | 3.6.9 |
//! | GHSA-xg4h-6gfc-h4m8 | watch every key after one of its own | 3.6.14, 3.7.1 |
//!
//! 3.5 has mends of these too, but checks no rights while it is full.

/// The releases that keep users apart, for messages.
pub(super) const SUPPORTED_RELEASES: &str = "3.6.14 or a later 3.6, 3.7.1 or later";

/// For each minor release of 3 that needs one, the first patch release that separates users.
const FIRST_PATCHES: [(u64, u64); 2] = [(6, 14), (7, 1)];

/// Whether this release separates users. `version`: as etcd reports it, such as `3.6.14`; false for any other text.
pub(super) fn keeps_users_apart(version: &str) -> bool {
    // Builds by others have a suffix after the numbers, such as `-k3s1`.
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = numbers.split('.').map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    let first = FIRST_PATCHES.iter().find(|(of, _)| *of == minor);
    match (major, first) {
        (3, Some((_, first))) => patch >= *first,
        (3, None) => minor > 7,
        (major, _) => major > 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_with_known_bypasses_do_not_keep_users_apart() {
        for good in [
            "3.6.14",
            "3.6.14-k3s1",
            "3.6.16",
            "3.7.1",
            "3.7.3",
            "3.8.0",
            "4.0.0",
        ] {
            assert!(keeps_users_apart(good), "{good}");
        }
        for bad in [
            "3.6.4", "3.6.13", "3.6.0", "3.7.0", "3.5.35", "3.4.44", "2.9.9", "", "3.6", "v3.6.14",
            "3.6.14.1", "3.6.x",
        ] {
            assert!(!keeps_users_apart(bad), "{bad}");
        }
    }
}
