//! Names of the user of a provider in etcd, and of its keys. Pure.
//!
//! Several sites may use one etcd, and sites of two regions may have the same name, so every name has those of both. Names of regions
//! and sites, uids and names of objects have no slash. Sites are given as `REGION/SITE`.

/// Prefix of the names of users and roles, and of every key.
pub(super) const NAME_PREFIX: &str = "sip-dex";

/// The part of the storage that belongs to one provider.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct StoragePart {
    /// The uid of the `SIPCluster`.
    pub uid: String,
    /// Name of the provider.
    pub name: String,
}

impl StoragePart {
    /// Name of its user, and of its role.
    pub(super) fn user(&self, site: &str) -> String {
        let Self { uid, name } = self;
        format!("{NAME_PREFIX}/{site}/{uid}/{name}")
    }

    /// Prefix of its keys. No key of another provider has it, since no user's name is another user's name and a slash.
    pub(super) fn keys(&self, site: &str) -> String {
        format!("{}/", self.user(site))
    }

    /// The provider that a user belongs to; `None`: to none of the site.
    pub(super) fn from_user(site: &str, user: &str) -> Option<Self> {
        let rest = user.strip_prefix(NAME_PREFIX)?.strip_prefix('/')?;
        let rest = rest.strip_prefix(site)?.strip_prefix('/')?;
        let (uid, name) = rest.split_once('/')?;
        (!name.contains('/')).then(|| Self {
            uid: uid.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_finds_its_own_users_only() {
        let part = StoragePart {
            uid: "5a1e".to_owned(),
            name: "auth-shop".to_owned(),
        };
        let user = part.user("north/lab");
        assert_eq!(user, "sip-dex/north/lab/5a1e/auth-shop");
        assert_eq!(part.keys("north/lab"), "sip-dex/north/lab/5a1e/auth-shop/");
        assert_eq!(StoragePart::from_user("north/lab", &user), Some(part));
        for other in [
            "south/lab",
            "north",
            "lab",
            "north/la",
            "north/lab2",
            "north/lab/5a1e",
            "",
        ] {
            assert_eq!(StoragePart::from_user(other, &user), None, "{other}");
        }
        for other in [
            "root",
            "sip-dex/north/lab/5a1e",
            "sip-dex/north/lab/5a1e/auth-shop/x",
            "sip-dexter/north/lab/a/b",
            // As releases before named it.
            "sip-dex/lab/5a1e/auth-shop",
        ] {
            assert_eq!(StoragePart::from_user("north/lab", other), None, "{other}");
        }
    }
}
