//! Which releases of etcd keep users apart. Tenants can read the Secret of their provider, and so have the user and the password by which
//! it reaches etcd: what a user can do there beyond its role, a tenant can do to all others. Pure.
//!
//! | advisory of etcd | what a user can do | mended in |
//! |---|---|---|
//! | GHSA-rfx7-8w68-q57q | read and write every key, by a transaction in a transaction | 3.6.9 |
//! | GHSA-q8m4-xhhv-38mg | raise alarms, which stop etcd for all, and compact | 3.6.9 |
//! | GHSA-xg4h-6gfc-h4m8 | watch every key after one of its own | 3.6.14, 3.7.1 |
//!
//! 3.5 has mends of these too, but checks no rights while it is full.

/// The first releases that keep users apart, for people.
pub(super) const FIRST: &str = "3.6.14 or a later 3.6, 3.7.1 or later";

/// The first patch release that does, of each minor release of 3 that needs one.
const PATCHES: [(u64, u64); 2] = [(6, 14), (7, 1)];

/// Whether this release does, as etcd tells it, such as `3.6.14`. One that cannot be read does not.
pub(super) fn keeps_users_apart(version: &str) -> bool {
    // What follows the numbers of a build of one's own, such as `-k3s1`.
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = numbers.split('.').map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    let first = PATCHES.iter().find(|(of, _)| *of == minor);
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
